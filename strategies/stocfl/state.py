"""StoCFL's settings, and what its server keeps of clients and clusters."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from cfl_flower.clustering.similarity import normalise
from cfl_flower.settings import Count, Natural, require, settings
from cfl_flower.state import ClusteredState, Weighting, no_clusters
from cfl_flower.types import BoolArray, FloatArray, IntArray, Vector
from strategies.ditto import DittoSettings

UNKNOWN = 0
"""The cluster of the clients whose psi the server does not know; its model is omega."""

EMPTY: FloatArray = np.zeros(0)
"""The sum of psi of a cluster without members."""


@settings("strategy")
class StoCFLSettings(DittoSettings):
    """Ditto's settings, for the models of clusters, and StoCFL's own."""

    idle_unless = DittoSettings.idle_unless | {
        "representation_epochs": "representation=difference"
    }

    client: str = "clients.stocfl.StoCFLClient"
    weighting: Weighting = "plain"
    threshold: Annotated[float, Field(ge=-1, le=1)] = 0.5
    """tau, the cosine above which two clusters are merged."""
    representation: Literal["gradient", "difference"] = "gradient"
    """psi: the gradient at the anchor; or anchor - trained model (the code)."""
    representation_epochs: Count = 1
    """Epochs of the training for a difference; 10 or 20 in the code."""
    sketch: Natural = 0
    """k, the dimension of the random projection of psi; 0 reports all of it."""
    recompute: bool = True
    """Cluster vectors are computed anew after each merge; false in the code."""
    merged_model: Literal["mean", "larger"] = "mean"
    """The mean of the trained ones, by members; or the larger cluster's (the code)."""
    omega: Literal["parallel", "sequential"] = "parallel"
    """Participants train omega side by side; or one after the other (the code)."""
    service: Literal["cluster", "omega"] = "cluster"
    """Clients are served their cluster's model, or the global one."""
    refresh: Literal["never", "on_drift"] = "never"
    """Clients report psi once, as in the paper; or again if their data changed."""

    def check_privacy(self) -> None:
        """Require that psi is reported once, and omega never alone."""
        allowed = "never with privacy=, as later reports get no noise"
        require(self.refresh == "never", "strategy.refresh", self.refresh, allowed)
        self.check_secure_sums()

    def check_secure_sums(self) -> None:
        """Require that omega is never sent alone."""
        allowed = "parallel with privacy=, which is of means, and with secure sums"
        require(self.omega == "parallel", "strategy.omega", self.omega, allowed)


@dataclass
class StoCFLState(ClusteredState):
    """StoCFL's state; ``models[0]`` is omega."""

    representations: list[Vector] = field(default_factory=list)
    """Each client's psi, of which a picture of the clients (docs/results/stocfl.md)
    needs the cosines: a sketch, or all of it with `refresh=on_drift`; empty for those
    not known yet."""
    reported: IntArray = field(default_factory=no_clusters)
    """The round in which each client's psi arrived, shape (n,)."""
    sums: list[FloatArray] = field(default_factory=lambda: [EMPTY])
    """The sum of its members' psi for each cluster; empty for cluster 0.

    Float64; of a client alone its own psi, as it came."""
    trained: BoolArray = field(default_factory=lambda: np.zeros(1, bool))
    """Whether any client has trained the cluster's model, shape (K,)."""

    def places(self) -> dict[str, FloatArray]:
        """Return the direction of each cluster, of length 1; none of cluster 0."""
        units = [normalise(each) for each in self.sums[1:]]
        nothing = np.full((1, *units[0].shape), np.nan) if units else np.zeros((1, 0))
        return {"directions": np.vstack([nothing, *units])}

    def known(self) -> BoolArray:
        """Return which clients have reported psi, shape (n,)."""
        return np.array([len(each) > 0 for each in self.representations], bool)

    def open_cluster(self, row: int, direction: Vector, origin: int) -> None:
        """Make a client a cluster of its own, with the model of cluster ``origin``."""
        self.clusters[row] = len(self.models)
        self.models.append(self.models[origin])
        self.sums.append(direction)
        # Omega is the model of no cluster, so that ``trained[0]`` is always false.
        self.trained = np.append(self.trained, self.trained[origin])

    def add_direction(self, cluster: int, direction: FloatArray) -> None:
        """Add a psi, or a sum of several, to a cluster's sum."""
        self.sums[cluster] = np.add(self.sums[cluster], direction, dtype=np.float64)

    def drop_empty(self) -> None:
        """Remove clusters without members, and renumber the others in order."""
        keep = self.sizes > 0
        keep[UNKNOWN] = True
        kept = np.flatnonzero(keep).tolist()
        self.clusters = (np.cumsum(keep) - 1)[self.clusters]
        self.models = [self.models[cluster] for cluster in kept]
        self.sums = [self.sums[cluster] for cluster in kept]
        self.trained = self.trained[kept]
