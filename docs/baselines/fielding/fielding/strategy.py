"""The strategies: Fielding, and those that it is compared with."""

from __future__ import annotations

from typing import Any

from flwr.app import ArrayRecord, Context

from cfl_flower import strategies
from fielding.model import make_net

CLUSTERS = 5
"""For methods that do not find the number of clusters themselves."""


def first_arrays(seed: int) -> ArrayRecord:
    """Return the arrays that training starts from."""
    return ArrayRecord(make_net(seed).state_dict())


METHODS: dict[str, dict[str, Any]] = {
    "FedAvg": {},
    # Algorithm 2, lines 4 and 5: tau is a third of the mean distance of centres.
    "Fielding": {"threshold": 1 / 3, "distance": "l1"},
    "Static": {},
    "FlexCFL": {"clusters": CLUSTERS},
    "IFCA": {"clusters": CLUSTERS, "reseeded": first_arrays},
    "FedDrift": {"delta": 0.5},
    "Auxo": {"split_rounds": [6, 18]},
    "CFL": {"norms": "relative", "first": 6},
    "FeSEM": {"clusters": CLUSTERS, "reseeded": first_arrays},
    "StoCFL": {"threshold": 0.3, "regularisation": 0.0},
}
"""The settings of each method, by its name."""


def make_strategy(name: str, context: Context) -> Any:
    """Return a method's strategy, in the place of FedAvg."""
    config = context.run_config
    nodes = int(config["num-clients"])
    return getattr(strategies, name)(
        fraction_train=float(config["fraction-train"]),
        min_available_nodes=nodes,
        seed=int(config["seed"]),
        **METHODS[name],
    )
