"""Names that people bring, and what stands for no value, are read as they are meant."""

import re
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfl_flower.data.datasets.npz import Npz
from cfl_flower.data.reading.names import numbered_names
from tests.cfl_flower.data.datasets.brought import (
    CSVS,
    READERS,
    ROWS,
    among,
    as_csv,
    every_reader,
    loaded,
    refusal,
    table,
)

SAME = [
    *(["1", "1.0"], ["01", "1"], ["+1", "1"], ["1e3", "1000"], ["-0", "0.0"]),
    ["10", "10.", "1E1", "0010"],
]
"""Spellings of one whole number."""

ALIKE = [
    *(["North", "north"], ["north", "north "], ["a b", "a  b"], ["a b", "a\u00a0b"]),
    *(["True", "1"], ["true", "True"], ["0.5", ".50"], ["1.5", "15e-1"]),
    *(["ﬁn", "fin"], ["m²", "m2"], ["ab", "a\u200bb"], ["１ｘ", "1x"]),
]
"""Spellings that a person hardly tells from each other."""


@pytest.mark.parametrize("spellings", SAME, ids=str)
@CSVS
def test_whole_numbers_are_one_however_they_are_written(reader, spellings, tmp_path):
    frame = table(label=among(spellings, "7"), who=among(spellings, "8"))
    known, *pools = loaded(reader(tmp_path, frame, owner="who"), tmp_path)
    assert known.names[-1:] != ("z",)
    assert known.classes == 2
    owners = {owner for pool in pools for owner in pool.owners}
    assert owners == {0, 1}


@given(st.lists(st.integers(-(10**30), 10**30), min_size=2, unique=True))
@settings(max_examples=50)
def test_whole_numbers_have_the_order_of_their_size(numbers):
    forms = [str, lambda number: f"{number}.0", lambda number: f"{number:+040d}"]
    texts = [form(number) for number in numbers for form in forms]
    names, (places,) = numbered_names([np.array(texts)], "they")
    assert names.tolist() == [str(number) for number in sorted(numbers)]
    assert places.tolist() == [
        sorted(numbers).index(number) for number in numbers for _ in forms
    ]


@pytest.mark.parametrize("spellings", ALIKE, ids=str)
@pytest.mark.parametrize("role", ["label", "who", "b"])
@every_reader
def test_names_that_look_alike_are_refused_with_both(reader, role, spellings, tmp_path):
    frame = table(**{"b": ["q", "r"] * (ROWS // 2), role: among(spellings)})
    dataset = reader(tmp_path, frame, owner="who", features=("a", "b"))
    line = refusal(dataset, tmp_path)
    # Among inputs, a number beside texts is told as such.
    assert all(repr(each) in line for each in spellings) or "finite number" in line


def test_letters_and_accents_are_names_as_they_are_meant(tmp_path):
    frame = table(label=among(["a", "A"]), b=among(["é", "e\u0301"]))
    known, *_ = loaded(as_csv(tmp_path, frame), tmp_path)
    assert known.names == ("A", "a", "z")
    # The number, two owners, and é as one of two.
    assert known.shape == (5,)


@pytest.mark.parametrize("sign", ["", "?", "nan", None])
@pytest.mark.parametrize("role", ["label", "who", "b", "a"])
@every_reader
def test_what_stands_for_no_value_is_none(reader, role, sign, tmp_path):
    if role == "a" and sign is not None and reader not in READERS[:3]:
        pytest.skip("a column of numbers has no texts")
    usual = table(b=["q", "r"] * (ROWS // 2))
    cells = usual[role].astype(object).tolist()
    cells[5] = sign
    cells[8] = sign and f" {sign}"
    frame = usual.assign(**{role: cells})
    own: dict[str, Any] = {"owner": "who", "features": ("a", "b")}
    line = refusal(reader(tmp_path, frame, **own), tmp_path)
    assert f"{role} in 2 of {ROWS} rows" in line
    assert "dataset.missing=drop" in line
    dropped = reader(tmp_path, frame, **own, missing="drop")
    known, train, test = loaded(dropped, tmp_path)
    assert (len(train.labels) + len(test.labels), known.classes) == (ROWS - 2, 2)
    # Another may say that the column a counts the rows.
    note = known.notes(str(tmp_path))[0]
    assert note.endswith("; rows left out: 2")
    mean = reader(tmp_path, frame, **own, missing="mean", standardise=False)
    if role != "a":
        assert "missing=drop" in refusal(mean, tmp_path)
        return
    _, train, test = loaded(mean, tmp_path)
    assert len(train.labels) + len(test.labels) == ROWS
    values = train.x[:, 0].tolist()
    others = [value for value in values if value == int(value)]
    filled = {*values, *test.x[:, 0].tolist()} - {*map(float, range(ROWS))}
    assert all(value == pytest.approx(np.mean(others), rel=0.1) for value in filled)


@pytest.mark.parametrize("infinite", ["inf", "Infinity", "-inf", float("inf")])
@pytest.mark.parametrize("role", ["label", "who", "a"])
@every_reader
def test_an_infinite_number_is_none_beside_numbers(reader, role, infinite, tmp_path):
    numbers = [1, 1, 0, 0] * (ROWS // 4)
    own: dict[str, Any] = {"owner": "who", "features": ("a",)}
    cells = [*map(type(infinite), numbers[:-1]), infinite]
    frame = table(**{"label": numbers, "who": numbers, role: cells})
    line = refusal(reader(tmp_path, frame, **own), tmp_path)
    assert f"{role} in 1 of {ROWS} rows" in line
    known, *_ = loaded(reader(tmp_path, frame, **own, missing="drop"), tmp_path)
    assert known.names == ()
    # Beside texts it is one.
    names = ["one", "one", "two", "two"] * (ROWS // 4)
    names[:2] = [str(infinite)] * 2
    frame = table(**{"label": numbers, "who": numbers, role: names})
    known, *_ = loaded(reader(tmp_path, frame, **own), tmp_path)
    assert (str(infinite) in known.names) is (role == "label")


@pytest.mark.parametrize("missing", ["refuse", "drop", "mean"])
def test_a_column_without_any_value_is_told(missing, tmp_path):
    frame = table(b=["NA"] * ROWS)
    own = {"missing": missing, "standardise": "pooled"}
    dataset = as_csv(tmp_path, frame, features=("a", "b"), **own)
    assert "no mean" in refusal(dataset, tmp_path) or missing != "mean"


def test_a_name_may_be_what_stands_for_no_value_elsewhere(tmp_path):
    frame = table(label=["None", "some"] * (ROWS // 2))
    known, *_ = loaded(as_csv(tmp_path, frame, na_values=()), tmp_path)
    assert known.names == ("None", "some")


@pytest.mark.parametrize(
    "kind", [int, float, str, "{}.00".format, "{}e0".format, Decimal]
)
@every_reader
def test_a_number_stands_for_no_value_however_it_is_written(reader, kind, tmp_path):
    frame = table(a=[*map(kind, [-999, *range(1, ROWS)])])
    line = refusal(reader(tmp_path, frame, na_values=("-999",)), tmp_path)
    assert f"a in 1 of {ROWS} rows" in line


@pytest.mark.parametrize(
    "cells",
    [
        *({"y": [0, 1, np.nan]}, {"owner": [0, 1, np.nan]}),
        *({"x": [[1.0], [2], [np.nan]]}, {"x": [[1.0], [2], [np.inf]]}),
        {"time": np.array(["2024"] * 2 + ["NaT"], "M8[D]")},
        *({"y": ["cat", "dog", each]} for each in ("?", "", " NaN ", "null")),
        *({"y": np.array([b"cat", b"dog", b"NA"])}, {"owner": ["u", "v", "None"]}),
    ],
)
def test_arrays_lack_no_value(cells, tmp_path):
    arrays = {"x": [[1.0], [2], [3]], "y": [0, 1, 0], **cells}
    arrays = {name: np.concatenate([array] * 4) for name, array in arrays.items()}
    np.savez(tmp_path / "data.npz", **arrays)
    assert re.search("row 3 has .*no value; leave it out", refusal(Npz(), tmp_path))


@pytest.mark.parametrize("missing", ["refuse", "drop", "mean"])
def test_no_remedy_is_what_is_set_already(missing, tmp_path):
    lacking = ROWS if missing == "drop" else 2
    frame = table(label=["NA"] * lacking + ["x", "y"] * ((ROWS - lacking) // 2))
    line = refusal(as_csv(tmp_path, frame, missing=missing), tmp_path)
    assert ("missing=drop" in line) == (missing != "drop")
    assert ("or mean" in line) == (missing == "refuse")
    for decimal in ("point", "comma"):
        cells = [f"{row},5 kg" for row in range(ROWS)]
        dataset = as_csv(tmp_path, table(b=cells), decimal=decimal, features=("b",))
        said = "decimal=comma" in refusal(dataset, tmp_path)
        assert said == (decimal == "point")
