"""Numbers and times that people bring are read as they are meant, or told."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfl_flower.data.datasets.npz import Npz
from cfl_flower.data.datasets.tables import Csv, Parquet
from cfl_flower.errors import ConfigError
from tests.cfl_flower.data.datasets.brought import (
    READERS,
    ROWS,
    as_csv,
    every_reader,
    loaded,
    refusal,
    table,
)


@pytest.mark.parametrize(
    "form",
    [
        *("{},5", "0,{}", "1,{}34", "1.{}34,5", "1 {}34", "1'{}34", "{}%", "{} %"),
        *("{} kg", "{}kg", "{},5 km/h", "$ {}", "€{}", "({})", "-{},5", "−{}"),
        *("<{}", "{} °C", "1,{}34,567.8", "{}e3 m²"),
    ],
)
@every_reader
def test_numbers_that_only_people_read_are_told(reader, form, tmp_path):
    frame = table(b=[form.format(2 + row % 5) for row in range(ROWS)])
    line = refusal(reader(tmp_path, frame, features=("a", "b")), tmp_path)
    assert "column b has numbers such as" in line
    csv = reader in READERS[:3]
    assert ("dataset.decimal=comma" in line) == (csv and "," in form)


@pytest.mark.parametrize(
    "texts", [["1st", "2nd"], ["7-9", "9-11"], ["3.1.2", "3.1.3"], ["a1", "a2"]]
)
def test_other_texts_with_digits_are_categories(texts, tmp_path):
    frame = table(b=texts * (ROWS // 2))
    known, *_ = loaded(as_csv(tmp_path, frame, features=("b",)), tmp_path)
    assert known.shape == (2,)


@pytest.mark.parametrize(
    ("cells", "told"),
    [
        *((["10", "11"], True), (["01", None], True), (["1.5", "2"], False)),
        *(([10, None], False), (["A10", "A11"], False), ([True, False], False)),
    ],
)
@every_reader
def test_texts_that_are_numbers_are_read_as_such_and_told(
    reader, cells, told, tmp_path
):
    frame = table(b=cells * (ROWS // 2))
    dataset = reader(tmp_path, frame, features=("a", "b"), missing="mean")
    known, *_ = loaded(dataset, tmp_path)
    assert known.shape == (3 if "A10" in cells else 2,)
    notes = [each for each in dataset.notes(str(tmp_path)) if "codes" in each]
    # The texts of a csv have no types.
    typed = reader in READERS[3:]
    assert ["column b: texts that are numbers" in n for n in notes] == [
        True for _ in range(told and typed)
    ]


@pytest.mark.parametrize(
    ("texts", "told"),
    [
        *((["2024-01-05", "2024-11-30"], True), (["5.1.2024", "30.11.2024"], True)),
        *((["1/5/24", "11/30/24"], True), (["8:15", "23:59:59"], True)),
        *((["2024-01-05T08:15", "2024-1-6 9:00"], True), (["08:15", "late"], False)),
        *((["5-10", "10-20"], False), (["v1.2.3", "v1.3.4"], False)),
        *((["2024/01/05", "2024/01/06"], True), (["5:00 pm", "6:30 PM"], True)),
        *((["10.0.0.1", "10.0.0.2"], False), (["1.10.3", "1.10.4"], False)),
        *((["16:10 wide", "4:3"], False), (["1/2", "3/4"], False)),
        (["ant", "bee"], False),
    ],
)
@every_reader
def test_dates_and_times_as_categories_are_told(reader, texts, told, tmp_path):
    frame = table(b=texts * (ROWS // 2))
    dataset = reader(tmp_path, frame, features=("a", "b"))
    known, *_ = loaded(dataset, tmp_path)
    assert known.shape == (3,)
    notes = [each for each in dataset.notes(str(tmp_path)) if "dates" in each]
    said = "column b: its 2 dates or times are categories"
    assert [said in each for each in notes] == [True] * told


@pytest.mark.parametrize(("classes", "told"), [("xyz", True), ("xy", False)])
def test_classes_in_the_test_set_alone_are_told(classes, told, tmp_path):
    table().to_csv(tmp_path / "train.csv", index=False)
    tested = table(label=[*classes] * (ROWS // len(classes)))
    tested.to_csv(tmp_path / "test.csv", index=False)
    dataset = Csv(file="train.csv", test_file="test.csv", features=("a",))
    loaded(dataset, tmp_path)
    notes = [each for each in dataset.notes(str(tmp_path)) if "classes in" in each]
    said = "classes in the test set without training samples: z (8 of 24 samples)"
    assert [said in each for each in notes] == [True] * told


@pytest.mark.parametrize("rest", ["1e300", None])
@every_reader
def test_a_column_of_numbers_beyond_float32_is_told_as_such(reader, rest, tmp_path):
    frame = table(b=["1e300", "1e300", rest, rest] * (ROWS // 4))
    for cells in (frame, frame.astype({"b": float})):
        dataset = reader(tmp_path, cells, features=("b",), missing="mean")
        assert "has b=1e+300, which is too large for float32" in refusal(
            dataset, tmp_path
        ).replace("1e300", "1e+300")


@pytest.mark.parametrize("numbers", [["true", "false"], ["1", "2"], ["1.5", ""]])
@pytest.mark.parametrize("first", ["train", "test"])
def test_a_column_of_numbers_in_one_file_and_texts_in_another(numbers, first, tmp_path):
    kinds = [numbers, ["true", "maybe"]]
    files = ["train.csv", "test.csv"] if first == "train" else ["test.csv", "train.csv"]
    for file, cells in zip(files, kinds, strict=True):
        frame = table(b=cells * (ROWS // 2))
        frame.to_csv(tmp_path / file, index=False)
    own: dict[str, Any] = {"features": ("a", "b"), "missing": "mean"}
    line = refusal(Csv(file="train.csv", test_file="test.csv", **own), tmp_path)
    assert f"{files[1]}: row 1 has b=true, which is no number" in line
    assert f"but {files[0]} has numbers alone" in line


@pytest.mark.parametrize("typed", ["object", "boolean"])
@pytest.mark.parametrize("gaps", [(), (0,), (1, 6), (0, 2, 5), range(2, ROWS)])
@every_reader
def test_true_and_false_are_1_and_0_whatever_lacks(reader, gaps, typed, tmp_path):
    truths = [None if row in gaps else row % 3 == 0 for row in range(ROWS)]

    def inputs(dtype: str) -> list[list[float]]:
        frame = table().assign(b=pd.Series(truths, dtype=dtype))
        own = {"features": ("a", "b"), "missing": "mean", "test_fraction": 0.1}
        dataset = reader(tmp_path, frame, standardise=False, **own)
        _, train, test = loaded(dataset, tmp_path)
        return [*train.x.tolist(), *test.x.tolist()]

    assert inputs(typed) == inputs("float")


@every_reader
def test_a_column_that_is_empty_has_no_mean(reader, tmp_path):
    dataset = reader(tmp_path, table(b=[None] * ROWS), missing="mean", owner="who")
    dataset = replace(dataset, standardise="pooled")
    assert "no training sample has input 1" in refusal(dataset, tmp_path)


@pytest.mark.parametrize(
    "texts",
    [
        *(("1,234", "(900)"), ("1,234", "900−"), ("$5", "-$7"), ("$5", "$-7")),
        *(("1 year", "2 years"), ('="0"', '="1"'), ("(3)", "4-"), ("3 kg", "-4 kg")),
    ],
)
def test_numbers_are_told_whatever_their_signs_and_plurals(texts, tmp_path):
    table(b=[*texts] * (ROWS // 2)).to_parquet(tmp_path / "data.parquet")
    line = refusal(Parquet(features=("a", "b")), tmp_path)
    assert "column b has numbers such as" in line


def test_beside_decimal_commas_the_text_is_what_is_wrong(tmp_path):
    (tmp_path / "data.csv").write_text("a;label\n-12,5;x\n2;y\nabc;x\n2,5;y\n")
    dataset = Csv(separator="semicolon", decimal="comma")
    assert "row 3 has a=abc" in refusal(dataset, tmp_path)
    for number in ("1.983", "12.345.678", "1.500,25"):
        text = f"a;b;label\n1,5;{number};x\n2;7;y\n2,5;8;x\n"
        (tmp_path / "data.csv").write_text(text)
        assert f"{number}, which has a mark between thousands" in refusal(
            dataset, tmp_path
        )
    # Names are no numbers, nor is what nobody asked for.
    lines = ["a;b;who;label", *["1,5;192.168.1.1;1.234;2.500", "2,5;1.234;7;9"] * 4]
    (tmp_path / "data.csv").write_text("\n".join(lines))
    named = replace(dataset, features=("a",), owner="who")
    assert loaded(named, tmp_path)[0].shape == (1,)
    (tmp_path / "data.csv").write_text("a;label\n1,5;x\nNA;y\n2,5;x\n2,5;y\n")
    dataset = Csv(separator="semicolon", decimal="comma", missing="mean")
    assert loaded(dataset, tmp_path)[0].shape == (1,)


@pytest.mark.parametrize(
    ("written", "form", "meant"),
    [
        ("31.01.2024 10:30", "%d.%m.%Y %H:%M", "2024-01-31T10:30"),
        ("01/31/2024", "%m/%d/%Y", "2024-01-31"),
        ("31 Jan 24", "%d %b %y", "2024-01-31"),
        ("20240131", "%Y%m%d", "2024-01-31"),
        ("01022024", "%d%m%Y", "2024-02-01"),
        ("202401", "%Y%m", "2024-01-01"),
        ("20240131103000", "%Y%m%d%H%M%S", "2024-01-31T10:30"),
    ],
)
@every_reader
def test_dates_are_read_in_the_format_that_is_named(
    reader, written, form, meant, tmp_path
):
    frame = table(when=[written] * ROWS)
    line = refusal(reader(tmp_path, frame, features=("a",), time="when"), tmp_path)
    assert "row 1 has when=" in line
    assert "dataset.time_format" in line
    own: dict[str, Any] = {"features": ("a",), "time": "when", "time_format": form}
    _, train, test = loaded(reader(tmp_path, frame, **own), tmp_path)
    wanted = np.datetime64(meant, "us").astype(np.int64)
    assert {*train.times, *test.times} == {wanted}


@pytest.mark.parametrize(
    ("cells", "form", "words"),
    [
        (["2024-01-31", "2024-02-30"], None, "row 2 has when=2024-02-30, .* ISO8601"),
        (["20240131", "20240230"], "%Y%m%d", "row 2 has when=20240230, .* %Y%m%d"),
        (["2024-01-31", "7"], None, "row 1 has when=2024-01-31, .* no integer"),
        (["7", "7.5"], None, "row 2 has when=7.5, .* no integer"),
        (["7", "9" * 20], None, "row 2 has when=9+, .* no integer"),
        (["2024-01-31T10:00Z", "2024-01-31T10:00"], None, "row 2 .* no time zone"),
        (["31.01.2024", "1.2.2024"], "DD.MM.YYYY", "no date in the format DD"),
        (["31.01.2024", "1.2.2024"], "%Q", "time_format=%Q cannot be read"),
    ],
)
def test_times_of_another_kind_are_told_with_their_row(cells, form, words, tmp_path):
    frame = table(when=cells * (ROWS // 2))
    dataset = as_csv(tmp_path, frame, features=("a",), time="when", time_format=form)
    with pytest.raises(ConfigError, match=words):
        loaded(dataset, tmp_path)


@pytest.mark.parametrize(
    ("cells", "form", "times"),
    [
        (["20240131", "20240230"], "integer", {20240131, 20240230}),
        (["1704067200000000001", "7"], None, {1704067200000000001, 7}),
        (["2016", "2017"], None, {2016, 2017}),
        (["100", "20240131"], None, {100, 20240131}),
        (["2024-01-31T10:00Z", "2024-01-31T12:00+02:00"], None, {1706695200 * 10**6}),
    ],
)
def test_integers_stay_integers(cells, form, times, tmp_path):
    frame = table(when=cells * (ROWS // 2))
    dataset = as_csv(tmp_path, frame, features=("a",), time="when", time_format=form)
    _, train, test = loaded(dataset, tmp_path)
    assert {*train.times, *test.times} == times


def test_times_of_arrays_may_be_dates(tmp_path):
    days = np.array(["1970-01-01", "1970-01-02"] * 4, "datetime64[D]")
    np.savez(tmp_path / "data.npz", x=np.ones((8, 1)), y=[0, 0, 1, 1] * 2, time=days)
    _, train, test = loaded(Npz(), tmp_path)
    assert {*train.times, *test.times} == {0, 86_400 * 10**6}
    words = ["now"] * 8
    np.savez(tmp_path / "data.npz", x=np.ones((8, 1)), y=[0, 0, 1, 1] * 2, time=words)
    assert "times are <U3, neither integers nor datetime64" in refusal(Npz(), tmp_path)


@pytest.mark.parametrize(
    "own", [{"standardise": "pooled"}, {"normalise": [[1.7e9 + 50], [29]]}]
)
@pytest.mark.parametrize("kind", ["table", "arrays"])
def test_seconds_since_1970_keep_their_digits_until_they_are_scaled(
    kind, own, tmp_path
):
    seconds = np.tile(np.arange(100), 2)
    dataset: Any = Npz(**own)
    np.savez(tmp_path / "data.npz", x=1.7e9 + seconds[:, None], y=seconds % 2)
    if kind == "table":
        frame = pd.DataFrame({"t": 1700000000 + seconds, "label": seconds % 2})
        frame.to_csv(tmp_path / "data.csv", index=False)
        dataset = Csv(**{"standardise": False, **own})
    pools = dataset.load(str(tmp_path))
    found = np.unique(np.concatenate([pool.x.numpy() for pool in pools]))
    assert len(found) == 100
    assert np.diff(found) == pytest.approx(np.full(99, 1 / 29), rel=0.05)
