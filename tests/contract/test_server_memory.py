"""What the server optimiser remembers goes on, whatever happens to models after it."""

from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.clustering.representations import digest
from cfl_flower.learning.aggregation import Average, Memory
from cfl_flower.state import ClusteredState, no_clusters
from cfl_flower.types import Vector
from tests.conftest import open_method

pytestmark = pytest.mark.contract

ROUNDS = 8
MANY = ["drift.rounds=[2,3,4,5,6,7,8]"]
MLP = ["model=mlp", "model.hidden=16"]
FLUX = ["strategy=flux", "strategy.gain=1", "strategy.drift_rounds=[6,8]"]
FLEX = ["strategy=flexcfl", "clusters=3", "strategy.mixing=0.1"]
STOCFL = ["strategy=stocfl", "clients=12", "participants=2", "partition.groups=3"]
DRIFT = ["strategy=feddrift", "drift=sudden", "drift.rounds=[5]"]

CHANGES = {
    "mixing": (FLEX, 8),
    "mixing as a sum": ([*FLEX, "strategy.mixing_form=sum"], 8),
    "re-clustering": (
        ["strategy=fielding", "strategy.threshold=0", "drift.fraction=0.5", *MANY],
        8,
    ),
    "true clusters": (["strategy=oracle", "drift.fraction=0.5", *MANY], 8),
    "splits": (
        [*("strategy=cfl", "strategy.eps1=100", "strategy.eps2=0"), "strategy.first=1"],
        8,
    ),
    "cohorts": (
        ["strategy=auxo", "strategy.split_rounds=[2]", "strategy.smallest=2"],
        8,
    ),
    "clusterings": ([*FLUX, *MLP], 8),
    "choices": (["strategy=ifca", "clusters=2"], 8),
    "nearest models": (["strategy=fesem", "clusters=2"], 8),
    "components": (["strategy=fedem"], 8),
    "extractors": (["strategy=fedrep", *MLP], 8),
    # A drifted client's model is its own at first: it is merged in the next round.
    "merges by losses": ([*DRIFT, "strategy.local.epochs=5", "strategy.delta=0.3"], 3),
    # Each has the momentum of omega, from which it began, or of those it is made of.
    "merges by directions": (STOCFL, 3),
    "merges, the larger": ([*STOCFL, "strategy.merged_model=larger"], 3),
    "clients that move": (["strategy=stocfl", "strategy.refresh=on_drift", *MANY], 8),
    "secure sums": (["strategy=fedavg", "privacy.secure_sums=true"], 8),
    "noise": (["strategy=fedavg", "privacy=central", "strategy.weighting=plain"], 8),
}
"""What is done to models beside the server's steps: settings in which it happens often,
and the steps that lead to the youngest model after all rounds."""


class Steps(Average):
    """A server optimiser that remembers how many steps led to a model."""

    def step(
        self, model: Vector, mean: Vector, weights: int, memory: Memory
    ) -> tuple[Vector, Memory]:
        """Return the mean of the results, and one step more."""
        del model, weights
        return mean, [memory[0] + 1 if memory else np.ones(1, np.float32)]


class Half:
    """One of one's own, without a base class or a memory."""

    by_loss: ClassVar[bool] = False

    def step(
        self, model: Vector, mean: Vector, weights: int, memory: Memory
    ) -> tuple[Vector, Memory]:
        """Return the middle of the model and its results' mean."""
        return model + (mean - model) / 2, []


def counting(folder: Path, *overrides: str, by: Any = Steps) -> Any:
    """Return a method whose server optimiser counts its steps."""
    method = open_method(folder, *overrides)
    config = replace(method.run.config, server_optimizer=by())
    method.engine.context.config = config
    return method


@pytest.mark.parametrize("change", CHANGES)
def test_the_server_optimiser_goes_on_whatever_is_done_to_models(change, tmp_path):
    options, youngest = CHANGES[change]
    small = ["clients=8", "participants=8", f"rounds={ROUNDS}", "partition.groups=2"]
    method = counting(tmp_path, *small, "strategy.local.epochs=1", *options)
    method.engine.run()
    memories = method.state.memories.values()
    assert min(float(memory[0][0]) for memory in memories) == youngest
    # It forgets models that there are no more.
    assert len(memories) <= len(method.state.models)


@pytest.mark.parametrize("name", ["fedavg", "fielding", "ifca", "stocfl", "fedem"])
def test_an_optimiser_without_a_memory_takes_its_steps(name, tmp_path):
    found = []
    for by in (Average, Half):
        method = counting(tmp_path / by.__name__, f"strategy={name}", "rounds=1", by=by)
        before = [model.copy() for model in method.state.models]
        method.engine.run()
        pairs = zip(method.state.models, before, strict=False)
        found.append([model - first for model, first in pairs])
    for whole, half in zip(*found, strict=True):
        np.testing.assert_allclose(half, whole / 2, rtol=0, atol=1e-5)
    assert any(abs(whole).max() > 1e-2 for whole in found[0])


@pytest.mark.parametrize("strategy", ["fedavg", "fedrep"])
def test_a_round_without_results_forgets_nothing(strategy, tmp_path):
    """Of an extractor, too, which is a part of the model that the server keeps."""
    method = counting(tmp_path, f"strategy={strategy}", *MLP)
    part = method.extractor if strategy == "fedrep" else method.state.models[0]
    for results in (1, 0, 1):
        method.engine.services.begin_steps()
        for _ in range(results):
            part = method.run.step(part, part + 1, 0)
            method.state.models = [part]
        method.engine.services.keep_memories()
    (memory,) = method.state.memories.values()
    assert memory[0].tolist() == [2]


def vectors(count: int) -> st.SearchStrategy[list[list[int]]]:
    """Return lists of so many different vectors of two whole numbers."""
    pairs = st.lists(st.integers(-9, 9), min_size=2, max_size=2)
    return st.lists(pairs, min_size=count, max_size=count, unique_by=tuple)


@given(vectors(3), vectors(3), st.lists(st.integers(1, 5), min_size=3, max_size=3))
def test_mixed_models_have_a_memory_mixed_alike(models, momenta, shares):
    state = ClusteredState([], no_clusters(), [np.float32(each) for each in models])
    pairs = zip(state.models, momenta, strict=True)
    state.memories = {digest(model): [np.float32(own)] for model, own in pairs}
    kept = dict(state.memories)
    # All three in one, the first two in one, the last alone.
    mixing = np.array([shares, [*shares[:2], 0], [0, 0, 1]], float)
    state.mix(mixing)
    for row, model in zip(mixing, state.models, strict=True):
        expected = row @ np.array(momenta) / row.sum()
        found = kept.get(digest(model), state.memories[digest(model)])
        if digest(model) not in kept:
            assert found[0] == pytest.approx(expected, abs=1e-5)


def test_models_of_which_nothing_is_remembered_have_no_part_in_it():
    one, two, fresh = np.float32([[1.0], [2.0], [3.0]])
    state = ClusteredState([], no_clusters(), [one, two])
    state.memories = {digest(one): [np.float32([8])]}
    state.hand_on([one, two], np.array([1.0, 3.0]), fresh)
    assert state.memories[digest(fresh)][0].tolist() == [8]
    state.hand_on([two], np.ones(1), np.float32([4]))
    assert digest(np.float32([4])) not in state.memories


class Torn(Half):
    """One whose memory is no list of arrays."""

    memory: Any = None

    def step(self, model: Vector, mean: Vector, weights: int, memory: Memory) -> Any:
        """Return the results' mean, and what the test says."""
        return mean, self.memory


@pytest.mark.parametrize("memory", [None, [3.0], np.ones(3), "", (1,)])
def test_a_memory_that_no_checkpoint_could_have_is_refused(
    memory, tmp_path, monkeypatch
):
    monkeypatch.setattr(Torn, "memory", memory)
    method = counting(tmp_path, "strategy=fedavg", "rounds=1", by=Torn)
    with pytest.raises(TypeError, match=r"Torn\.step remembers .* list of arrays"):
        method.engine.run()
