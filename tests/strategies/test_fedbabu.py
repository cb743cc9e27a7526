from __future__ import annotations

from pathlib import Path

import pytest

from cfl_flower.errors import ConfigError
from tests.conftest import Runner

BABU = ["strategy=fedbabu", "model=mlp", "model.hidden=16", "drift.rounds=[]"]


def test_extractors_travel_and_nothing_is_kept(run_small: Runner) -> None:
    run = run_small(*BABU)
    size = 6 * 4 * (64 * 16 + 16)
    assert {(r["bytes_up"], r["bytes_down"]) for r in run.rounds} == {(size, size)}
    assert not list(Path(run.folder, "clients").glob("*"))


def test_a_network_without_an_extractor_is_refused(run_small: Runner) -> None:
    with pytest.raises(ConfigError, match=r"model=mclr has no extractor.*model=mlp"):
        run_small("strategy=fedbabu")
