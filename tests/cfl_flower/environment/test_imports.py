from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cfl_flower.environment.imports import import_module

NAME = "a_module_of_test_imports"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop(NAME, None)


def test_the_search_is_paused_during_an_import_only(folder: Path) -> None:
    (folder / f"{NAME}.py").write_text("import gc\nenabled = gc.isenabled()\n")
    found = import_module(NAME)
    assert not found.enabled
    assert import_module(NAME) is found
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_a_failed_import_ends_the_pause(folder: Path) -> None:
    (folder / f"{NAME}.py").write_text("raise ValueError('no')\n")
    with pytest.raises(ValueError, match="no"):
        import_module(NAME)
    assert gc.isenabled()


def test_a_pause_of_the_caller_goes_on(folder: Path) -> None:
    (folder / f"{NAME}.py").write_text("")
    gc.disable()
    try:
        import_module(NAME)
        assert not gc.isenabled()
    finally:
        gc.enable()
