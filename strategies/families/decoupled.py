"""The strategy of methods with a shared extractor and personal classifiers.

Each round: participants receive the extractor -> train -> it is averaged by samples
(FedCCFA, eq. 10). Everyone is served the fresh extractor and uses its own classifier.

Server keeps: the model of round 0, whose extractor is replaced in every round. Leaves
the device: the extractor of a participant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from cfl_flower.communication.results import Results
from cfl_flower.engine.method import ClusteredStrategy, Description, Published
from cfl_flower.learning.anchors import Anchors, mean_anchors
from cfl_flower.models import Split
from cfl_flower.privacy.clipping import capped_counts, capped_means
from cfl_flower.settings import Count, Positive, settings
from cfl_flower.state import ClusteredState, StrategySettings
from cfl_flower.types import ClientId, FloatArray, Plan, Result, Task, Vector


@settings("strategy")
class DecoupledSettings(StrategySettings):
    """The settings of all methods with personal classifiers."""

    client: str = "clients.families.decoupled.DecoupledClient"
    needs_extractor: ClassVar[bool] = True
    trains_classifier: ClassVar[bool] = True
    """Whether the classifier is trained and tested without its network: as W z + b."""

    classifier_epochs: Count = 1
    """Passes over the data with the extractor frozen; then `local.epochs` with the
    classifier frozen."""
    classifier_rate: Positive = 0.1
    """Learning rate of the classifier's epochs; the rest is as in `local`."""


@dataclass
class DecoupledState(ClusteredState):
    """The state of all methods with personal classifiers."""

    returned: dict[ClientId, Sequence[Vector]] = field(default_factory=dict)
    """The arrays that go back to each participant with the test of the same round."""


@dataclass
class AnchorState(DecoupledState):
    """The state of methods with one anchor for each class."""

    anchors: Anchors = field(default_factory=Anchors)
    """The anchors, L of them."""

    def average(
        self, points: Sequence[Vector], counts: FloatArray, cap: float | None
    ) -> None:
        """Average participants' anchors, (L * D,) each, by label counts, (m, L).

        ``cap`` is that of the counts; without it anchors of any length count, too.
        """
        stacked = np.stack(points).reshape(-1, *self.anchors.points.shape)
        if cap is not None:
            counts = capped_counts(counts, cap)
            stacked = capped_means(stacked, counts)
        self.anchors = mean_anchors(stacked, counts, self.anchors)


class DecoupledStrategy(ClusteredStrategy):
    """FedAvg of extractors; classifiers stay at the clients."""

    Settings = DecoupledSettings
    State: ClassVar[type[DecoupledState]] = DecoupledState
    published = Published(
        incomplete="each client's classifier is its own, and no server keeps it"
    )

    def initial_state(self) -> Any:
        """Return the initial state; raise `ConfigError` without a linear classifier."""
        self.split: Split = self.run.network.split
        return super().initial_state()

    @property
    def extractor(self) -> Vector:
        """The shared extractor."""
        model: Vector = self.state.models[0]
        return self.split.divide(model)[0]

    def plan_train(self, server_round: int) -> Plan:
        """Send the extractor to the participants."""
        return self.run.participants.send(server_round, [self.extractor])

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Average the extractors: eq. 10."""
        extractor, classifier = self.split.divide(self.state.models[0])
        # FedCCFA, eq. 10; the same mean in FedRep, FedBABU and FedPAC.
        extractor = self.run.step(extractor, self.run.average(results), len(classifier))
        self.state.models = [self.split.join(extractor, classifier)]
        gaps = [np.linalg.norm(result.arrays[0] - extractor) for result in results]
        self.run.record.measures["discrepancy"] = float(np.mean(gaps))

    def describe(self) -> Description:
        """Return that models are not comparable: `absorb_train` compares extractors."""
        return Description(comparable=False)

    def give_back(
        self, results: Sequence[Result], arrays: Sequence[Sequence[Vector]]
    ) -> None:
        """Send arrays back to each participant, with the test of the same round."""
        pairs = zip(results, arrays, strict=True)
        self.state.returned = {result.client: own for result, own in pairs}

    def plan_evaluate(self, server_round: int, test: bool) -> Plan:
        """Let everyone test the fresh extractor with its own classifier."""
        models: list[Vector] = [self.extractor]
        tasks = []
        for client in self.state.clients:
            arrays = self.state.returned.get(client, ())
            if test or arrays:
                places = tuple(range(len(models), len(models) + len(arrays)))
                models.extend(arrays)
                tasks.append(Task(client, ((0,) if test else ()) + places))
        return Plan(tasks, models)

    def absorb_evaluate(self, server_round: int, results: Results) -> None:
        """Count the bytes of the arrays that were sent back to participants."""
        for result in results:
            arrays = self.state.returned.get(result.client, ())
            self.run.record.bytes_down += sum(array.nbytes for array in arrays)
        self.state.returned = {}
