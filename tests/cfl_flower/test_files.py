from __future__ import annotations

import os
from pathlib import Path

import pytest

from cfl_flower.files import write_atomically


def test_a_file_is_replaced_in_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def killed(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new and longer")
    assert path.read_bytes() == b"old"
    monkeypatch.undo()
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
