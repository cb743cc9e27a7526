from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from cfl_flower.errors import ConfigError
from clients.base import Samples
from clients.families.detecting import (
    WINDOW,
    AdwinClient,
    DetectingClient,
    KswinClient,
    rises,
)
from tests.clients.conftest import MakeContext
from tests.conftest import Runner

CLIENTS = [AdwinClient, KswinClient]


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(
    ("later", "expected"), [(2.0, True), (1.0, False), (0.2, False)]
)
def test_only_losses_that_rise_are_drift(
    client: type[DetectingClient], later: float, expected: bool
) -> None:
    pytest.importorskip("river")
    rng = np.random.default_rng(0)
    losses = rng.normal(1.0, 0.1, 600)
    losses[300:] += later - 1
    assert rises(client.detector(), losses, 300) is expected


def test_a_drift_found_before_is_not_found_again() -> None:
    pytest.importorskip("river")
    losses = np.concatenate([np.zeros(300), np.ones(300), np.ones(50)])
    assert not rises(AdwinClient.detector(), losses, 600)


@pytest.mark.parametrize("client", CLIENTS)
def test_a_detected_drift_is_reported_once(
    client: type[DetectingClient], run_small: Runner
) -> None:
    pytest.importorskip("river")
    path = f"strategy.client=clients.families.detecting.{client.__name__}"
    asked = [path, "strategy=fielding", "drift.rounds=[7]", "rounds=9"]
    run = run_small(*asked)
    drifted = [row["drifted"] for row in run.rounds]
    assert drifted[5] >= 6, "what arrives next is looked at in the round before"
    assert sum(drifted) == drifted[5]
    again = run_small(*asked[:-1], "rounds=6", folder="again")
    assert again.numbers == [row for row in run.numbers if row["round"] <= 6]
    resumed = run_small(*asked, "resume=true", folder="again")
    assert resumed.numbers == run.numbers


class Always:
    """A detector that finds drift in every loss."""

    drift_detected = True

    def update(self, loss: float) -> None:
        """Look at nothing."""


class AlwaysClient(DetectingClient):
    """A client of many equal samples, which are of another label from round 3 on."""

    detector = Always
    count = 0

    def samples(self, round: int) -> Samples:
        x = torch.ones(self.count, 1, 8, 8)
        model = self.context.model.load(self.context.initial())
        order = model.module(x[:1]).argsort()[0]
        return x, order[-1 if round < 3 else 0].expand(self.count)


@pytest.mark.parametrize("samples", [1, 100, 1999, 2000, 5000])
def test_a_drift_is_found_with_any_number_of_samples(
    samples: int, make_context: MakeContext
) -> None:
    config = {"representation": "label_histogram", "held": "0"}

    def ask(round: int) -> dict[str, Any]:
        client = AlwaysClient(make_context(round))
        client.count = samples
        return client.report(config, round + 1, [client.context.initial()])

    assert not ask(1), "there is nothing to compare with"
    assert "representation" in ask(2), "the losses of round 3 are larger"
    assert not ask(3), "they are the same as those that were reported"
    kept = make_context(9).state.part("losses").load(before=9)["losses"]
    assert len(kept) == min(2 * samples, WINDOW)


def test_a_client_without_river_names_the_missing_package(
    make_context: MakeContext,
) -> None:
    context = make_context(1)
    model = context.initial()
    config: dict[str, Any] = {"representation": "label_histogram"}
    client = DetectingClient(context)
    assert "representation" in client.report(config, 1), "the hello needs none"
    with pytest.raises(ConfigError, match="pip install 'river"):
        client.report({**config, "held": "0"}, 1, [model])


class _Silent:
    drift_detected = False

    def update(self, loss: float) -> None:
        """Find nothing."""


class SilentClient(DetectingClient):
    detector = _Silent


def test_the_newest_losses_are_kept(
    make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clients.families.detecting.WINDOW", 100)
    found = []
    for round in (1, 2, 3):
        client = SilentClient(make_context(round))
        model = client.context.initial() * round + round
        assert client.report({"held": "x"}, round + 1, [model]) == {}
        (kept,) = client.context.state.part("losses").at(round).values()
        found.append(kept)
    assert [len(each) for each in found] == [50, 100, 100]
    assert np.array_equal(found[1][:50], found[0])
    assert np.array_equal(found[2][:50], found[1][50:])
    assert not np.array_equal(found[2][50:], found[1][50:])
