"""What a server holds grows with clusters, and not with clients or rounds."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from cfl_flower.models import initial_vector
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
        length = len(initial_vector(config.model, shape, classes, 0))
        bound = BOUNDS[config.names["strategy"]]
        yield lambda _, __, state: HELD.append(
            (models_held(state, length), bound(state))
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


def per_cluster(models: float, beside: float = 0) -> Callable[[ClusteredState], float]:
    """Return the bound of a method that keeps so many models for each of K clusters."""
    return lambda state: models * len(state.models) + beside


BOUNDS: dict[str, Callable[[ClusteredState], float]] = {
    "fedavg": per_cluster(1),
    "ditto": per_cluster(1),
    "fesem": per_cluster(1),
    "feddrift": per_cluster(1),
    "fedccfa": per_cluster(1),
    # The direction of each group as well.
    "flexcfl": per_cluster(2),
    # The models from before each split.
    "cfl": per_cluster(2),
    # What clients were last served, whose mixtures differ, and uploads to take in.
    "ccfl": per_cluster(1, 2 * CLIENTS),
    # A psi alone is float32, the sum of several float64.
    "stocfl": per_cluster(3, 1),
}
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
