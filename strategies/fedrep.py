"""FedRep: a shared extractor, personal classifiers.

Collins et al., "Exploiting Shared Representations for Personalized Federated Learning"
(ICML 2021; Algorithm 1). Each round: participants train their own classifier with the
extractor frozen, then the extractor with the classifier frozen -> extractors are
averaged by samples.

Server keeps: the extractor. Leaves the device: the extractor of a participant.

Deviations and readings:

* The classifier trains for 1 epoch at a rate of its own and the extractor for
  `local.epochs`, as in FedCCFA's comparison; the paper takes 10 epochs and 1.
* Classifiers start from each client's own random draw, as there.
* While the classifier trains, the frozen extractor represents as at a test: without
  dropout, and with BatchNorm's running statistics. Its output is then a fixed
  representation of a sample, which is made once.
* Everyone is tested with the fresh extractor; in FedCCFA's code those who did not take
  part lately are tested with the one of their last round.
"""

from __future__ import annotations

from strategies.decoupled import DecoupledStrategy


class FedRep(DecoupledStrategy):
    """Extractors are averaged, classifiers stay at home."""
