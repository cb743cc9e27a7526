"""Inputs of one scale are read as they are; of two, a line says so or refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfl_flower.data.datasets.npz import Npz
from cfl_flower.data.datasets.own import Folder
from cfl_flower.data.datasets.tables import Csv
from cfl_flower.errors import ConfigError

PIXELS = np.linspace(0, 255, 20 * 1 * 8 * 6).reshape(20, 1, 8, 6)
LABELS = np.arange(20) % 2

FORMS: dict[str, Any] = {
    "bytes": PIXELS.astype(np.uint8),
    "integers": PIXELS.astype(np.int64),
    "numbers": PIXELS.astype(np.float32),
    "shares": PIXELS / 255,
    "signed": PIXELS / 127 - 1,
    "truncated": (PIXELS / 255).astype(np.uint8),
    "flat": PIXELS.reshape(20, 48).astype(np.uint8),
    "flat shares": PIXELS.reshape(20, 48) / 255,
}
REFUSED = "bytes (uint8), read as 0 to 1, from 0 to "
TOLD = "save all in one type and scale, if they are alike"


def parts(folder: Path, train: Any, test: Any) -> Npz:
    np.savez(
        folder / "data.npz", x_train=train, y_train=LABELS, x_test=test, y_test=LABELS
    )
    return Npz()


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("train", "test", "outcome"),
    [
        ("bytes", "numbers", "refused"),
        ("bytes", "integers", "refused"),
        ("bytes", "signed", "refused"),
        ("shares", "integers", "told"),
        ("shares", "numbers", "told"),
        ("bytes", "truncated", "told"),
        ("shares", "truncated", "told"),
        ("flat", "flat shares", "told"),
        ("bytes", "bytes", ""),
        ("bytes", "shares", ""),
        ("integers", "numbers", ""),
        ("signed", "shares", ""),
        ("flat", "flat", ""),
    ],
)
def test_two_scales_in_a_file_are_refused_or_told(
    train: str, test: str, outcome: str, turned: bool, tmp_path: Path
) -> None:
    both = (test, train) if turned else (train, test)
    dataset = parts(tmp_path, *(FORMS[name] for name in both))
    if outcome == "refused":
        with pytest.raises(ConfigError) as error:
            dataset.load(str(tmp_path))
        line = str(error.value)
        assert "\n" not in line
        for words in (
            "data.npz: its ",
            "its train part has",
            REFUSED,
            "its test part",
            "other numbers",
        ):
            assert words in line
        return
    dataset.load(str(tmp_path))
    told = [line for line in dataset.notes(str(tmp_path)) if TOLD in line]
    assert len(told) == (outcome == "told")


def test_shapes_that_differ_by_their_type_name_both(tmp_path: Path) -> None:
    dataset = parts(tmp_path, FORMS["bytes"][:, 0], FORMS["shares"][:, 0])
    words = r"\(1, 8, 6\) for training, .* \(8, 6\) for testing in uint8 and float32"
    with pytest.raises(ConfigError, match=words):
        dataset.load(str(tmp_path))


def test_two_scales_of_two_tables_are_told(tmp_path: Path) -> None:
    for name, top in (("train", 1), ("test", 255)):
        rows = [f"{top * row / 19},{row % 2}" for row in range(20)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,label", *rows]))
    dataset = Csv(file="train.csv", test_file="test.csv")
    (line,) = dataset.notes(str(tmp_path))
    assert TOLD in line
    assert "from 0 to 255" in line


@pytest.mark.parametrize(
    ("names", "outcome"),
    [
        (("bytes", "numbers"), "refused"),
        (("bytes", "shares", "integers"), "refused"),
        (("shares", "numbers"), "told"),
        (("bytes", "shares"), ""),
        (("integers", "numbers"), ""),
    ],
)
def test_two_scales_on_a_device_are_refused_or_told(
    names: tuple[str, ...],
    outcome: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name in names:
        np.savez(tmp_path / f"{name}.npz", x=FORMS[name], y=LABELS)
    dataset = Folder(shape=(1, 8, 6), classes=2)
    if outcome == "refused":
        with pytest.raises(ConfigError, match="read as 0 to 1") as error:
            dataset.load(str(tmp_path))
        assert f"{names[-1]}.npz has other numbers" in str(error.value)
    else:
        dataset.load(str(tmp_path))
        assert (TOLD in caplog.text) == (outcome == "told")


@pytest.mark.parametrize("top", [1e39, -1e300, 3.5e38])
def test_numbers_beyond_float32_are_named(
    top: float, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    x = PIXELS / 255
    x[3, 0, 0, 0] = top
    folder = tmp_path / "samples"
    folder.mkdir()
    np.savez(folder / "data.npz", x=x, y=LABELS)
    for dataset in (Npz(), Folder(shape=(1, 8, 6), classes=2)):
        with pytest.raises(ConfigError, match="too large for float32") as error:
            dataset.load(str(folder))
        assert f"{top:g}" in str(error.value)
        assert not recwarn
