"""Apps of Flower's users get clusters by one line, in process and in its simulation."""

from typing import Any

import cfl_flower.strategies as plain
import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, Context
from flwr.client import Client
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from cfl_flower.dropin.strategy import ClusteredResult
from cfl_flower.errors import CflError
from cfl_flower.mods import numpy_client
from tests.cfl_flower.dropin import quickstarts
from tests.cfl_flower.dropin.apps import start

APPS = {
    "pytorch": (quickstarts.pytorch, lambda: seeded(0)),
    "numpy": (quickstarts.numpy, lambda: seeded(0)),
    "sklearn": (quickstarts.sklearn, quickstarts.first_weights),
}


def seeded(seed: int) -> ArrayRecord:
    """Return the first arrays of a seed."""
    torch.manual_seed(seed)
    return ArrayRecord(quickstarts.Net().state_dict())


METHODS: dict[str, tuple[Any, dict[str, Any]]] = {
    "fielding": (plain.Fielding, {}),
    "static": (plain.Static, {}),
    "ifca": (plain.IFCA, {"clusters": 2, "reseeded": seeded}),
    "flexcfl": (plain.FlexCFL, {"clusters": 2}),
}


def check(found: ClusteredResult) -> None:
    """Check that two clusters of two nodes learned their labels."""
    assert sorted(found.clusters.values()) == [0, 0, 1, 1]
    for metrics in found.cluster_evaluate_metrics[3].values():
        assert metrics["accuracy"] > 0.8
    assert found.failures == {1: [], 2: [], 3: []}


@pytest.mark.parametrize("app", APPS)
@pytest.mark.parametrize("name", ["fielding", "flexcfl"])
def test_a_quickstart_in_process(app, name):
    client_app, initial = APPS[app]
    kind, options = METHODS[name]
    found = start(client_app, kind, 3, initial(), **options)
    check(found)
    assert list(found.clusters.values()) == [0, 0, 1, 1]
    if app != "sklearn":
        counter = found.cluster_arrays[0]["1.num_batches_tracked"].numpy()
        # Three rounds of twenty steps; the cold start is no round.
        assert counter == 60
        quickstarts.Net().load_state_dict(found.cluster_arrays[0].to_torch_state_dict())


def test_a_numpy_client_learns_what_the_same_app_of_messages_does():
    apps = {"pytorch": quickstarts.pytorch, "numpy": quickstarts.numpy}
    found = {k: start(v, plain.Fielding, 2, seeded(0)) for k, v in apps.items()}
    assert found["numpy"].cluster_arrays == found["pytorch"].cluster_arrays
    tested = found["numpy"].cluster_evaluate_metrics
    assert tested == found["pytorch"].cluster_evaluate_metrics
    assert set(found["numpy"].train_metrics_clientapp[2]) == {"steps", "converged"}


class Forgets(quickstarts.DigitsClient):
    """A client that returns an array less than it got."""

    def fit(self, parameters: Any, config: Any) -> Any:
        """Train a network."""
        arrays, size, metrics = super().fit(parameters, config)
        return arrays[1:], size, metrics


def test_a_numpy_client_that_returns_other_arrays_costs_itself_alone():
    def client_fn(context: Context) -> Client:
        kind = (Forgets, quickstarts.DigitsClient)
        return kind[int(context.node_config["partition-id"]) > 0](context).to_client()

    app = ClientApp(client_fn=client_fn, mods=[numpy_client])
    found = start(app, rounds=1, initial=seeded(0))
    assert [each.client for each in found.failures[1]] == [1000]
    assert "9 arrays came, 8 left" in str(found.failures[1][0])


class Words(quickstarts.DigitsClient):
    """A client that does not return what Flower asks for."""

    def fit(self, parameters: Any, config: Any) -> Any:
        """Train a network."""
        arrays, size, _ = super().fit(parameters, config)
        return arrays, float(size), {}


class Scalars(quickstarts.DigitsClient):
    """A client whose metric is no number of Python's."""

    def fit(self, parameters: Any, config: Any) -> Any:
        """Train a network."""
        arrays, size, _ = super().fit(parameters, config)
        return arrays, size, {"steps": np.float32(20)}


class TwoLosses(quickstarts.DigitsClient):
    """A client with a metric that is called as the loss is."""

    def evaluate(self, parameters: Any, config: Any) -> Any:
        """Test a network."""
        loss, size, metrics = super().evaluate(parameters, config)
        return loss, size, {**metrics, "loss": 1000.0}


def test_a_metric_never_replaces_the_loss_of_a_numpy_client():
    app = client_of(TwoLosses, numpy_client)
    found = start(app, rounds=1, initial=seeded(0))
    assert found.evaluate_metrics_clientapp[1]["loss"] < 1000


def client_of(kind: Any, *mods: Any) -> ClientApp:
    return ClientApp(client_fn=lambda context: kind(context).to_client(), mods=[*mods])


def without_evaluate() -> ClientApp:
    app = ClientApp()
    app.train()(quickstarts.train_net)
    return app


HELP = {
    "client_fn": (client_of(quickstarts.DigitsClient), "has the mod numpy_client, as"),
    "types": (client_of(Words, numpy_client), "a tuple with 3 elements: return Python"),
    "scalars": (client_of(Scalars, numpy_client), "return Python's float and int"),
    "evaluate": (without_evaluate(), "add @app.evaluate\\(\\), or give fraction_eval"),
}


@pytest.mark.parametrize("wrong", HELP)
def test_what_flower_says_of_an_app_is_one_line_with_what_helps(wrong):
    app, words = HELP[wrong]
    with pytest.raises(CflError, match=words) as found:
        start(app, plain.Fielding, 1, seeded(0))
    assert "\n" not in str(found.value)


def test_an_app_without_tests_is_trained_with_its_reports():
    app = ClientApp(mods=quickstarts.pytorch._mods)
    app.train()(quickstarts.train_net)
    found = start(app, plain.Fielding, 2, seeded(0), fraction_evaluate=0.0)
    assert list(found.clusters.values()) == [0, 0, 1, 1]
    assert found.failures == {1: [], 2: []}


@pytest.mark.parametrize("name", METHODS)
def test_a_numpy_client_without_the_methods_mod_is_served(name):
    kind, options = METHODS[name]
    app = client_of(quickstarts.DigitsClient, numpy_client)
    found = start(app, kind, 1, seeded(0), **options)
    assert sorted(found.clusters) == [1000, 1001, 1002, 1003]
    assert found.failures == {1: []}
    assert found.evaluate_metrics_clientapp[1]["accuracy"] > 0.3


def simulated(app: ClientApp, kind: Any, rounds: int, **options: Any) -> Any:
    """Run a strategy over four nodes of Flower's own simulation."""
    server_app = ServerApp()
    results: list[ClusteredResult] = []

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = kind(min_available_nodes=4, **options)
        results.append(strategy.start(grid, seeded(0), num_rounds=rounds))

    run_simulation(server_app, app, num_supernodes=4)
    return results[0]


@pytest.mark.ray
def test_a_quickstart_in_flowers_simulation():
    check(simulated(quickstarts.numpy, plain.Fielding, 3))


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.whole
def test_nodes_choose_in_flowers_simulation():
    found = simulated(quickstarts.choosing, plain.FedDrift, 4, delta=0.5)
    assert found.failures == {1: [], 2: [], 3: [], 4: []}
    for metrics in found.cluster_evaluate_metrics[4].values():
        # Each node has trained on its own digits before the test.
        assert metrics["accuracy"] > 0.8
    # Nodes remember their losses of the round before: each round is a drift.
    assert len(found.cluster_arrays) > 1
