"""FedRC: mixtures of models that differ in what labels mean, and in nothing else.

Guo et al., "FedRC: Tackling Diverse Distribution Shifts Challenge in Federated Learning
by Robust Clustering" (ICML 2024). FedEM with another E-step: how probable a sample is
under component m, exp(-l_m), is divided by the share of its label y among all samples
of the component, C_{y;m}. So clients with other labels or other inputs share the
components, and clients with another concept do not.

Server keeps: M models, and C (M L floats). Leaves the device: M models (M d floats); of
its samples the share that has each label and belongs to each component (M L floats).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cfl_flower.communication.results import Results
from cfl_flower.engine.method import Disclosure
from cfl_flower.settings import settings
from cfl_flower.state import ClusteredState
from cfl_flower.types import FloatArray, Vector
from strategies.fedem import FedEM, FedEMSettings


@settings("strategy")
class FedRCSettings(FedEMSettings):
    """FedRC's settings."""

    client: str = "clients.fedrc.FedRCClient"


@dataclass
class FedRCState(ClusteredState):
    """FedRC's state."""

    label_shares: FloatArray = field(default_factory=lambda: np.ones((1, 1)))
    """C: the share of each label in each component, shape (M, L)."""


def even_shares(components: int, classes: int) -> FloatArray:
    """Return C at first, (M, L): all labels are as frequent in each component."""
    return np.full((components, classes), 1 / classes)


def share_labels(joint: FloatArray, before: FloatArray) -> FloatArray:
    """Return C, (M, L): each label's share among the samples of a component.

    ``joint`` has the share of the participants' samples that have the label and belong
    to the component, (M, L). A label that nobody has in a component keeps its share
    ``before`` there, so that a row may sum to more than 1.

    Examples
    --------
    >>> share_labels(np.array([[0.25, 0.75], [0.5, 0]]), np.full((2, 2), 0.5)).tolist()
    [[0.25, 0.75], [1.0, 0.5]]
    """
    totals = joint.sum(axis=1, keepdims=True)
    shares = joint / np.where(totals > 0, totals, 1)
    return np.where(joint > 0, shares, before)


class FedRC(FedEM):
    """FedEM whose components have label shares."""

    Settings = FedRCSettings
    State = FedRCState
    discloses = Disclosure(models=3, uncovered="label shares of each component")

    def initial_state(self) -> Any:
        """Return FedEM's components; at first all labels are as frequent."""
        classes = self.run.config.dataset.classes
        even = even_shares(self.settings.components, classes)
        return replace(super().initial_state(), label_shares=even)

    def sent(self) -> list[Vector]:
        """Return the components, and C in one vector."""
        shares = self.state.label_shares.astype(np.float32)
        return [*super().sent(), shares.ravel()]

    def absorb_train(self, server_round: int, results: Results) -> None:
        """Average the components, and the label shares."""
        super().absorb_train(server_round, results)
        last = len(self.state.models)
        total = results.sums.get((last, last))
        if total is not None:
            before = self.state.label_shares
            joint = total.mean().reshape(before.shape).astype(float)
            # C_{y;m}: the mean of q over samples with label y, by that over all.
            self.state.label_shares = share_labels(joint, before)
