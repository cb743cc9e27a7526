"""Ditto: a global model, and a model of one's own near it on each device.

Li et al., "Ditto: Fair and Robust Federated Learning Through Personalization" (ICML
2021; Algorithm 1). Each round: participants receive the global model omega, train it,
and train their own model v on f(v) + lambda/2 ||v - omega||^2 -> the trained omegas are
averaged; v stays on the device, and is what the client is served.

Server keeps: one model. Leaves the device: the trained global model (d floats).

Deviations and readings:

* The proximal term holds v near the global model as received, before this round's
  average, as in the paper.
* v is first trained from the global model that the client then receives, or from w_0
  (`start: initial`); in FedCCFA's comparison from the client's own random weights. A
  client without v is served the global model.
* Both models get the same local optimiser and as many epochs. Ditto's own is free.
* Averages are plain, as StoCFL's: the paper weights by samples (`weighting`).
* lambda is 0.05 by default, as StoCFL's; FedCCFA's comparison takes 5 at eta = 0.01.
"""

from __future__ import annotations

from strategies.base import Published
from strategies.bilevel import BilevelSettings
from strategies.fedavg import FedAvg


class Ditto(FedAvg):
    """FedAvg; what is served is each client's own model, which never leaves it."""

    Settings = BilevelSettings
    published = Published("the global model, not the clients' own ones")
