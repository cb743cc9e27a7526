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


def test_fine_tuning_is_for_the_test_alone(run_small: Runner) -> None:
    tuned = run_small(*BABU, "strategy.fine_tuning_rate=0.1", folder="tuned")
    plain = run_small(*BABU, "strategy.fine_tuning=0", folder="plain")
    # Clients hold mostly a third of the labels: a tuned classifier is far better.
    assert tuned.rounds[-1]["accuracy"] > plain.rounds[-1]["accuracy"]


def test_a_network_without_an_extractor_is_refused(run_small: Runner) -> None:
    with pytest.raises(ConfigError, match=r"model=mclr has no extractor.*model=mlp"):
        run_small("strategy=fedbabu")
