"""Tables whose columns give the label away are told, and tests on what was learnt."""

import numpy as np
import pandas as pd
import pytest

from cfl_flower.data.datasets.npz import Npz
from cfl_flower.data.datasets.tables import Csv

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
        ([each == "a" for each in PLAIN["label"]], ""),
        (RNG.permutation(ROWS), ""),
        (np.arange(ROWS) % 3, ""),
        (np.zeros(ROWS), ""),
    ],
)
def test_a_column_that_is_probably_no_input_is_told(column, told, tmp_path):
    pd.DataFrame({**PLAIN, "odd": list(column)}).to_csv(tmp_path / "data.csv")
    notes = Csv(features=("age", "odd")).notes(str(tmp_path))
    assert [f"column odd {told}" in note for note in notes] == [True] * bool(told)


@pytest.mark.parametrize(("again", "told"), [(20, True), (19, False)])
def test_a_test_set_that_was_trained_on_is_told(again, told, tmp_path):
    x = RNG.normal(size=(80, 3))
    y = np.arange(80) % 4
    test = np.concatenate([x[:again], x[60:][: 20 - again]])
    arrays = {"x_train": x[:60], "y_train": y[:60], "x_test": test, "y_test": y[:20]}
    np.savez(tmp_path / "data.npz", **arrays)
    notes = Npz().notes(str(tmp_path))
    assert ["all samples of the test set" in note for note in notes] == [True] * told
