"""Inputs of one scale are read as they are; bytes beside other numbers are refused."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfl_flower.data.datasets.npz import Npz
from cfl_flower.data.datasets.own import Folder
from cfl_flower.errors import ConfigError

PIXELS = np.linspace(0, 255, 20 * 1 * 8 * 6).reshape(20, 1, 8, 6)
LABELS = np.arange(20) % 2

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
    words = r"\(1, 8, 6\) for training, .* \(8, 6\) for testing in uint8 and float32"
    with pytest.raises(ConfigError, match=words):
        Npz().load(str(tmp_path))


@pytest.mark.parametrize("top", [1e39, -1e300, 3.5e38])
@pytest.mark.parametrize("dataset", [Npz(), Folder(shape=(1, 8, 6), classes=2)])
def test_numbers_beyond_float32_are_named(top, dataset, tmp_path, recwarn):
    x = PIXELS / 255
    x[3, 0, 0, 0] = top
    np.savez(tmp_path / "data.npz", x=x, y=LABELS)
    with pytest.raises(ConfigError, match=re.escape(f"{top:g} are too large")):
        dataset.load(str(tmp_path))
    assert not recwarn
