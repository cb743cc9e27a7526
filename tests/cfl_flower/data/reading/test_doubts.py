"""Tables whose columns give the label away are told, and tests on what was learnt."""

import numpy as np
import pandas as pd
import pytest

from cfl_flower.data.datasets.npz import Npz
from cfl_flower.data.datasets.tables import Csv
from cfl_flower.data.reading.doubts import other_scale

ROWS = 60
RNG = np.random.default_rng(0)
PLAIN = {"age": RNG.normal(40, 8, ROWS), "label": RNG.permutation(["a", "b", "c"] * 20)}
CODES = {"a": 7.0, "b": 1.0, "c": 4.0}


@pytest.mark.parametrize(
    ("column", "told"),
    [
        (range(ROWS), "counts the rows"),
        (range(100, 100 + ROWS), "counts the rows"),
        ([CODES[each] for each in PLAIN["label"]], "has one value for each class"),
        ([f"the {each}" for each in PLAIN["label"]], "has one value for each class"),
        ([CODES[each] for each in PLAIN["label"][:-5]] + [None] * 5, "has one value"),
        ([each == "a" for each in PLAIN["label"]], ""),
        (RNG.permutation(ROWS), ""),
        (np.arange(ROWS) % 3, ""),
        (np.zeros(ROWS), ""),
    ],
)
def test_a_column_that_is_probably_no_input_is_told(column, told, tmp_path):
    pd.DataFrame({**PLAIN, "odd": list(column)}).to_csv(tmp_path / "data.csv")
    dataset = Csv(features=("age", "odd"), missing="mean", standardise=False)
    notes = [n for n in dataset.notes(str(tmp_path)) if "lacks" not in n]
    assert [f"column odd {told}" in note for note in notes] == [True] * bool(told)


@pytest.mark.parametrize(
    ("ages", "labels", "shift"),
    [
        ([30, 31, 50], "aab", 0.5),
        ([1] + [0] * 39, "b" + "a" * 39, 0.5),
        # Of four ages each test row is that of many rows for training.
        (np.arange(120) % 4, "aaaabbbb" * 15, 0),
    ],
)
def test_nothing_is_told_of_few_rows_rare_classes_and_coarse_inputs(
    ages, labels, shift, tmp_path
):
    frame = pd.DataFrame({"age": ages, "label": list(labels)})
    frame.to_csv(tmp_path / "train.csv", index=False)
    frame.assign(age=frame["age"] + shift).to_csv(tmp_path / "test.csv", index=False)
    dataset = Csv(file="train.csv", test_file="test.csv")
    assert dataset.notes(str(tmp_path)) == []


@pytest.mark.parametrize(("again", "told"), [(20, True), (19, False)])
def test_a_test_set_that_was_trained_on_is_told(again, told, tmp_path):
    x = RNG.normal(size=(80, 3))
    y = np.arange(80) % 4
    test = np.concatenate([x[:again], x[60:][: 20 - again]])
    arrays = {"x_train": x[:60], "y_train": y[:60], "x_test": test, "y_test": y[:20]}
    np.savez(tmp_path / "data.npz", **arrays)
    notes = Npz().notes(str(tmp_path))
    assert ["all samples of the test set" in note for note in notes] == [True] * told


@pytest.mark.parametrize(
    ("train", "test", "told"),
    [
        (np.arange(255.0), np.linspace(0, 1, 9), True),
        (np.linspace(0, 1, 9), np.arange(255.0), True),
        (-np.arange(255.0), np.array([np.nan, 0.5, -0.9]), True),
        (np.arange(255.0), np.zeros(3), False),
        (np.append(np.ones(99), 1e9), np.ones(9), False),
        (np.arange(255, dtype=np.uint8), np.array([9, 8], np.uint8), False),
        (np.array([np.inf, 3]), np.array([2.0, np.nan]), False),
        (np.zeros(2), np.zeros(3), False),
        (np.arange(40.0), np.arange(4.0), False),
    ],
)
def test_parts_of_other_scales_are_told(train, test, told):
    found = other_scale(train, test)
    assert ["of one scale?" in each for each in found] == [True] * told
