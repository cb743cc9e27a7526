"""Inputs of one scale are read as they are; what is far off that scale is told."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cfl_flower.data.datasets.npz import Npz
from cfl_flower.data.datasets.own import Folder
from cfl_flower.data.datasets.tables import Csv
from cfl_flower.data.reading.pool import load_pools
from cfl_flower.errors import ConfigError
from tests.cfl_flower.data.pools import times

PIXELS = np.linspace(0, 255, 20 * 1 * 8 * 6).reshape(20, 1, 8, 6)
LABELS = np.arange(20) % 2

FEW: dict[str, Any] = {"x_test": np.zeros((2, 2)), "y_test": [0, 1]}

WIDE: dict[str, Any] = {"x_test": np.zeros((2, 9)), "y_test": [0, 1]}

FORMS: dict[str, Any] = {
    "bytes": PIXELS.astype(np.uint8),
    "integers": PIXELS.astype(np.int64),
    "shares": PIXELS / 255,
    "signed": PIXELS / 127 - 1,
    "near": PIXELS / 180 - 0.3,
}


def save_parts(folder: Path, **parts: str) -> Npz:
    x = {f"x_{part}": FORMS[form] for part, form in parts.items()}
    np.savez(folder / "data.npz", **x, y_train=LABELS, y_test=LABELS)
    return Npz()


def save_files(folder: Path, **parts: str) -> Folder:
    for name, form in parts.items():
        np.savez(folder / f"{name}.npz", x=FORMS[form], y=LABELS)
    return Folder(shape=(1, 8, 6), classes=2)


@pytest.mark.parametrize("save", [save_parts, save_files])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("one", "two", "refused"),
    [
        ("bytes", "integers", True),
        ("bytes", "signed", True),
        ("bytes", "bytes", False),
        ("bytes", "shares", False),
        ("bytes", "near", False),
        ("integers", "signed", False),
    ],
)
def test_bytes_beside_numbers_of_another_scale_are_refused(
    one, two, refused, turned, save, tmp_path
):
    train, test = (two, one) if turned else (one, two)
    dataset = save(tmp_path, train=train, test=test)
    if not refused:
        dataset.load(str(tmp_path))
        return
    with pytest.raises(ConfigError, match=r"bytes \(uint8\), read as 0 to 1") as error:
        dataset.load(str(tmp_path))
    least = FORMS[two].min()
    assert f"other numbers from {least:g} to" in str(error.value)


def test_shapes_that_differ_by_their_type_name_both(tmp_path):
    x = {"x_train": FORMS["bytes"][:, 0], "x_test": FORMS["shares"][:, 0]}
    np.savez(tmp_path / "data.npz", **x, y_train=LABELS, y_test=LABELS)
    words = r"\(1, 8, 6\) for training, .* \(8, 6\) for testing in uint8 and float64"
    with pytest.raises(ConfigError, match=words):
        Npz().load(str(tmp_path))


@pytest.mark.parametrize("top", [1e39, -1e300, 3.5e38])
@pytest.mark.parametrize("dataset", [Npz(), Folder(shape=(1, 8, 6), classes=2)])
def test_numbers_beyond_float32_are_named(top, dataset, tmp_path, recwarn):
    x = PIXELS / 255
    x[3, 0, 0, 0] = top
    np.savez(tmp_path / "data.npz", x=x, y=LABELS)
    with pytest.raises(ConfigError, match=re.escape(f"{top:g}, too large")):
        dataset.load(str(tmp_path))
    assert not recwarn


@pytest.mark.parametrize(
    ("value", "count", "told"),
    [
        (1e30, 1, "has 1e+30 in 1 of 200 samples"),
        (-9999.0, 20, "has -9999 in 20 of 200 samples"),
        (-9999.0, 49, "in 49 of"),
        (999.0, 3, "in 3 of"),
        (100.0, 3, ""),
        (np.nan, 3, ""),
    ],
)
@pytest.mark.parametrize("standardise", ["clients", "pooled", False])
@pytest.mark.parametrize("kind", ["table", "arrays"])
def test_a_number_that_sets_the_scale_by_itself_is_told(
    kind, standardise, value, count, told, tmp_path
):
    rng = np.random.default_rng(0)
    rows = {"age": rng.normal(40, 8, 200), "flag": np.arange(200.0) % 50 == 0}
    ages = np.where(np.arange(200) < count, value, rows["age"])
    labels = np.arange(200) % 2
    dataset: Any = Npz(standardise=standardise)
    if kind == "arrays":
        x = np.stack([np.nan_to_num(ages, nan=40, posinf=40), rows["flag"]], axis=1)
        np.savez(tmp_path / "data.npz", x_train=x, y_train=labels, **FEW)
    else:
        frame = pd.DataFrame({"age": ages, "flag": rows["flag"], "label": labels})
        frame.to_csv(tmp_path / "data.csv", index=False)
        frame[-2:].to_csv(tmp_path / "test.csv", index=False)
        dataset = Csv(test_file="test.csv", standardise=standardise, missing="drop")
    notes = [each for each in dataset.notes(str(tmp_path)) if "sets the scale" in each]
    assert len(notes) == bool(told and standardise)
    name = "age" if kind == "table" else "0"
    assert all(f": input {name} has" in each and told in each for each in notes)


def test_of_many_numbers_that_set_scales_some_are_told_and_bytes_have_bounds(tmp_path):
    x = np.random.default_rng(0).normal(size=(100, 9))
    x[4, :8] = 1e9
    np.savez(tmp_path / "data.npz", x_train=x, y_train=LABELS.repeat(5), **WIDE)
    notes = Npz(standardise="clients").notes(str(tmp_path))
    assert len(notes) == 6
    assert notes[-1].endswith("3 other inputs have such numbers")
    pixels = np.where(np.arange(900).reshape(100, 9) % 7, 1, 255).astype(np.uint8)
    np.savez(tmp_path / "data.npz", x=pixels, y=LABELS.repeat(5))
    assert Npz(standardise="clients").notes(str(tmp_path)) == []


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e9 + 0.1, -7e-5])
@pytest.mark.parametrize("periods", [1, 2])
def test_what_is_constant_at_first_is_shifted_and_not_scaled(value, periods, tmp_path):
    rows = [[value, n % 7, n % 2, n] for n in range(195)]
    more = [[value + 1, n % 7, n % 2, n + (periods - 1) * 1e3] for n in range(195)]
    for name, each in {"train": rows, "test": more}.items():
        frame = pd.DataFrame(each, columns=["k", "x", "label", "t"]).astype({"t": int})
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    files = {"file": "train.csv", "test_file": "test.csv", "time": "t"}
    dataset = Csv(**files, standardise="pooled", periods=periods)
    _, test = dataset.load(str(tmp_path))
    assert test.x[:, 0].numpy() == pytest.approx(np.ones(195), rel=1e-5)


@pytest.mark.parametrize("standardise", ["pooled", False])
def test_a_missing_number_has_the_mean_of_the_first_period(standardise, tmp_path):
    lines = [f"{n if n % 5 else ''},{n % 2},{n}" for n in range(100)]
    (tmp_path / "data.csv").write_text("\n".join(["x,label,t", *lines]))
    own: Any = {"time": "t", "periods": 4, "standardise": standardise}
    train, _ = Csv(missing="mean", **own).load(str(tmp_path))
    given = np.array([n for n in times(train) if n % 5 and n <= 24])
    scale = given.std() if standardise else 1
    filled = train.x[times(train) % 5 == 0, 0].numpy() * scale
    expected = 0.0 if standardise else given.mean()
    assert filled == pytest.approx(np.full(len(filled), expected), abs=1e-4)


def test_bytes_of_any_shape_are_read_as_0_to_1(tmp_path):
    for shape in ((20, 6), (20, 4, 4), (20, 4, 4, 3), (20, 2, 3, 4, 5)):
        np.savez(tmp_path / "data.npz", x=np.full(shape, 51, np.uint8), y=LABELS)
        for pool in Npz().load(str(tmp_path)):
            assert pool.inputs(slice(None)).numpy() == pytest.approx(0.2)


def test_numbers_wait_in_double_precision_for_the_sums_of_all_clients(tmp_path):
    since = [None, *range(1_700_000_000, 1_700_000_059)]
    frame = pd.DataFrame({"since": since, "label": [0, 1] * 30})
    frame.to_csv(tmp_path / "data.csv", index=False)
    dataset = Csv(standardise="clients", missing="mean", shape=(1,), classes=2)
    held = [pool.x.ravel().tolist() for pool in load_pools(dataset, str(tmp_path))]
    assert len({*held[0], *held[1]}) == 60
