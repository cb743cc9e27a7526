"""FedAvg: one global model for all clients.

McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized
Data" (AISTATS 2017; Algorithm 1): sample M clients, train locally, average by samples.
"""

from __future__ import annotations

from cfl_flower.engine.method import ClusteredStrategy, Disclosure


class FedAvg(ClusteredStrategy):
    """All clients stay in cluster 0."""

    discloses = Disclosure()
