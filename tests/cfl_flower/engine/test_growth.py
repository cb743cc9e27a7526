"""What a server holds grows with clusters, and not with clients or rounds."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from cfl_flower.models import build_model
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.callbacks import Callback
from cfl_flower.runs.checkpoint import pack
from cfl_flower.runs.loggers import NoLogger
from cfl_flower.state import ClusteredState

CLIENTS = 12

HELD = list[tuple[float, float]]()
"""What a run's server held after each round, in models, and its bound."""


class Noting(NoLogger):
    @contextmanager
    def open(self, config: RunConfig, done: int) -> Iterator[Callback]:
        shape, classes = config.dataset.shape, config.dataset.classes
        length = len(build_model(config.model, shape, classes, 0).vector)
        each, beside = BOUNDS[config.names["strategy"]]
        yield lambda _, __, state: HELD.append(
            (models_held(state, length), each * len(state.models) + beside)
        )


def models_held(state: ClusteredState, length: int) -> float:
    """Return how many float32 models would take as much memory as a state's vectors."""
    arrays: dict[str, np.ndarray] = {}
    pack(state, arrays)
    held = {}
    for each in arrays.values():
        # Of a view, the whole that it is of.
        whole = each.base if isinstance(each.base, np.ndarray) else each
        if whole.size >= length / 2:
            held[id(whole)] = whole.nbytes
    return sum(held.values()) / (4 * length)


BOUNDS = {
    "fedavg": (1, 0),
    "ditto": (1, 0),
    "fesem": (1, 0),
    "feddrift": (1, 0),
    "fedccfa": (1, 0),
    # The direction of each group as well.
    "flexcfl": (2, 0),
    # The models from before each split.
    "cfl": (2, 0),
    # What clients were last served, whose mixtures differ, and uploads to take in.
    "ccfl": (1, 2 * CLIENTS),
    # A psi alone is float32, the sum of several float64.
    "stocfl": (3, 1),
}
"""How many models a method keeps for each cluster, and beside them."""
OPTIONS = {
    "fedccfa": ["model=mlp", "model.hidden=32"],
    "cfl": ["strategy.first=0", "strategy.norms=relative", "strategy.eps1=9"],
    "feddrift": ["strategy.delta=0.01"],
    "stocfl": ["strategy.threshold=0.9"],
}


@pytest.mark.parametrize("strategy", BOUNDS)
def test_a_server_holds_a_few_models_for_each_cluster(strategy, run_small, monkeypatch):
    # What is kept of a psi that will not be needed again is small beside a model.
    monkeypatch.setattr("strategies.stocfl.method.KEPT", 64)
    HELD.clear()
    options = [f"strategy={strategy}", "rounds=6", *OPTIONS.get(strategy, [])]
    run_small(*options, f"clients={CLIENTS}", f"logger._target_={__name__}.Noting")
    assert len(HELD) == 6
    assert all(found <= bound for found, bound in HELD), HELD
