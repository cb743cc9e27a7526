"""The examples of docs/examples work as their pages say."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import Runner

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def load(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the module of an example, which runs find as a user's own part."""
    pytest.importorskip(package)
    monkeypatch.syspath_prepend(str(EXAMPLES / name))
    monkeypatch.setenv("CFL_PLUGINS", name)
    return import_module(name)


# Drift by losses -----------------------------------------------------------------


@pytest.fixture
def detecting(monkeypatch: pytest.MonkeyPatch) -> Any:
    return load("detecting", "river", monkeypatch)


CLIENTS = pytest.mark.parametrize("client", ["AdwinClient", "KswinClient"])


@CLIENTS
@pytest.mark.parametrize(
    ("later", "expected"), [(2.0, True), (1.0, False), (0.2, False)]
)
def test_only_losses_that_rise_are_drift(
    client: str, later: float, expected: bool, detecting: Any
) -> None:
    rng = np.random.default_rng(0)
    losses = rng.normal(1.0, 0.1, 600)
    losses[300:] += later - 1
    detector = getattr(detecting, client).detector()
    assert detecting.rises(detector, losses, 300) is expected


def test_a_drift_found_before_is_not_found_again(detecting: Any) -> None:
    losses = np.concatenate([np.zeros(300), np.ones(300), np.ones(50)])
    assert not detecting.rises(detecting.AdwinClient.detector(), losses, 600)


@CLIENTS
def test_a_detected_drift_is_reported_once(
    client: str, detecting: Any, run_small: Runner
) -> None:
    path = f"strategy.client=detecting.{client}"
    asked = [path, "strategy=fielding", "drift.rounds=[7]", "rounds=9"]
    run = run_small(*asked)
    drifted = [row["drifted"] for row in run.rounds]
    assert drifted[5] >= 6, "what arrives next is looked at in the round before"
    assert sum(drifted) == drifted[5]
    run_small(*asked[:-1], "rounds=6", folder="again")
    resumed = run_small(*asked, "resume=true", folder="again")
    assert resumed.numbers == run.numbers
