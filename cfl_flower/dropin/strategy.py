"""The strategy that a Flower user puts in the place of FedAvg: its `start`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, make_dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, Self, TypeAlias, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result
from numpy.typing import ArrayLike

from cfl_flower.client.drift_report import read_labels
from cfl_flower.clustering.algorithms import nearest_centre
from cfl_flower.clustering.representations import label_histogram
from cfl_flower.communication.fleet import Fleet
from cfl_flower.config.compose import compose_config
from cfl_flower.dropin.carrier import Carrier
from cfl_flower.dropin.layout import Others
from cfl_flower.dropin.rounds import PlainRounds, find_width
from cfl_flower.dropin.terms import Terms
from cfl_flower.engine.method import ClusteredStrategy
from cfl_flower.engine.stages.robust_means import RobustMeans
from cfl_flower.environment.files import make_folder
from cfl_flower.errors import ConfigError
from cfl_flower.learning.aggregation import mean_model
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.checkpoint import Checkpoint
from cfl_flower.settings import Natural, Positive, checked, require
from cfl_flower.types import Failure, Vector

ByCluster: TypeAlias = dict[int, dict[int, MetricRecord]]
"""Metrics by round and cluster."""

EvaluateFunction: TypeAlias = Callable[..., MetricRecord | None]
"""A test on the server, of round, cluster and arrays, or of round and arrays."""


@dataclass(repr=False)
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
    """Values that ``evaluate_fn`` returned, of each round and cluster."""
    failures: dict[int, list[Failure]] = field(default_factory=dict)
    """Nodes whose answers were missing or not valid, by round."""
    state: Any = None
    """Memory of the method."""
    settings: Any = None
    """The method's."""

    def assign(self, labels: ArrayLike) -> int:
        """Return the cluster of a node that never trained, by its labels."""
        representation = getattr(self.settings, "representation", None)
        if not getattr(representation, "has_labels", False):
            raise ConfigError(
                "assign: this method does not place nodes by labels, as Fielding and "
                "Static do; test the arrays in cluster_arrays on the node's data"
            )
        centres = self.state.centres
        classes = centres.shape[1]
        held = read_labels(labels, classes)
        require(held.size > 0, "labels", [], "those of at least one sample")
        own = label_histogram(held, classes)
        return int(nearest_centre(own[None], centres, self.settings.distance)[0])


class DropIn(Terms):
    """A clustered method for any ClientApp."""

    resumed: Path | None = None
    """The folder of what was saved, to go on from."""
    running: Any = None
    """The method, from `start` on."""
    _open = False

    @classmethod
    @checked
    def resume(cls, path: str | Path, **options: Any) -> Self:
        """Return a strategy whose `start` goes on from what was saved in a folder."""
        strategy = cls(**options)
        strategy.resumed = Path(path)
        return strategy

    @cached_property
    def _kept(self) -> Any:
        """The class of what is saved."""
        members = [("state", self.method.State), ("counters", Others), ("width", int)]
        # Older ones lack it.
        seed = ("seed", int | None, None)
        return make_dataclass("Kept", [*members, ("reporting", list[int]), seed])

    def _checkpoint(self, path: Path) -> Checkpoint:
        """Return what is saved in a folder, of these arrays and settings alone."""
        # As it comes back from a file.
        settings = json.loads(json.dumps(asdict(self.settings), default=str))
        arrays = self.carrier.layout.describe()
        names = {"initial_arrays": arrays, "method": self.method.__name__}
        return Checkpoint(path, {**names, "strategy": settings})

    def save(self, path: str | Path) -> None:
        """Save the state after the last round in a folder, without pickles."""
        number = self.engine.context.number
        carrier = self.carrier
        reader = carrier.reader
        state = self.running.state
        told = sorted(map(int, reader.reporting))
        kept = self._kept(state, carrier.others, reader.width, told, self.seed)
        self._checkpoint(Path(path)).save(number, kept)

    def _find_saved(self) -> tuple[int, Any]:
        """Return the rounds that are done and what was saved, if it is to go on."""
        if self.checkpoint:
            target = Path(self.checkpoint)
            ok = target == self.resumed or not self._checkpoint(target).exists()
            allowed = "another folder, or go on with resume(): it holds a saved run"
            require(ok, "checkpoint", target, allowed)
            make_folder("checkpoint", target)
        if self.resumed is None:
            return 0, None
        saved = self._checkpoint(self.resumed)
        require(saved.exists(), "resume", self.resumed, "a folder with a saved run")
        done, kept = saved.load(self._kept)
        ok = kept.seed in (None, self.seed)
        require(ok, "seed", self.seed, f"seed={kept.seed}, with which it was saved")
        self.carrier.reader.width = kept.width
        self.carrier.others = kept.counters
        self.carrier.reader.reporting.update(kept.reporting)
        return done, kept.state

    @checked
    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: Natural = 3,
        timeout: Positive = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: EvaluateFunction | None = None,
    ) -> ClusteredResult:
        """Run all rounds, as Flower's `Strategy.start` does, and return the clusters.

        ``evaluate_fn(server_round, cluster, arrays)`` is called for each cluster, and
        so is Flower's ``evaluate_fn(server_round, arrays)``.
        """
        self._evaluate_fn = None if evaluate_fn is None else of_clusters(evaluate_fn)
        self.found = ClusteredResult(settings=self.settings)
        given = {"train": train_config, "evaluate": evaluate_config}
        configs = {verb: own or ConfigRecord() for verb, own in given.items()}
        self.carrier = Carrier(grid, self, initial_arrays, configs)
        self._handed = ArrayRecord({**initial_arrays})
        self._open = False
        done, state = self._find_saved()
        if self.reports and state is None:
            find_width(self.carrier, timeout)
        config = self._config(self.carrier.reader.width, num_rounds, timeout)
        fleet = cast(Fleet, self.carrier)
        self.running = self.method(config, fleet, engine=PlainRounds)
        if state is not None:
            self.engine.context.done = done
            self.running.state = state
        result = super().start(
            cast(Grid, self.carrier.grid),
            initial_arrays,
            num_rounds - self.engine.context.done,
            timeout,
            configs["train"],
            configs["evaluate"],
            evaluate_fn=None if evaluate_fn is None else self._evaluate_clusters,
        )
        return self._complete(result)

    @property
    def engine(self) -> PlainRounds:
        """What carries out the method."""
        allowed = "after start(), which is its own: Flower's wrappers do not go with it"
        require(self.running is not None, type(self).__name__, "a method", allowed)
        return cast(PlainRounds, self.running.engine)

    def _config(self, width: int, rounds: int, timeout: float) -> RunConfig:
        """Return the configuration of a run without data, network and devices."""
        plain = compose_config(["strategy=fedavg", "drift=none", "dataset=digits"])
        config = replace(
            plain,
            names={**plain.names, "strategy": self.method.__name__.lower()},
            strategy=self.settings,
            # What a method asks of data, which are the app's affair.
            dataset=cast(Any, SimpleNamespace(classes=width, shape=())),
            system=replace(plain.system, message_timeout=timeout),
            seed=self.seed,
            rounds=rounds,
        )
        RobustMeans.check(config, self.method)
        return config

    def initialize_parameters(self, client_manager: object) -> NoReturn:
        """Refuse a `ServerApp` of a ``server_fn``, which calls no `start`."""
        raise ConfigError(
            f"{type(self).__name__} does not go with ServerAppComponents; call "
            "strategy.start(...) in a function under @app.main(), as "
            "docs/how-to/your-flower-app.md shows"
        )

    # Flower's verbs ------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of a round's training, with a config of its own."""
        engine = self.engine
        self._require_super(not self._open, "aggregate_evaluate")
        self._require_handed(arrays)
        self._open = True
        self.carrier.configs["train"] = config
        return engine.configure_train(server_round)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Take in the trained models; return their mean over nodes, and the metrics."""
        self._require_super(self._open, "configure_train")
        self.engine.aggregate_train(replies)
        self._handed = self.mean_arrays()
        arrays = ArrayRecord({**self._handed})
        return arrays, self._metrics("train", self.engine.clusters())

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Return the messages of a round's tests, with a config of its own."""
        self._require_handed(arrays)
        self.carrier.configs["evaluate"] = config
        return self.engine.configure_evaluate()

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Take in the tests, and what nodes report with them."""
        self._open = False
        engine = self.engine
        before = engine.clusters()
        engine.aggregate_evaluate(replies)
        self.found.failures[engine.context.number] = self.carrier.failures
        if self.checkpoint is not None:
            self.save(self.checkpoint)
        return self._metrics("evaluate", before)

    def _require_super(self, called: bool, verb: str) -> None:
        """Refuse an override that left out what the method does in a round."""
        own = f"{type(self).__name__}.{verb}"
        allowed = f"super().{verb}() in every round, and change what it returns"
        require(called, own, "an override without super()", allowed)

    def _require_handed(self, arrays: ArrayRecord) -> None:
        """Refuse arrays of an override, since nodes get those of their cluster."""
        allowed = "those that super() returns, since nodes get their cluster's arrays"
        require(arrays == self._handed, "arrays", "an override's own", allowed)

    def _metrics(self, verb: str, clusters: Mapping[int, int]) -> MetricRecord | None:
        """Note the mean metrics of each cluster, and return those of all."""
        replied = self.carrier.reader.replied
        if not replied:
            return None
        members: dict[int, list[RecordDict]] = {}
        for client, content in replied:
            members.setdefault(clusters[int(client)], []).append(content)
        mean = getattr(self, f"{verb}_metrics_aggr_fn")
        key = self.weighted_by_key
        found = {k: mean(own, key) for k, own in sorted(members.items())}
        by_round = getattr(self.found, f"cluster_{verb}_metrics")
        by_round[self.engine.context.number] = found
        return cast(MetricRecord, mean([content for _, content in replied], key))

    # The result ----------------------------------------------------------------------

    def arrays_of(self, model: Vector) -> ArrayRecord:
        """Return a model as the app's arrays."""
        return self.carrier.layout.write(model, self.carrier.others)

    def mean_arrays(self) -> ArrayRecord:
        """Return the mean of all clusters' models, weighted by their nodes."""
        state = self.engine.context.state
        filled = np.flatnonzero(state.sizes).tolist()
        # Before any node is there, the initial arrays.
        models = [state.models[k] for k in filled] or [self.carrier.initial]
        sizes = state.sizes[filled].astype(float) if filled else np.ones(1)
        return self.arrays_of(mean_model(models, sizes))

    def _evaluate_clusters(
        self, server_round: int, arrays: ArrayRecord
    ) -> MetricRecord | None:
        """Let ``evaluate_fn`` test each cluster; return the mean over nodes."""
        server_round += self.engine.context.done
        if not server_round:
            return self._evaluated(0, 0, arrays)
        state = self.engine.context.state
        found: dict[int, MetricRecord] = {}
        for cluster in np.flatnonzero(state.sizes).tolist():
            own = self.arrays_of(state.models[cluster])
            if (metrics := self._evaluated(server_round, cluster, own)) is not None:
                found[cluster] = metrics
        self.found.cluster_evaluate_metrics_serverapp[server_round] = found
        means = {}
        for name in dict.fromkeys(chain.from_iterable(found.values())):
            # A cluster may lack a measure that others have.
            having = [cluster for cluster in found if name in found[cluster]]
            values = [found[cluster][name] for cluster in having]
            ok = len({np.shape(value) for value in values}) == 1
            require(ok, f"evaluate_fn's {name}", values, "ones of the same length")
            means[name] = np.average(values, 0, state.sizes[having]).tolist()
        return MetricRecord(means) if found else None

    def _evaluated(self, *asked: Any) -> MetricRecord | None:
        """Return what ``evaluate_fn`` finds of round, cluster and arrays."""
        assert self._evaluate_fn is not None
        metrics = self._evaluate_fn(*asked)
        ok = metrics is None or isinstance(metrics, MetricRecord)
        require(ok, "evaluate_fn", metrics, "one that returns a MetricRecord, or None")
        return metrics

    def _complete(self, result: Result) -> ClusteredResult:
        """Add to what Flower returns the clusters, and the rounds done before."""
        self._require_super(not self._open, "aggregate_evaluate")
        engine = self.engine
        state = engine.context.state
        found = self.found
        found.clusters = engine.clusters()
        found.cluster_history = engine.history
        found.cluster_arrays = dict(enumerate(map(self.arrays_of, state.models)))
        found.state = state
        # Flower has none after no round, as where all were done before.
        found.arrays = result.arrays or self.mean_arrays()
        done = engine.context.done
        for name, by_round in vars(result).items():
            if name != "arrays":
                shifted = {done + number: own for number, own in by_round.items()}
                setattr(found, name, shifted)
        return found


def of_clusters(evaluate_fn: EvaluateFunction) -> EvaluateFunction:
    """Return a function of round, cluster and arrays; Flower's knows no cluster."""
    expected = inspect.signature(evaluate_fn).parameters
    # Of the kinds that Python orders, this is the last that is given by its place.
    last = inspect.Parameter.POSITIONAL_OR_KEYWORD
    by_place = [each for each in expected.values() if each.kind <= last]
    needed = [each for each in by_place if each.default is each.empty]
    if "cluster" in expected or len(needed) == 3:
        return evaluate_fn
    return lambda server_round, _, arrays: evaluate_fn(server_round, arrays)


def drop_in(name: str, method: type[ClusteredStrategy]) -> type[DropIn]:
    """Return the strategy of a method, under a name of its own."""
    doc = f"{name} for any ClientApp: FedAvg's arguments, and the method's settings."
    own = {"method": method, "__doc__": doc, "__module__": "cfl_flower.strategies"}
    return type(name, (DropIn,), own)
