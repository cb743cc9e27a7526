"""The strategy that a Flower user puts in the place of FedAvg.

It has FedAvg's arguments and `start`, and the settings of a method by their names.
``seed`` is of the server's draws, ``reseeded`` gives first models that differ (FeSEM),
``concepts`` the clusters of nodes in a round (Oracle), and ``checkpoint`` is a folder
in which the state is saved after every round, for `DropIn.resume`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeAlias, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result
from flwr.serverapp.strategy.strategy_utils import aggregate_metricrecords
from numpy.typing import ArrayLike

from cfl_flower.clustering.algorithms import nearest_centre
from cfl_flower.clustering.representations import label_histogram
from cfl_flower.communication.fleet import Fleet
from cfl_flower.config.compose import compose_config
from cfl_flower.dropin.carrier import Carrier, Concepts, Reseeded
from cfl_flower.dropin.layout import Layout, Others
from cfl_flower.dropin.rounds import PlainRounds
from cfl_flower.engine.method import ClusteredStrategy
from cfl_flower.errors import ConfigError
from cfl_flower.learning.aggregation import mean_model
from cfl_flower.mods import read_labels
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.checkpoint import Checkpoint
from cfl_flower.settings import known_names, require
from cfl_flower.types import Failure, Vector

log = logging.getLogger(__name__)

ByCluster: TypeAlias = dict[int, dict[int, MetricRecord]]
"""Metrics by round and cluster."""

EvaluateFunction: TypeAlias = Callable[..., MetricRecord | None]
"""A test on the server, of round, cluster and arrays, or of round and arrays."""


@dataclass
class ClusteredResult(Result):
    """Flower's result, whose ``arrays`` are the mean over nodes, and the clusters."""

    clusters: dict[int, int] = field(default_factory=dict)
    """The cluster of each node after the last round."""
    cluster_history: dict[int, dict[int, int]] = field(default_factory=dict)
    """The cluster of each node in the test of each round."""
    cluster_arrays: dict[int, ArrayRecord] = field(default_factory=dict)
    """The arrays of each cluster after the last round."""
    cluster_train_metrics: ByCluster = field(default_factory=dict)
    """The metrics of training of each round and cluster."""
    cluster_evaluate_metrics: ByCluster = field(default_factory=dict)
    """The metrics of tests of each round and cluster."""
    cluster_evaluate_metrics_serverapp: ByCluster = field(default_factory=dict)
    """What ``evaluate_fn`` returned, of each round and cluster."""
    failures: dict[int, list[Failure]] = field(default_factory=dict)
    """Whose answers were missing or not valid, by round."""
    state: Any = None
    """What the method remembers."""
    settings: Any = None
    """The method's."""

    def assign(self, labels: ArrayLike) -> int:
        """Return the cluster of a node that never trained, by its labels."""
        centres = getattr(self.state, "centres", None)
        if centres is None:
            raise ConfigError(
                "assign: this method does not place nodes by labels, as Fielding and "
                "Static do; test the arrays in cluster_arrays on the node's data"
            )
        classes = centres.shape[1]
        own = label_histogram(read_labels(labels, classes), classes)
        return int(nearest_centre(own[None], centres, self.settings.distance)[0])


@dataclass
class Kept:
    """What is saved beside a method's state."""

    others: Others
    """The arrays that are no real numbers."""
    reporting: list[int]
    """The nodes that have a mod."""


@dataclass(frozen=True)
class Data:
    """What a method asks of a dataset; the data are the app's affair."""

    classes: int
    shape: tuple[int, ...] = ()


PLAIN = {"migration": False, "tested": "last", "form": "original", "fine_tuning": 0}
"""Settings that would need our own client."""


class DropIn(FedAvg):
    """A clustered method for any ClientApp."""

    method: ClassVar[type[ClusteredStrategy]]

    def __init__(
        self,
        *args: Any,
        seed: int = 0,
        reseeded: Reseeded | None = None,
        concepts: Concepts | None = None,
        checkpoint: str | Path | None = None,
        **options: Any,
    ) -> None:
        own = {each.name for each in fields(cast(Any, self.method.Settings))}
        flower = inspect.signature(FedAvg.__init__).parameters.keys() - {"self"}
        for name in options.keys() - own - flower:
            known = known_names(name, sorted(own | flower))
            raise ConfigError(f"{type(self).__name__}: {name} is no setting; {known}")
        super().__init__(*args, **{n: options[n] for n in options.keys() & flower})
        ok = self.fraction_train > 0
        require(ok, "fraction_train", self.fraction_train, "a number above 0")
        for name in own & PLAIN.keys():
            value = options.setdefault(name, PLAIN[name])
            allowed = f"{PLAIN[name]} with a plain ClientApp"
            require(value == PLAIN[name], name, value, allowed)
        values = {name: options[name] for name in options.keys() & own}
        self.settings = self.method.Settings(**values)
        self.seed = seed
        self.reseeded = reseeded
        self.concepts = concepts
        self.checkpoint = checkpoint
        self.resumed: Path | None = None

    @classmethod
    def resume(cls, path: str | Path, **options: Any) -> Self:
        """Return a strategy whose `start` goes on from what was saved in a folder."""
        strategy = cls(**options)
        strategy.resumed = Path(path)
        return strategy

    def save(self, path: str | Path) -> None:
        """Save the state after the last round in a folder, without pickles."""
        number = self.engine.context.number
        kept = Kept(self.carrier.others, sorted(map(int, self.carrier.reporting)))
        Checkpoint(Path(path, "kept"), {}).save(number, kept)
        Checkpoint(Path(path), {}).save(number, self.running.state)

    def _load(self, path: Path) -> int:
        """Take in what was saved, and return how many rounds are done."""
        _, kept = Checkpoint(path / "kept", {}).load(Kept)
        self.carrier.others = kept.others
        self.carrier.reporting.update(kept.reporting)
        done, state = Checkpoint(path, {}).load(self.method.State)
        self.running.state = state
        self.engine.context.done = done
        return done

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFunction | None = None,
    ) -> ClusteredResult:
        """Run all rounds, as Flower's `Strategy.start` does, and return the clusters.

        ``evaluate_fn(server_round, cluster, arrays)`` is called for each cluster, and
        so is Flower's ``evaluate_fn(server_round, arrays)``.
        """
        self._evaluate_fn = None if evaluate_fn is None else of_clusters(evaluate_fn)
        layout = Layout.of(initial_arrays)
        initial, others = layout.read(initial_arrays)
        self.found = ClusteredResult()
        self.carrier = Carrier(
            grid,
            self,
            layout,
            initial,
            timeout,
            train_config or ConfigRecord(),
            evaluate_config or ConfigRecord(),
            self.seed,
            settings=self.settings,
            reseeded=self.reseeded,
            concepts=self.concepts,
            others=others,
        )
        discloses = self.method.discloses
        classes = 2
        if discloses is not None and discloses.reports:
            classes = self.carrier.find_classes()
        self.running = self.method(
            self._config(classes, num_rounds),
            cast(Fleet, self.carrier),
            engine=PlainRounds,
        )
        done = 0 if self.resumed is None else self._load(self.resumed)
        result = super().start(
            grid,
            initial_arrays,
            num_rounds - done,
            timeout,
            # Flower only prints the two records here: the carrier sends them.
            train_config,
            evaluate_config,
            evaluate_fn=None if evaluate_fn is None else self._evaluate_clusters,
        )
        return self._complete(result)

    @property
    def engine(self) -> PlainRounds:
        """What carries out the method."""
        return cast(PlainRounds, self.running.engine)

    def _config(self, classes: int, rounds: int) -> RunConfig:
        """Return the configuration of a run without data, network and devices."""
        plain = compose_config(["strategy=fedavg", "drift=none", "dataset=digits"])
        return replace(
            plain,
            strategy=self.settings,
            dataset=cast(Any, Data(classes)),
            seed=self.seed,
            rounds=rounds,
        )

    # Flower's verbs ------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of a round's training."""
        return self.engine.configure_train(server_round)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take in the trained models; return their mean over nodes, and the metrics."""
        trained = self.engine.clusters()
        self.engine.aggregate_train(replies)
        if self.carrier.chosen:
            trained = self.engine.clusters()
        of_clusters = self.found.cluster_train_metrics
        metrics = self._metrics(self.train_metrics_aggr_fn, of_clusters, trained)
        return self.mean_arrays(), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of a round's tests."""
        return self.engine.configure_evaluate()

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Take in the tests, and what nodes report with them."""
        engine = self.engine
        before = engine.clusters()
        engine.aggregate_evaluate(replies)
        self.found.failures[engine.context.number] = self.carrier.failures
        if self.checkpoint is not None:
            self.save(self.checkpoint)
        of_clusters = self.found.cluster_evaluate_metrics
        return self._metrics(self.evaluate_metrics_aggr_fn, of_clusters, before)

    def _metrics(
        self,
        mean: Callable[[list[RecordDict], str], MetricRecord],
        of_clusters: ByCluster,
        clusters: Mapping[int, int],
    ) -> MetricRecord | None:
        """Note the mean metrics of each cluster, and return those of all."""
        replied = self.carrier.replied
        if not replied:
            return None
        members: dict[int, list[RecordDict]] = {}
        for client, content in replied:
            members.setdefault(clusters[int(client)], []).append(content)
        key = self.weighted_by_key
        number = self.engine.context.number
        of_clusters[number] = {k: mean(own, key) for k, own in sorted(members.items())}
        return mean([content for _, content in replied], key)

    # The result ----------------------------------------------------------------------

    def arrays_of(self, model: Vector) -> ArrayRecord:
        """Return a model as the app's arrays."""
        return self.carrier.layout.write(model, self.carrier.others)

    def mean_arrays(self) -> ArrayRecord:
        """Return the mean of all clusters' models, weighted by their nodes."""
        state = self.engine.context.state
        filled = np.flatnonzero(state.sizes).tolist()
        models = [state.models[k] for k in filled]
        return self.arrays_of(mean_model(models, state.sizes[filled].astype(float)))

    def _evaluate_clusters(
        self, server_round: int, arrays: ArrayRecord
    ) -> MetricRecord | None:
        """Let ``evaluate_fn`` test each cluster; return the mean over nodes."""
        assert self._evaluate_fn is not None
        server_round += self.engine.context.done
        if not server_round:
            return self._evaluate_fn(0, 0, arrays)
        state = self.engine.context.state
        found: dict[int, MetricRecord] = {}
        means = []
        for cluster in np.flatnonzero(state.sizes).tolist():
            own = self.arrays_of(state.models[cluster])
            metrics = self._evaluate_fn(server_round, cluster, own)
            if metrics is None:
                continue
            found[cluster] = metrics
            sized = MetricRecord({**metrics, SIZE: int(state.sizes[cluster])})
            means.append(RecordDict({"metrics": sized}))
        self.found.cluster_evaluate_metrics_serverapp[server_round] = found
        return aggregate_metricrecords(means, SIZE) if means else None

    def _complete(self, result: Result) -> ClusteredResult:
        engine = self.engine
        state = engine.context.state
        found = self.found
        found.clusters = engine.clusters()
        found.state = state
        found.settings = self.settings
        found.cluster_history = engine.history
        found.cluster_arrays = dict(enumerate(map(self.arrays_of, state.models)))
        done = engine.context.done
        found.arrays = result.arrays
        for name, by_round in vars(result).items():
            if name != "arrays":
                shifted = {number + done: each for number, each in by_round.items()}
                setattr(found, name, shifted)
        return found


def of_clusters(evaluate_fn: EvaluateFunction) -> EvaluateFunction:
    """Return a function of round, cluster and arrays; Flower's knows no cluster.

    Raises
    ------
    ConfigError
        If the function has neither two nor three arguments without a default.
    """
    parameters = inspect.signature(evaluate_fn).parameters.values()
    required = [
        each
        for each in parameters
        if each.default is each.empty and each.kind is not each.VAR_KEYWORD
    ]
    if any(each.kind is each.VAR_POSITIONAL for each in required):
        return evaluate_fn
    if len(required) == 2:
        return lambda server_round, _, arrays: evaluate_fn(server_round, arrays)
    if len(required) != 3:
        names = ", ".join(each.name for each in required)
        raise ConfigError(
            f"evaluate_fn({names}) must be evaluate_fn(server_round, cluster, arrays), "
            "or Flower's evaluate_fn(server_round, arrays)"
        )
    return evaluate_fn


SIZE = "nodes"
"""The weight of a cluster's metrics in the mean over clusters."""


def drop_in(name: str, method: type[ClusteredStrategy]) -> type[DropIn]:
    """Return the strategy of a method, under a name of its own."""
    doc = f"{name} for any ClientApp: FedAvg's arguments, and the method's settings."
    return type(name, (DropIn,), {"method": method, "__doc__": doc})
