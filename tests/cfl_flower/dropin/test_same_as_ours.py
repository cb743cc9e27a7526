"""A method gives the same, as our app and for a ClientApp that trains alike."""

from collections import defaultdict
from dataclasses import replace
from functools import partial
from typing import Any

import cfl_flower.strategies as plain
import numpy as np
import pytest
import torch
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
from cfl_flower.learning.decoupling import represent
from cfl_flower.learning.testing import evaluate as evaluate_model
from cfl_flower.learning.training import train
from cfl_flower.models import build_model
from cfl_flower.mods import (
    FINE_TUNING,
    NEAR,
    NEAR_LAMBDA,
    choose_by_loss,
    embedding,
    fine_tune,
    label_histogram,
    label_shares,
)
from cfl_flower.seeding import generator
from cfl_flower.server_app import open_stream
from cfl_flower.types import Vector
from clients.feddrift import Choice, FedDriftClient
from clients.tested import Samples
from simulations.engines.inprocess import InProcessGrid
from strategies.stocfl import StoCFLSettings
from tests.conftest import SMALL, Run

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
    "stocfl": (plain.StoCFL, {"threshold": 0.3}),
    "stocfl difference": (
        plain.StoCFL,
        {"representation": "difference", "threshold": 0.3},
    ),
}


OURS = {"feddrift": ["strategy.client=tests.cfl_flower.dropin.test_same_as_ours.OfNow"]}
"""What our clients are told beside, to do as those of plain apps can."""


class OfNow(FedDriftClient):
    """A client of FedDrift on a device: its earlier data are gone."""

    def belonging(self, choice: Choice) -> dict[int, Samples]:
        return super().belonging(choice._replace(past={}))


def vector_of(arrays: ArrayRecord) -> Vector:
    """Return an app's arrays as one vector."""
    return np.concatenate([each.numpy().ravel() for each in arrays.values()])


def client_of(context: Context) -> int:
    """Return which of our clients a node is."""
    return int(context.node_config["partition-id"])


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
        self.now = message.content["config"]["server-round"]
        return self.app(message, context)

    def cold_start(self, samples: int) -> tuple[str, dict[str, Any]]:
        strategy: Any = self.config.strategy
        if not isinstance(strategy, StoCFLSettings):
            return "pretraining", {"steps": strategy.pretraining}
        if strategy.representation == "gradient":
            return "representation", {"steps": 1, "batch_size": samples}
        return "representation", {"epochs": strategy.representation_epochs}

    def arrays(self, seed: int) -> ArrayRecord:
        parts = build_model(*self.size, seed).travelling()
        arrays = {n: Array(p.detach().numpy().copy()) for n, p in parts.items()}
        return ArrayRecord(arrays)

    def labels(self, context: Context) -> np.ndarray[Any, Any]:
        return self.stream.view(client_of(context), self.upcoming).labels

    def version(self, context: Context) -> str:
        view = self.stream.view(client_of(context), self.upcoming)
        return digest(np.stack([view.train_indices, view.labels]))

    def read(self, message: Message, context: Context) -> Any:
        number = message.content["config"]["server-round"]
        client = client_of(context)
        vector = vector_of(message.content["arrays"])
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
        anchor = None
        if NEAR in message.content:
            anchor = torch.from_numpy(vector_of(message.content[NEAR]))
            local = replace(local, mu=config[NEAR_LAMBDA])
        if message.metadata.group_id == "1":
            purpose = "global"
        x, y = view.train()
        if "cold-start" in config:
            purpose, options = self.cold_start(len(y))
            local = replace(local, **options)
        rng = generator(self.config.seed, purpose, number, client)
        train(model, x, y, local, rng, anchor=anchor)
        parts = model.travelling()
        arrays = {n: Array(p.detach().numpy().copy()) for n, p in parts.items()}
        content = RecordDict({"arrays": ArrayRecord(arrays)})
        content["metrics"] = MetricRecord({"num-examples": len(y)})
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

    def start(self, kind: Any, rounds: int = 4, **own: Any) -> Any:
        """Run a strategy over twelve nodes, of which half train in a round."""
        grid = InProcessGrid([{"partition-id": k} for k in range(12)], self)
        strategy = kind(fraction_train=0.5, seed=self.config.seed, **own)
        return strategy.start(grid, self.arrays(self.config.seed), rounds)

    def equip(self, mods: Any, evaluate: Any, *tested: Any) -> None:
        """Take other mods, of which some are for tests alone."""
        self.app = ClientApp(mods=mods)
        self.app.train()(self.train)
        self.app.evaluate(mods=[*tested])(evaluate)

    def note_tests(self, mod: Any) -> dict[tuple[int, int], float]:
        """Let tests have a mod, and note the accuracy of each client by round."""
        seen = {}

        def evaluate(message: Message, context: Context) -> Message:
            client, number, model, view = self.read(message, context)
            _, correct = evaluate_model(model, *view.test())
            seen[number, client] = round(correct / len(view.test_labels), 6)
            assert "fine-tuned" not in context.state
            assert FINE_TUNING not in message.content["config"]
            return self.evaluate(message, context)

        self.equip(self.app._mods, evaluate, mod)
        return seen


def test_a_server_that_restarts_goes_on_to_the_same_numbers(tmp_path):
    alike = Alike([*SMALL, "strategy=fielding"])
    whole = alike.start(plain.Fielding)
    alike.upcoming = 1
    alike.start(plain.Fielding, 2, checkpoint=tmp_path)
    resume = partial(plain.Fielding.resume, tmp_path)
    resumed = alike.start(resume, 4, checkpoint=tmp_path)
    assert resumed.cluster_arrays == whole.cluster_arrays
    assert resumed.cluster_history == {n: whole.cluster_history[n] for n in (3, 4)}
    assert resumed.evaluate_metrics_clientapp.keys() == {3, 4}


@pytest.mark.parametrize("name", METHODS)
def test_clusters_and_models_are_ours(name, run_small):
    kind, options = METHODS[name]
    values = [f"strategy.{key}={value}".lower() for key, value in options.items()]
    name = name.split(maxsplit=1)[0]
    overrides = [f"strategy={name}", *values]
    if name == "feddrift":
        # Models that fit before the drift.
        overrides.append("strategy.local.epochs=5")
    ours = run_small(*overrides, *OURS.get(name, []))
    alike = Alike([*SMALL, *overrides])
    own: dict[str, Any] = dict(options)
    if name in ("fesem", "ifca"):
        own["reseeded"] = alike.arrays
    if name == "oracle":
        truth = alike.config.timeline.concepts
        own["concepts"] = lambda number: dict(
            enumerate(truth(number).tolist(), start=1000)
        )
    found = alike.start(kind, **own)
    require_clusters(found, ours)
    require_models(found, ours)
    assert len(set(found.clusters.values())) > 1 or name in ("fedavg", "fesem")


def require_clusters(found: Any, ours: Run) -> None:
    """Require that in each round every node is in the cluster of our client."""
    for row in ours.clients:
        history = found.cluster_history[row["round"]]
        assert history[1000 + row["client"]] == row["cluster"]
    assert list(found.clusters.values()) == ours.state.clusters.tolist()


def require_models(found: Any, ours: Run) -> None:
    """Require the same models, bit for bit."""
    arrays = found.cluster_arrays.values()
    for model, each in zip(ours.state.models, arrays, strict=True):
        np.testing.assert_array_equal(vector_of(each), model)


def recorded_tests(ours: Run) -> dict[tuple[int, int], float]:
    """Return what each of our tests found, by its round and client."""
    rows = ours.clients
    return {(row["round"], row["client"]): round(row["accuracy"], 6) for row in rows}


def test_label_shares_test_what_ours_do(run_small):
    overrides = ["strategy=fielding", "strategy.label_shares=true"]
    ours = run_small(*overrides)
    alike = Alike([*SMALL, *overrides])

    def labels(context: Context) -> Any:
        return alike.stream.view(client_of(context), alike.now).labels

    *_, bias = alike.arrays(0)
    seen = alike.note_tests(label_shares(labels, 10, bias))
    require_clusters(alike.start(plain.Fielding), ours)
    assert seen == recorded_tests(ours)


@pytest.mark.parametrize("distance", ["l2", "cosine"])
def test_embeddings_cluster_as_ours_do(distance, run_small):
    overrides = ["strategy=fielding", "strategy/representation=embedding"]
    overrides.append(f"strategy.distance={distance}")
    ours = run_small(*overrides, "strategy.representation.shared.samples=0")
    alike = Alike([*SMALL, *overrides])

    def embed(arrays: ArrayRecord, context: Context) -> Any:
        x, _ = alike.stream.view(client_of(context), alike.upcoming).train()
        model = build_model(*alike.size, 0).load(vector_of(arrays))
        return represent(model, x).numpy()

    alike.equip([embedding(embed)], alike.evaluate)
    own = {"representation": "embedding", "distance": distance}
    found = alike.start(plain.Fielding, **own)
    require_clusters(found, ours)
    np.testing.assert_allclose(
        found.state.representations, ours.state.representations, rtol=1e-5
    )
    assert len(found.cluster_arrays) > 1


@pytest.mark.parametrize("name", ["fedavg", "fielding"])
def test_fine_tuning_tests_what_ours_does(name, run_small):
    overrides = [f"strategy={name}", "strategy.fine_tuning=2"]
    ours = run_small(*overrides)
    alike = Alike([*SMALL, *overrides])
    seen = alike.note_tests(fine_tune(alike.train, epochs=2))
    found = alike.start(METHODS[name][0])
    require_models(found, ours)
    assert seen == recorded_tests(ours)
