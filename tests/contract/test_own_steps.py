"""What a method of one's own may leave and draw: as a careful one, or an error."""

import json
import random
from typing import Any

import numpy as np
import pytest
import torch

from clients.base import ClusteredClient
from strategies.fedavg import FedAvg
from strategies.ifca import IFCA


@pytest.fixture(autouse=True)
def _allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CFL_PLUGINS", "tests")


class Stacked(IFCA):
    """Keeps its models as a matrix."""

    def absorb_train(self, server_round: int, results: Any) -> None:
        super().absorb_train(server_round, results)
        self.state.models = np.stack(self.state.models)


class Narrow(IFCA):
    """Keeps its clusters as scikit-learn's KMeans returns them."""

    def absorb_train(self, server_round: int, results: Any) -> None:
        super().absorb_train(server_round, results)
        self.state.clusters = self.state.clusters.astype(np.int32)


class Listed(IFCA):
    """Keeps its clusters as a list."""

    def absorb_train(self, server_round: int, results: Any) -> None:
        super().absorb_train(server_round, results)
        self.state.clusters = self.state.clusters.tolist()


def lines(run: Any) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in run.rounds]


@pytest.mark.parametrize("kind", [Stacked, Narrow, Listed])
def test_a_state_of_other_types_gives_the_same_run_and_goes_on(kind, run_small):
    data = ["clusters=3", "partition=shifted", "partition.shifts=[0,3,6]", "drift=none"]
    own = [f"strategy._target_={kind.__module__}.{kind.__qualname__}"]
    run_small("strategy=ifca", *data, *own, "rounds=2", folder="own")
    ours = run_small("strategy=ifca", *data, "rounds=4", folder="ours")
    again = [*data, *own, "rounds=4", "resume=true"]
    assert lines(run_small("strategy=ifca", *again, folder="own")) == lines(ours)
    assert len({row["accuracy"] for row in ours.rounds}) == 4


WRONG: dict[str, Any] = {
    "too short": lambda clusters: clusters[:-1],
    "fractions": lambda clusters: clusters + 0.5,
    "too large": lambda clusters: clusters + 99,
    "below 0": lambda clusters: clusters - 1,
    "nothing": lambda clusters: None,
}


class Wrong(FedAvg):
    """Leaves clusters that are none."""

    made = ""

    def absorb_train(self, server_round: int, results: Any) -> None:
        super().absorb_train(server_round, results)
        self.state.clusters = WRONG[self.made](self.state.clusters)


@pytest.mark.parametrize("made", WRONG)
def test_clusters_that_no_checkpoint_could_have_end_the_run_at_once(
    made, run_small, monkeypatch
):
    monkeypatch.setattr(Wrong, "made", made)
    own = f"strategy._target_={Wrong.__module__}.Wrong"
    with pytest.raises(ValueError, match="after absorb_train, the state's clusters"):
        run_small("strategy=fedavg", own)


def draw() -> list[float]:
    drawn = np.random.random()
    return [random.random(), drawn, float(torch.rand(1))]


class Drawing(FedAvg):
    """Draws from the generators that all code shares, and notes it."""

    def initial_state(self) -> Any:
        self.first = draw()
        return super().initial_state()

    def plan_train(self, server_round: int) -> Any:
        plan = super().plan_train(server_round)
        self.drawn = draw()
        return plan

    def absorb_train(self, server_round: int, results: Any) -> None:
        super().absorb_train(server_round, results)
        self.run.record.measures["drawn"] = [*self.first, *self.drawn, *draw()]


class DrawingClient(ClusteredClient):
    """Adds noise of these generators to what it trains."""

    def fit(self, parameters: Any, config: Any) -> Any:
        (trained,), samples, metrics = super().fit(parameters, config)
        return [trained + np.float32(0.01 * sum(draw()))], samples, metrics


def test_what_is_drawn_from_common_generators_follows_from_the_seed(run_small):
    own = [f"strategy._target_={__name__}.Drawing"]
    own.append(f"strategy.client={__name__}.DrawingClient")
    found = []
    for number in range(2):
        random.seed(number)
        np.random.seed(number)
        found.append(lines(run_small("strategy=fedavg", *own, folder=f"{number}")))
    assert found[0] == found[1]
    # Those of the initial state are in every line.
    first, *_ = (row["drawn"][:3] for row in found[0])
    drawn = [*first, *(number for row in found[0] for number in row["drawn"][3:])]
    assert len(set(drawn)) == len(drawn), json.dumps(drawn)
    for more in (["engine=processes", "workers=2"], ["strategy.sampling=all"]):
        again = lines(run_small("strategy=fedavg", *own, *more, folder=more[0]))
        assert [row["drawn"] for row in again] == [row["drawn"] for row in found[0]]
        if more[0] == "engine=processes":
            assert again == found[0]
    other = lines(run_small("strategy=fedavg", *own, "seed=5", folder="other"))
    assert other[0]["drawn"] != found[0][0]["drawn"]


class Idle(FedAvg):
    """Plans no training."""

    def plan_train(self, server_round: int) -> Any:
        return super().plan_train(server_round).part([])


class Forgetful(FedAvg):
    """Forgets to put the mean into its state."""

    def absorb_train(self, server_round: int, results: Any) -> None:
        self.run.average(results)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("Idle", "nobody trained in any round"),
        ("Forgetful", "absorb_train left all models as they were"),
        ("", ""),
    ],
)
def test_a_method_that_trains_nothing_is_told(kind, said, run_small, caplog):
    own = [f"strategy._target_={__name__}.{kind}"] if kind else []
    run_small("strategy=fedavg" if kind else "strategy=local", *own)
    assert [said in each.getMessage() for each in caplog.records] == [True] * bool(said)


def test_a_run_draws_nothing_from_its_caller(run_small):
    own = [f"strategy._target_={__name__}.Drawing"]
    own.append(f"strategy.client={__name__}.DrawingClient")
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    run_small("strategy=fedavg", *own)
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    assert before[:2] == after[:2]
    assert torch.equal(before[2], after[2])


class Few(FedAvg):
    """Lets two clients alone be tested."""

    def plan_evaluate(self, server_round: int, test: bool) -> Any:
        plan = super().plan_evaluate(server_round, test)
        return plan.part(plan.tasks[:2])


def test_a_method_that_tests_some_clients_alone_is_told_once(run_small, caplog):
    run_small("strategy=fedavg", f"strategy._target_={__name__}.Few")
    told = [each.getMessage() for each in caplog.records]
    (said,) = (line for line in told if "plan_evaluate" in line)
    assert said.startswith("plan_evaluate tests 2 of 12 clients")
