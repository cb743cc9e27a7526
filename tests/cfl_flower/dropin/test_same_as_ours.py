"""A method gives the same, as our app and for a ClientApp that trains alike."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import cfl_flower.strategies as plain
import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp

from cfl_flower.clustering.representations import digest
from cfl_flower.config.compose import compose_config
from cfl_flower.learning.testing import evaluate as evaluate_model
from cfl_flower.learning.training import train
from cfl_flower.models import build_model, initial_vector
from cfl_flower.mods import FINE_TUNING, choose_by_loss, fine_tune, label_histogram
from cfl_flower.seeding import generator
from cfl_flower.server_app import open_stream
from clients.base import Samples
from clients.feddrift import Choice, FedDriftClient
from simulations.engines.inprocess import InProcessGrid
from tests.conftest import SMALL, Runner

CLUSTERS = {"clusters": 3}
METHODS = {
    "auxo": (plain.Auxo, {"split_rounds": [1], "smallest": 2}),
    "fedavg": (plain.FedAvg, {}),
    "feddrift": (plain.FedDrift, {"delta": 0.05}),
    "cfl": (plain.CFL, {"first": 1, "norms": "relative", "eps1": 1.0, "eps2": 0.1}),
    "fesem": (plain.FeSEM, CLUSTERS),
    "fielding": (plain.Fielding, {}),
    "flexcfl": (plain.FlexCFL, {**CLUSTERS, "alpha": 2.0, "migration": False}),
    "ifca": (plain.IFCA, CLUSTERS),
    "oracle": (plain.Oracle, {}),
    "static": (plain.Static, {}),
}


OURS = {"feddrift": ["strategy.client=tests.cfl_flower.dropin.test_same_as_ours.OfNow"]}
"""What our clients are told beside, to do as those of plain apps can."""


class OfNow(FedDriftClient):
    """A client of FedDrift on a device: its earlier data are gone."""

    def belonging(self, choice: Choice) -> dict[int, Samples]:
        return super().belonging(choice._replace(past={}))


class Alike:
    """An app that trains on the digits of our clients, as they do."""

    def __init__(self, overrides: list[str]) -> None:
        self.config = compose_config(overrides)
        self.stream = open_stream(self.config)
        self.upcoming = 1
        dataset = self.config.dataset
        self.size = (self.config.model, dataset.shape, dataset.classes)
        self.app = ClientApp(mods=[label_histogram(self.labels, dataset.classes)])
        choose = choose_by_loss(self.measure, version=self.version)
        self.app.train(mods=[choose])(self.train)
        self.app.evaluate()(self.evaluate)
        self.states: defaultdict[int, RecordDict] = defaultdict(RecordDict)

    def __call__(self, message: Message, context: Context) -> Message:
        # Flower keeps it from message to message; the grid of tests does not.
        context.state = self.states[context.node_id]
        return self.app(message, context)

    def arrays(self, seed: int) -> ArrayRecord:
        model = build_model(*self.size, seed)
        model.load(initial_vector(*self.size, seed))
        return ArrayRecord(
            {
                name: Array(part.detach().numpy().copy())
                for name, part in model.travelling().items()
            }
        )

    def labels(self, context: Context) -> np.ndarray[Any, Any]:
        client = int(context.node_config["partition-id"])
        return self.stream.view(client, self.upcoming).labels

    def version(self, context: Context) -> str:
        client = int(context.node_config["partition-id"])
        view = self.stream.view(client, self.upcoming)
        return digest(np.stack([view.train_indices, view.labels]))

    def read(self, message: Message, context: Context) -> Any:
        number = message.content["config"]["server-round"]
        client = int(context.node_config["partition-id"])
        arrays = message.content["arrays"].values()
        vector = np.concatenate([each.numpy().ravel() for each in arrays])
        model = build_model(*self.size, 0).load(vector)
        return client, number, model, self.stream.view(client, number)

    def train(self, message: Message, context: Context) -> Message:
        client, number, model, view = self.read(message, context)
        local = self.config.strategy.local
        purpose = "batches"
        config = message.content["config"]
        if FINE_TUNING in config:
            rate = self.config.strategy.fine_tuning_rate
            epochs = config[FINE_TUNING]
            local = replace(local, epochs=epochs, learning_rate=rate)
            purpose = "fine-tuning"
            context.state["fine-tuned"] = ConfigRecord({})
        if "cold-start" in config:
            local = replace(local, steps=self.config.strategy.pretraining)
            purpose = "pretraining"
        x, y = view.train()
        rng = generator(self.config.seed, purpose, number, client)
        train(model, x, y, local, rng)
        parts = model.travelling()
        arrays = {n: Array(p.detach().numpy().copy()) for n, p in parts.items()}
        content = RecordDict(
            {
                "arrays": ArrayRecord(arrays),
                "metrics": MetricRecord({"num-examples": len(y)}),
            }
        )
        return Message(content, reply_to=message)

    def evaluate(self, message: Message, context: Context) -> Message:
        self.upcoming = message.content["config"]["server-round"] + 1
        return self.measure(message, context)

    def measure(self, message: Message, context: Context) -> Message:
        _, _, model, view = self.read(message, context)
        x, y = view.train()
        loss, _ = evaluate_model(model, x, y)
        found = MetricRecord({"loss": loss, "num-examples": len(y)})
        return Message(RecordDict({"metrics": found}), reply_to=message)


def test_a_server_that_restarts_goes_on_to_the_same_numbers(tmp_path: Path) -> None:
    kept: dict[str, Any] = {"fraction_train": 0.5, "checkpoint": tmp_path}

    def run(strategy: Any, rounds: int, alike: Alike, grid: Any) -> Any:
        return strategy.start(grid, alike.arrays(0), rounds)

    alike = Alike([*SMALL, "strategy=fielding"])
    nodes = [{"partition-id": client} for client in range(12)]
    grid = InProcessGrid(nodes, alike)
    whole = run(plain.Fielding(fraction_train=0.5), 4, alike, grid)
    alike.upcoming = 1
    run(plain.Fielding(**kept), 2, alike, grid)
    resumed = run(plain.Fielding.resume(tmp_path, **kept), 4, alike, grid)
    assert resumed.cluster_arrays == whole.cluster_arrays
    assert resumed.cluster_history == {n: whole.cluster_history[n] for n in (3, 4)}
    assert resumed.evaluate_metrics_clientapp.keys() == {3, 4}


@pytest.mark.parametrize("name", METHODS)
def test_clusters_and_models_are_ours(name: str, run_small: Runner) -> None:
    kind, options = METHODS[name]
    values = [f"strategy.{key}={value}".lower() for key, value in options.items()]
    overrides = [f"strategy={name}", *values]
    if name == "feddrift":
        # Models that fit before the drift.
        overrides.append("strategy.local.epochs=5")
    ours = run_small(*overrides, *OURS.get(name, []))
    alike = Alike([*SMALL, *overrides])
    grid = InProcessGrid([{"partition-id": k} for k in range(12)], alike)
    seed = alike.config.seed
    own: dict[str, Any] = dict(options)
    if name in ("fesem", "ifca"):
        own["reseeded"] = alike.arrays
    if name == "oracle":
        truth = alike.config.timeline.concepts
        own["concepts"] = lambda number: dict(
            enumerate(truth(number).tolist(), start=1000)
        )
    strategy = kind(fraction_train=0.5, seed=seed, **own)
    found = strategy.start(grid=grid, initial_arrays=alike.arrays(seed), num_rounds=4)
    for row in ours.clients:
        history = found.cluster_history[row["round"]]
        assert history[1000 + row["client"]] == row["cluster"]
    state = ours.state
    assert list(found.clusters.values()) == state.clusters.tolist()
    for cluster, model in enumerate(state.models):
        arrays = found.cluster_arrays[cluster].values()
        vector = np.concatenate([each.numpy().ravel() for each in arrays])
        np.testing.assert_array_equal(vector, model)
    assert len(set(found.clusters.values())) > 1 or name in ("fedavg", "fesem")


@pytest.mark.parametrize("name", ["fedavg", "fielding"])
def test_fine_tuning_tests_what_ours_does(name: str, run_small: Runner) -> None:
    overrides = [f"strategy={name}", "strategy.fine_tuning=2"]
    ours = run_small(*overrides)
    alike = Alike([*SMALL, *overrides])
    seen = {}

    def evaluate(message: Message, context: Context) -> Message:
        client, number, model, view = alike.read(message, context)
        _, correct = evaluate_model(model, *view.test())
        seen[number, client] = round(correct / len(view.test_labels), 6)
        assert "fine-tuned" not in context.state
        assert FINE_TUNING not in message.content["config"]
        return alike.evaluate(message, context)

    alike.app = ClientApp(mods=alike.app._mods)
    alike.app.train()(alike.train)
    alike.app.evaluate(mods=[fine_tune(alike.train, epochs=2)])(evaluate)
    grid = InProcessGrid([{"partition-id": k} for k in range(12)], alike)
    seed = alike.config.seed
    kind, _ = METHODS[name]
    found = kind(fraction_train=0.5, seed=seed).start(grid, alike.arrays(seed), 4)
    for row in ours.clients:
        assert seen[row["round"], row["client"]] == round(row["accuracy"], 6)
    for model, arrays in zip(
        ours.state.models, found.cluster_arrays.values(), strict=True
    ):
        vector = np.concatenate([each.numpy().ravel() for each in arrays.values()])
        np.testing.assert_array_equal(vector, model)
