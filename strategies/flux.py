"""FLUX: clusters once, of clients whose data have like profiles, in unknown number.

Fenoglio et al., "FLUX: Efficient Descriptor-Driven Clustered Federated Learning under
Arbitrary Distribution Shifts" (NeurIPS 2025, arXiv 2511.22305); its steps and constants
are those of the authors' code. FedAvg until the common model gains little in a round;
then clients describe their data by it, the server clusters the descriptors by a DBSCAN
that finds its own epsilon, and each cluster goes on by FedAvg. A client that was not
there, or has no labels, uses the cluster whose inputs are most like its own.

Server keeps: the models, the one that descriptors were made by, a descriptor of each
cluster. Leaves the device: the trained model (d floats); once, the descriptor
(2 L (L + 1) floats); before that, how many samples the received model gets right.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from cfl_flower.clustering.algorithms import cluster_centres
from cfl_flower.clustering.profiles import adaptive_clusters, scaled
from cfl_flower.communication.results import Results
from cfl_flower.engine.method import read_number
from cfl_flower.privacy.clipping import capped_counts
from cfl_flower.settings import Fraction, Positive, settings
from cfl_flower.types import FloatArray, Plan, Result
from clients.profile import FITS
from strategies.families.profiles import ProfileSettings, ProfileState, ProfileStrategy


@settings("strategy")
class FluxSettings(ProfileSettings):
    """FLUX's settings."""

    gain: Positive = 0.06
    """The rise of the common model's accuracy in a round below which it is good enough
    to describe data by."""
    latest: Fraction = 0.8
    """The share of the run's rounds after which clients are clustered in any case."""


@dataclass
class FluxState(ProfileState):
    """FLUX's state."""

    accuracies: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Accuracy of the common model on participants' training samples, of each round."""


class Flux(ProfileStrategy):
    """FedAvg, then one clustering, then FedAvg in each cluster."""

    Settings = FluxSettings
    State = FluxState

    def welcome(self, server_round: int, newcomers: list[Result]) -> None:
        """Put newcomers into the cluster with the most similar inputs."""
        if not self.state.profiler:
            super().welcome(server_round, newcomers)
            return
        profiles = np.stack([newcomer.report for newcomer in newcomers])
        self.state.join(newcomers, self.nearest_by_inputs(profiles))

    def good_enough(self, server_round: int) -> bool:
        """Return whether the common model can describe data, before a round."""
        settings = self.settings
        known = self.state.accuracies
        if server_round <= settings.warmup:
            return False
        # At the latest after this share of all rounds.
        late = server_round - 1 >= settings.latest * self.run.config.rounds
        flat = len(known) >= settings.warmup and (np.diff(known) < settings.gain).any()
        return late or bool(flat)

    def plan_train(self, server_round: int) -> Plan:
        """Cluster if it is time; ask how good the common model is if it is not."""
        if not self.state.profiler and self.good_enough(server_round):
            self.cluster(server_round)
        plan = super().plan_train(server_round)
        if self.state.profiler:
            return plan
        return replace(plan, config={**plan.config, FITS: True})

    def cluster(self, server_round: int) -> None:
        """Cluster all clients; those that do not answer join the largest cluster."""
        state = self.state
        rows, profiles = self.begin(server_round)
        # DBSCAN of the scaled descriptors, which finds its own epsilon.
        labels = adaptive_clusters(scaled(profiles, state.ranges))
        sizes = np.bincount(labels)
        state.clusters = np.full(len(state.clients), sizes.argmax())
        state.clusters[rows] = labels
        state.models = state.models * len(sizes)
        parts = self.label_free(profiles)
        state.landmarks = cluster_centres(parts, labels, len(sizes))
        self.run.record.reclustered = True

    def read_result(self, phase: str, result: Result) -> Result:
        """Read a descriptor, or how many samples the common model got right."""
        if phase == "train" and not self.state.profiler:
            allowed = range(result.num_examples + 1)
            return replace(result, report=read_number(result, FITS, allowed))
        return super().read_result(phase, result)

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Average each cluster; note how good the received common model was."""
        state = self.state
        if results and not state.profiler and server_round > 1:
            told = [(each.report, each.num_examples - each.report) for each in results]
            right, wrong = capped_counts(np.array(told), self.settings.weight_cap).T
            share = right.sum() / (right.sum() + wrong.sum())
            state.accuracies = np.append(state.accuracies, share)
        super().absorb_train(server_round, results)
