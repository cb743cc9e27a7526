"""FLUX: clusters once, of clients whose data have like profiles, in unknown number.

Fenoglio et al., "FLUX: Efficient Descriptor-Driven Clustered Federated Learning under
Arbitrary Distribution Shifts" (NeurIPS 2025, arXiv 2511.22305); its steps and constants
are those of the authors' code. FedAvg until the common model gains little in a round;
then clients describe their data by it, the server clusters the descriptors by a DBSCAN
that finds its own epsilon, and each cluster goes on by FedAvg. A client that was not
there, or has no labels, uses the cluster whose inputs are most like its own. In rounds
of drift that the server is told, it clusters anew: the authors' ``flux_dynamic``.

Server keeps: the models, the one that descriptors were made by, a descriptor of each
cluster. Leaves the device: the trained model (d floats); once, and in rounds of drift,
the descriptor (2 L (L + 1) floats); before, how many samples the received model gets
right.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from cfl_flower.clustering.algorithms import cluster_centres
from cfl_flower.clustering.profiles import (
    adaptive_clusters,
    profile_distances,
    scaled,
)
from cfl_flower.communication.results import Results
from cfl_flower.engine.method import read_number
from cfl_flower.privacy.clipping import capped_counts
from cfl_flower.settings import Count, Fraction, Positive, settings
from cfl_flower.types import FloatArray, IntArray, Plan, Result
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
    drift_rounds: list[Count] = field(default_factory=list)
    """Rounds of drifts, if they are known: at their start all clients, once they are
    clustered, describe their data again and are clustered anew."""


@dataclass
class FluxState(ProfileState):
    """FLUX's state."""

    accuracies: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Accuracy of the common model on participants' training samples, of each round."""


def followed(old: IntArray, rows: IntArray, labels: IntArray) -> IntArray:
    """Return the new cluster of n clients, of old ones (n,), from m of them, (m,).

    Who is in no row goes where most of its old cluster go; if they are as many or
    none, to the largest of these.
    """
    sizes = np.bincount(labels)
    going = np.tile(sizes / (len(labels) + 1), (old.max() + 1, 1))
    np.add.at(going, (old[rows], labels), 1)
    new: IntArray = going.argmax(axis=1)[old]
    new[rows] = labels
    return new


class Flux(ProfileStrategy):
    """FedAvg, then one clustering, then FedAvg in each cluster."""

    Settings = FluxSettings
    State = FluxState

    def welcome(self, server_round: int, newcomers: list[Result]) -> None:
        """Put newcomers into the cluster with the most similar inputs."""
        state = self.state
        if not state.profiler:
            super().welcome(server_round, newcomers)
            return
        places = state.places()
        inputs = state.label_free(np.stack([each.report for each in newcomers]))
        gaps = profile_distances(inputs, places["landmarks"], places["ranges"])
        state.join(newcomers, gaps.argmin(axis=1))

    def good_enough(self, server_round: int) -> bool:
        """Return whether the common model can describe data, before a round."""
        settings = self.settings
        known = self.state.accuracies
        early = server_round <= settings.warmup
        # At the latest after this share of all rounds.
        late = server_round - 1 >= settings.latest * self.run.config.rounds
        flat = len(known) >= settings.warmup and (np.diff(known) < settings.gain).any()
        return not early and (late or bool(flat))

    def plan_train(self, server_round: int) -> Plan:
        """Cluster if it is time; ask how good the common model is before that."""
        drift = server_round in self.settings.drift_rounds
        if drift if self.state.profiler else self.good_enough(server_round):
            self.cluster(server_round)
        plan = super().plan_train(server_round)
        asked = {} if self.state.profiler else {FITS: True}
        return replace(plan, config=plan.config | asked)

    def cluster(self, server_round: int) -> None:
        """Cluster all clients; each cluster goes on with the most similar one's model.

        Clients that do not answer go where most of their cluster go.
        """
        state = self.state
        rows, profiles = self.ask_profiles(server_round)
        # DBSCAN of the scaled descriptors, which finds its own epsilon.
        labels = adaptive_clusters(scaled(profiles, state.ranges))
        sizes = np.bincount(labels)
        centres = cluster_centres(profiles, labels, len(sizes))
        # The authors' match_centroids_to_previous, flux_dynamic/server.py, line 199.
        gaps = profile_distances(centres, state.sources, state.ranges)
        state.models = [state.models[each] for each in gaps.argmin(axis=1)]
        state.sources = centres
        state.clusters = followed(state.clusters, rows, labels)
        self.run.record.reclustered = True

    def read_result(self, phase: str, result: Result) -> Result:
        """Read a descriptor, or how many samples the common model got right."""
        if phase == "train" and not self.state.profiler:
            count = result.num_examples
            right = read_number(result, FITS, range(count + 1))
            # Here, as the number of samples that weighs may be limited later.
            return replace(result, report=(right, count - right))
        return super().read_result(phase, result)

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Average each cluster; note how good the received common model was."""
        state = self.state
        if not state.profiler and server_round > 1:
            told = np.array([each.report for each in results])
            right, wrong = capped_counts(told, self.settings.weight_cap).T
            share = right.sum() / (right.sum() + wrong.sum())
            state.accuracies = np.append(state.accuracies, share)
        super().absorb_train(server_round, results)
