from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.client.model_privacy import BASES, BOUNDS, bound_updates
from cfl_flower.communication.partial_sums import PartialSums, add_result
from cfl_flower.engine.stages.robust_means import (
    FEWEST_OF_BULYAN,
    RULES,
    group_results,
    robust_update,
)
from cfl_flower.engine.stages.secure_sums import read_lengths
from cfl_flower.privacy.clipping import nearest, shortened, update_length
from cfl_flower.types import UPDATE_LENGTHS, Plan, Result, SumSpec, Task
from simulations.engines.inprocess import InProcessGrid
from tests.conftest import SYSTEMS, Run, open_method, sample
from tests.contract.test_strategies import NAMES, NEEDS

METHODS = ["fedavg", "fielding", "ifca", "flexcfl", "stocfl", "fedccfa", "fedem"]
ONE_BY_ONE = ["ccfl", "fedasync", "fedsoft"]
LIAR = 2
NOISE = [f"faults.attackers=[{LIAR}]", "faults.attack=noise"]
COUNT = [f"faults.attackers=[{LIAR}]", "faults.attack=count"]


def largest(run: Run) -> float:
    return max(float(abs(model).max()) for model in run.state.models)


def honest_accuracy(run: Run) -> float:
    tests = [row for row in run.clients if row["round"] == 6 and row["client"] != LIAR]
    return float(np.mean([row["accuracy"] for row in tests]))


def seen(run: Run, measure: str) -> list[Any]:
    return [client for row in run.rounds for client in row.get(measure, [])]


# The rules ---------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("count", [3, 5, 6, 8, 12])
@pytest.mark.parametrize(("lie", "share"), [(-1e5, 0.2), (1e15, 0.01), (1e15, 0.499)])
def test_one_liar_cannot_leave_what_honest_updates_span(
    rule, count, lie, share, monkeypatch
):
    if rule == "bulyan" and count < FEWEST_OF_BULYAN:
        pytest.skip("Bulyan needs more")
    # Flower's Bulyan collects garbage for each result, of all tests before.
    monkeypatch.setattr("gc.collect", lambda *_: 0)
    InProcessGrid()  # Flower's messages are those of a run.
    honest = np.random.default_rng(0).normal(1, 0.1, (count - 1, 6)).astype(np.float32)
    updates = [*honest, np.full(6, lie, np.float32)]
    for turn in {0, count // 2, count - 1}:
        mixed = updates[turn:] + updates[:turn]
        found = robust_update(rule, mixed, [1.0] * count, share)
        assert found.dtype == np.float32
        assert (honest.min(axis=0) - 1e-5 <= found).all()
        assert (found <= honest.max(axis=0) + 1e-5).all()


@given(
    st.floats(0, 1e3), st.lists(st.floats(-(2.0**49), 2.0**49, width=32), min_size=1)
)
def test_a_shortened_update_is_no_longer_than_its_bound(bound, numbers):
    received = np.ones(len(numbers), np.float32)
    model = np.array(numbers, np.float32)
    rounding = 1e-6 * len(numbers)
    assert update_length(shortened(model, received, bound), received) <= (
        bound * (1 + 1e-6) + rounding
    )


def test_results_are_grouped_by_the_model_that_they_are_versions_of():
    models = [np.zeros(2, np.float32), np.full(2, 9, np.float32)]
    plan = Plan([Task(c, (0, 1)) for c in range(4)] + [Task(4, (1,))], models)
    near = [np.float32([8, 9])]
    results = [
        Result(0, 1, near),
        Result(1, 1, [np.float32([1, 0])]),
        # Who says which model it chose is not asked again, however far it is.
        Result(2, 1, near, metrics={"cluster": 0}),
        Result(3, 1, [np.float32([1, 2, 3])]),
        Result(4, 1, [np.float32([-1e5, 0]), np.float32([])]),
    ]
    own = {(0, None): [3], (1, None): [4]}
    assert group_results(plan, results) == {(0, 0): [1, 2], (0, 1): [0, 4], **own}
    assert nearest(np.float32([1]), models) is None


# Whole runs --------------------------------------------------------------------


@pytest.mark.parametrize("method", sample(METHODS + ONE_BY_ONE, [*SYSTEMS, "fedavg"]))
def test_noise_of_one_client_is_clipped_in_every_method(method, run_small):
    # One with an extractor.
    options = ["model=mlp"] if method == "fedccfa" else []
    run = run_small(f"strategy={method}", "strategy.robust=clip", *NOISE, *options)
    assert largest(run) < 100
    # FedSoft's liar sends shares that are none, and is refused.
    refused = [each["client"] for each in run.failures]
    assert LIAR in [*seen(run, "clipped"), *refused]


@pytest.mark.parametrize("method", sample(NAMES, ["fedpac", "fedccfa"]))
def test_noise_of_one_client_costs_the_others_little_if_it_is_clipped(
    method, run_small
):
    """Of FedPAC's classifiers, for which none was sent, too."""
    needs = NEEDS.get(f"strategy={method}", [])
    plain = [f"strategy={method}", "strategy.robust=clip", "rounds=6", *needs]
    whole = honest_accuracy(run_small(*plain, folder="whole"))
    # CFL splits off who differs.
    assert honest_accuracy(run_small(*plain, *NOISE)) > whole - 0.12


@pytest.mark.parametrize(
    ("rule", "method"), [*((rule, "stocfl") for rule in RULES), ("median", "ifca")]
)
def test_noise_of_one_client_is_outvoted_by_every_rule(rule, method, run_small):
    run = run_small(f"strategy={method}", f"strategy.robust={rule}", *NOISE)
    assert largest(run) < 100


@pytest.mark.parametrize("method", ["fedavg", "stocfl", "ccfl"])
def test_without_a_rule_noise_is_in_the_models(method, run_small):
    assert largest(run_small(f"strategy={method}", *NOISE)) > 1000


# Weights -----------------------------------------------------------------------

SAMPLES = "strategy.weighting=samples"


@pytest.mark.parametrize(
    "options",
    [
        ["strategy=fedavg"],
        ["strategy=fielding"],
        ["strategy=ifca"],
        ["strategy=stocfl"],
        ["strategy=fedem"],
        ["strategy=fedavg", "strategy.robust=multikrum"],
        ["strategy=stocfl", "strategy.robust=clip"],
        ["strategy=fedavg", "privacy.secure_sums=true"],
    ],
)
def test_a_claim_of_many_samples_is_capped_and_recorded(options, run_small):
    run = run_small(*options, SAMPLES, *COUNT)
    assert set(seen(run, "capped")) == {LIAR}


def test_a_capped_result_weighs_at_most_the_limit():
    tasks = [Task(client, (0,)) for client in range(3)]
    results = [Result(c, n, [np.float32([c])]) for c, n in enumerate([4, 4, 2**28])]
    for by_samples, weight, mean in ((True, 48, (4 + 2 * 40) / 48), (False, 3, 1)):
        sums: PartialSums = {}
        for task, result in zip(tasks, results, strict=True):
            add_result(sums, task, result, SumSpec((0,), by_samples, most=40))
        assert sums[0, 0].weight == weight
        assert sums[0, 0].mean() == pytest.approx(mean)


@pytest.mark.parametrize("method", ["fedavg", "fielding", "stocfl"])
def test_a_cap_that_nobody_reaches_changes_no_number(method, run_small, undisturbed):
    options = [f"strategy={method}", SAMPLES]
    capped = undisturbed(*options)
    assert not seen(capped, "capped")
    assert run_small(*options, "strategy.weight_cap=null").numbers == capped.numbers


@pytest.mark.parametrize("clients", [1, 2, 3])
def test_a_few_devices_without_rounds_learn_although_they_are_clipped(
    clients, run_small
):
    options = [f"clients={clients}", f"participants={clients}", "drift=none"]
    run = run_small("strategy=fedasync", "strategy.robust=clip", *options)
    start = open_method(run.folder, "strategy=fedasync").state.models[0]
    assert not np.array_equal(run.state.models[0], start)


# Sums that nobody opens singly ---------------------------------------------------

SUMS = ["strategy.robust=clip", "privacy.secure_sums=true", "participants=8"]


@pytest.mark.parametrize("method", ["fedavg", "fielding", "stocfl", "ifca"])
def test_with_secure_sums_devices_shorten_their_own_updates(method, run_small):
    # Whom nobody sees does not shorten its own, and its group's mean is shortened.
    run = run_small(f"strategy={method}", *SUMS, *NOISE)
    assert largest(run) < 100
    assert all(length > 0 for length in run.state.typical_lengths)


def test_the_first_round_of_sums_only_tells_lengths(run_small):
    run = run_small("strategy=fedavg", *SUMS, "rounds=1")
    start = open_method(run.folder, "strategy=fedavg").state.models[0]
    np.testing.assert_array_equal(run.state.models[0], start)
    longer = run_small("strategy=fedavg", *SUMS, "rounds=3", folder="longer")
    assert not np.array_equal(longer.state.models[0], start)


def test_a_device_shortens_each_update_and_tells_how_long_it_was():
    received = [np.zeros(2, np.float32), np.ones(2, np.float32)]
    arrays = [np.float32([1, 2]), np.float32([3, 4]), np.zeros(0, np.float32)]
    config = {BASES: "1,0,0", BOUNDS: "10.0,2.5,0.0"}
    found, told = bound_updates(received, config, arrays)
    assert [array.tolist() for array in found] == [[1, 2], [1.5, 2], []]
    assert read_lengths(Result(0, 1, telemetry=told), 3).tolist() == [1, 5, 0]


@pytest.mark.parametrize(
    "sent", [b"", b"123", np.float32([np.nan]).tobytes(), np.float32([-1]).tobytes(), 3]
)
def test_lengths_that_are_none_are_not_counted(sent):
    assert read_lengths(Result(0, 1, telemetry={UPDATE_LENGTHS: sent}), 1) is None
