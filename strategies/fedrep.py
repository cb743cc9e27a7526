"""FedRep: a shared extractor, personal classifiers.

Collins et al., "Exploiting Shared Representations for Personalized Federated Learning"
(ICML 2021; Algorithm 1). Each round: participants train their own classifier with the
extractor frozen, then the extractor with the classifier frozen -> extractors are
averaged.

Server keeps: the extractor. Leaves the device: the extractor of a participant.
"""

from __future__ import annotations

from cfl_flower.engine.method import Disclosure
from cfl_flower.settings import settings
from cfl_flower.state import Weighting
from strategies.families.decoupled import DecoupledSettings, DecoupledStrategy


@settings("strategy")
class FedRepSettings(DecoupledSettings):
    """FedRep's settings."""

    weighting: Weighting = "plain"


class FedRep(DecoupledStrategy):
    """Averages extractors; classifiers stay at the clients."""

    Settings = FedRepSettings
    discloses = Disclosure()
