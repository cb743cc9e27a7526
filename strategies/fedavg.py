"""FedAvg: one global model for all clients.

McMahan et al., Communication-Efficient Learning of Deep Networks from Decentralized
Data, AISTATS 2017. Each round: sample M clients, train locally, average by samples
(Algorithm 1). It is the frame with a single cluster, the one in which it starts.

Deviations: none.
"""

from __future__ import annotations

from strategies.base import ClusteredStrategy


class FedAvg(ClusteredStrategy):
    """All clients stay in cluster 0."""
