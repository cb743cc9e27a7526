"""The client of every method that trains the model it receives.

Computes: local SGD (proximal if mu > 0) on its data of the round; a test of the model
it is served; its label histogram when the server requests it and does not hold it.
Sends: the trained model (d floats); the histogram (L floats) after a drift, with noise
if `strategy/privacy` is set.
Keeps: nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from cfl_flower.client.drift_report import ReportRequest, report_drift
from cfl_flower.client.requests import EvaluateRequest
from cfl_flower.clustering.representations import label_histogram
from cfl_flower.communication.validation import asks_for_losses
from cfl_flower.errors import SavedStateError
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.testing import evaluate, information, sample_losses
from cfl_flower.learning.training import train
from cfl_flower.types import (
    START_LOSS,
    START_RMS,
    Config,
    Evaluated,
    FloatArray,
    Metrics,
    Reply,
    Vector,
)
from clients.tested import Samples, TestedClient

CLAIMS = {
    "reports_loss": {"fit"},
    "fine_tunes": {"evaluate", "test", "make_test"},
    "tests_received": {"evaluate", "test", "make_test", "served", "report"},
}
"""The claims of a client, each with its methods: a subclass that overrides one of them
has to make the claim itself."""


class Clusters(NamedTuple):
    """What a newcomer's cluster is found by."""

    models: Mapping[int, Vector]
    """The model of each cluster, by its number."""
    places: Mapping[str, FloatArray]
    """The `ClusteredState.places` of the method."""


class Found(NamedTuple):
    """The cluster that a client belongs to."""

    cluster: int
    fit: float
    """How well it fits, in the unit of ``by``."""
    by: str
    """What is compared: loss, information, distance, angle or cosine."""
    joins: bool = True
    """False if the method would give the client a cluster of its own."""

    @classmethod
    def nearest(cls, clusters: Iterable[int], gaps: FloatArray, by: str) -> Found:
        """Return the one of m clusters at the smallest gap, (m,)."""
        place = int(gaps.argmin())
        return cls([*clusters][place], float(gaps[place]), by)


class ClusteredClient(TestedClient):
    """A client for one task."""

    reports_loss: ClassVar[bool] = True
    """Whether `fit` reports, if requested, the loss of the model that it starts from. A
    subclass that overrides `fit`, and still does, sets it to true."""

    fine_tunes: ClassVar[bool] = True
    """Whether tests obey `StrategySettings.fine_tuning` and `label_shares`. A subclass
    that overrides `evaluate` or `make_test`, and still does, sets it to true."""

    tests_received: ClassVar[bool] = True
    """Whether `evaluate` tests the first received model as it is, and reports nothing
    that follows from models. A device whose owner guards its training samples makes no
    other test. A subclass that overrides one of its `CLAIMS`, and still does, sets it
    to true."""

    finds_unlabelled: ClassVar[bool] = False
    """Whether it can compare itself with the places of clusters without labels."""

    directions: ClassVar[tuple[str, ...]] = ()
    """Keys of queries that are answered with a representation of data, not a model."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        own = vars(cls).keys()
        for claim, methods in CLAIMS.items():
            if own & methods and claim not in own:
                setattr(cls, claim, False)

    def fingerprint(self, server_round: int) -> np.ndarray:
        """Return 8 bytes that identify a round's training samples and their labels.

        A device hashes their content: the indices in its folder always start at 0.
        """
        view = self.data(server_round)
        state = blake2b(digest_size=8)
        state.update(repr((view.degrees, view.turns)).encode())
        if view.looks is not None:
            state.update(view.looks.tobytes())
        state.update(np.ascontiguousarray(view.train_indices).tobytes())
        state.update(np.ascontiguousarray(view.labels).tobytes())
        if self.context.folder is not None:
            state.update(view.train()[0].cpu().numpy().data)
        return np.frombuffer(state.digest(), np.uint8)

    def answer(self, parameters: list[Vector], config: Config) -> Reply:
        """Answer the server's hello, with the first representation if requested.

        Methods with other queries, outside of training and tests, override it.

        Parameters
        ----------
        parameters : list of Vector
            The models that the task names, in its order.
        config : dict
            The plan's and the task's entries.

        Returns
        -------
        list of Vector, int, dict
            Arrays, the number of samples of the next round, and metrics.
        """
        upcoming = self.context.upcoming
        count = len(self.data(upcoming).labels)
        return [], count, self.report(config, upcoming)

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train the received model, parameters[0], on the data of this round.

        Parameters
        ----------
        parameters : list of Vector
            The models that the task names, in its order.
        config : dict
            The plan's and the task's entries.

        Returns
        -------
        list of Vector, int, dict
            The trained model, shape (d,), the number of samples, and metrics.
        """
        trained, count = self.train_from(parameters[0])
        return [trained], count, {}

    def starting_model(self, parameters: list[Vector]) -> Vector:
        """Return the model that this round's training started from, shape (d,)."""
        return parameters[0]

    def start_loss(self, received: Vector, config: Config) -> Metrics:
        """Return a received model's mean and root mean square loss, if requested."""
        x, y = self.samples(self.context.round)
        if len(y) == 0 or not asks_for_losses(config):
            return {}
        losses = sample_losses(self.context.model.load(received), x, y).double()
        squares = float(losses.square().mean())
        return {START_LOSS: float(losses.mean()), START_RMS: squares**0.5}

    def train_from(
        self,
        start: Vector,
        local: LocalTraining | None = None,
        server_round: int | None = None,
        purpose: str = "batches",
        anchor: Vector | None = None,
        samples: Samples | None = None,
        **terms: Any,
    ) -> tuple[Vector, int]:
        """Return the model trained from given weights, and the number of samples.

        Parameters
        ----------
        start : Vector, shape (d,)
            The weights at the start.
        local : LocalTraining, optional
            Other settings of the optimiser than this round's.
        server_round : int, optional
            Another round than the task's, whose data are trained on.
        purpose : str
            What the batches are drawn for, which seeds the draws.
        anchor : Vector, shape (d,), optional
            What the proximal term holds the weights near; by default the start.
        samples : tuple of Tensor, optional
            Other samples than the round's, shapes (n, ...) and (n,).
        **terms
            Further arguments of `learning.training.train`.

        Returns
        -------
        Vector, int
            The trained weights, shape (d,), and n.
        """
        server_round = self.context.round if server_round is None else server_round
        x, y = self.samples(server_round) if samples is None else samples
        model = self.load(start)
        rng = self.rng(purpose, server_round)
        near = None
        if anchor is not None:
            near = torch.from_numpy(anchor[: len(model.weights)]).to(x.device)
        train(model, x, y, local or self.local, rng, anchor=near, **terms)
        return model.to_vector(), len(y)

    def losses(self, models: Sequence[Vector], samples: Samples) -> FloatArray:
        """Return the mean loss of each model on samples.

        Parameters
        ----------
        models : sequence of Vector
            K models, shape (d,) each.
        samples : tuple of Tensor
            Inputs and labels, shapes (n, ...) and (n,).

        Returns
        -------
        array, shape (K,)
            Zeros without samples, so that the first model is the best.
        """
        x, y = samples
        if len(y) == 0:
            return np.zeros(len(models))
        return np.array([evaluate(self.load(m), x, y)[0] for m in models])

    def find_cluster(self, among: Clusters, unlabelled: bool) -> Found:
        """Return the cluster of this client, by its data of the round.

        That is the cluster whose model has the smallest mean loss on its training
        samples, as in IFCA; without labels the one whose predictions tell most of
        these. Methods that compare something else override it.

        Parameters
        ----------
        among : Clusters
            Those with members.
        unlabelled : bool
            Whether to use no labels, see `finds_unlabelled`.

        Returns
        -------
        Found
            The cluster, and how well it fits.
        """
        models = [*among.models.values()]
        samples = self.samples(self.context.round)
        if unlabelled:
            told = np.array([information(self.load(m), samples[0]) for m in models])
            place = int(told.argmax())
            return Found([*among.models][place], float(told[place]), "information")
        return Found.nearest(among.models, self.losses(models, samples), "loss")

    def saved_model(self, before: int, part: str = "") -> Vector | None:
        """Return the model that this client saved before a round, if it did.

        Parameters
        ----------
        before : int
            The round.
        part : str
            The part of the client's state that has the model; empty for the whole.

        Raises
        ------
        SavedStateError
            If the model does not fit the network.
        """
        state = self.context.state.part(part) if part else self.context.state
        model = state.load(before).get("model")
        wanted = len(self.context.model.vector)
        if model is not None and model.shape != (wanted,):
            raise SavedStateError(
                f"a saved model has the shape {model.shape}, not ({wanted},): it is "
                "damaged, or of another run; remove it"
            )
        return model

    def own_model(self, before: int, part: str = "") -> Vector:
        """Return `saved_model`, or the run's initial model if there is none."""
        model = self.saved_model(before, part)
        return self.context.initial() if model is None else model

    def evaluate(self, parameters: list[Vector], config: Config) -> Evaluated:
        """Test the served model, and report the next round's data.

        The test is on this round's data, or on the next round's if that is requested.

        Parameters
        ----------
        parameters : list of Vector
            The served model, if a test is asked for, then what the method sends beside.
        config : dict
            The plan's and the task's entries.

        Returns
        -------
        float, int, dict
            The mean loss, the number of tested samples, and metrics: the correct
            answers and the report.
        """
        upcoming = self.context.upcoming
        report = self.report(config, upcoming, parameters)
        request = EvaluateRequest.of(config)
        if request.report_empty and not len(self.data(upcoming).labels):
            report = {**report, "empty": True}
        if not request.test:
            return 0.0, 0, report
        loss, count, found = self.test(parameters, request)
        return loss, count, {**found, **report}

    def report(
        self, config: Config, server_round: int, parameters: Sequence[Vector] = ()
    ) -> Metrics:
        """Return the representation of a round's data unless the server holds it.

        A client without any data left reports nothing: its histogram is undefined.

        Parameters
        ----------
        config : dict
            The entries of the task, which may have a `ReportRequest`.
        server_round : int
            The round whose data are reported.
        parameters : sequence of Vector
            What the task brought.

        Returns
        -------
        dict
            Metrics of a `DriftReport`; empty if there is nothing new.
        """
        request = ReportRequest.of(config)
        samples = len(self.data(server_round).labels)
        if request is None or (samples == 0 and request.held):
            return {}
        seen = self.represent(config, server_round)
        return report_drift(self.context, request, seen, samples, self.changed)

    def represent(self, config: Config, server_round: int) -> Vector:
        """Return the label histogram to report; a malicious client falsifies it."""
        honest = label_histogram(self.labels(server_round), self.classes)
        return self.falsified(honest)

    def changed(self, last: Vector, now: Vector, tolerance: float) -> bool:
        """Return whether a histogram changed by more than is tolerated, in L1."""
        return float(abs(now - last).sum()) > tolerance
