"""Sums of models that do not depend on who adds what, and what devices add up."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

from cfl_flower.communication.exact_sum import (
    BLOCK,
    COARSE,
    FINE,
    ExactSum,
    check_range,
)
from cfl_flower.communication.fleet import Fleet
from cfl_flower.communication.outstanding import PendingMessage
from cfl_flower.communication.partial_sums import (
    PartialSums,
    add_answer,
    open_sums,
    remaining_reply,
    versions_of_node,
)
from cfl_flower.communication.portions import portions
from cfl_flower.communication.results import Results
from cfl_flower.communication.task_records import TaskBatch
from cfl_flower.config.compose import compose_config
from cfl_flower.errors import InvalidResultError
from cfl_flower.models import build_model
from cfl_flower.run_config import RunConfig
from cfl_flower.types import Answer, Plan, SumSpec, Task, Vector
from simulations.engines.inprocess import InProcessGrid

SEEDS = st.integers(0, 10**6)


def some_models(seed: int, length: int = 5) -> tuple[list[Vector], list[int]]:
    """Return models of very unequal numbers, and weights."""
    rng = np.random.default_rng(seed)
    sizes = 10.0 ** rng.integers(-7, 4, (9, length))
    models = (rng.normal(size=(9, length)) * sizes).astype(np.float32)
    return list(models), rng.integers(1, 300, 9).tolist()


def sum_of(models: list[Vector], weights: list[int]) -> ExactSum:
    total = ExactSum.empty(len(models[0]))
    for model, weight in zip(models, weights, strict=True):
        total.add(model, weight)
    return total


def value(total: ExactSum, entry: int) -> Fraction:
    """Return an entry of the sum, without any rounding."""
    offsets = [
        int(np.float64(1.5 * 2.0**52 * u).view(np.int64)) for u in (COARSE, FINE)
    ]
    parts = [int(limb[entry]) for limb in total.limbs]
    wrapped = [
        (part - total.terms * offset + 2**63) % 2**64 - 2**63
        for part, offset in zip(parts, offsets, strict=True)
    ]
    return wrapped[0] * Fraction(COARSE) + wrapped[1] * Fraction(FINE)


@given(SEEDS, st.permutations(range(9)), st.integers(0, 9))
@settings(deadline=None, max_examples=40)
def test_neither_order_nor_grouping_changes_a_bit(seed, order, cut):
    models, weights = some_models(seed)
    whole = sum_of(models, weights)
    parts = ExactSum.empty(5)
    for part in (order[:cut], order[cut:]):
        if part:
            parts.merge(sum_of([models[i] for i in part], [weights[i] for i in part]))
    one = sum_of(models[:2], weights[:2])
    limbs, copied = one.limbs.tolist(), ExactSum.empty(5)
    copied.merge(one)
    copied.add(models[0], 1)
    assert one.limbs.tolist() == limbs
    assert parts.limbs.tolist() == whole.limbs.tolist()
    assert (parts.terms, parts.weight) == (whole.terms, whole.weight)
    assert parts.mean().tolist() == whole.mean().tolist()
    sent = ExactSum(whole.limbs, whole.terms, whole.weight)
    assert sent.mean().tolist() == whole.mean().tolist()


@given(SEEDS)
@settings(deadline=None, max_examples=30)
def test_a_sum_is_that_of_the_fractions(seed):
    models, weights = some_models(seed)
    large = [np.where(abs(model) < 2.0**-31, 0, model) for model in models]
    total = sum_of(large, weights)
    for entry in range(5):
        pairs = zip(large, weights, strict=True)
        exact = sum(w * Fraction(float(model[entry])) for model, w in pairs)
        assert value(total, entry) == exact
        # One rounding to float64 for each limb and the quotient, one to float32.
        assert total.mean()[entry] == pytest.approx(float(exact) / sum(weights), 1e-7)


def test_numbers_below_the_finest_unit_are_rounded_to_it():
    tiny = np.float32([2.0**-56, -(2.0**-57), 1.4 * 2.0**-55, 1e-45])
    total = sum_of([tiny], [1])
    assert [value(total, i) / Fraction(FINE) for i in range(4)] == [0, 0, 1, 0]


@given(SEEDS)
@settings(deadline=None, max_examples=20)
def test_mean_of_one_is_itself(seed):
    rng = np.random.default_rng(seed)
    model = rng.normal(size=6).astype(np.float32)
    # What was added is a copy: a worker's array is written again.
    total, sent = ExactSum.empty(6), model.copy()
    total.add(sent, 977)
    sent[:] = 0
    assert total.mean().tolist() == model.tolist()
    assert total.mean().dtype == np.float32


@pytest.mark.parametrize(
    ("model", "weights"),
    [
        pytest.param([], [1, 1], id="a network that is all classifier"),
        pytest.param([2.0**31 - 128, 128 - 2.0**31], [1] * 1000, id="extremes"),
        pytest.param(range(2 * BLOCK + 7), [1, 3], id="several blocks"),
    ],
)
def test_the_mean_of_equal_models_is_that_model(model, weights):
    array = np.array(model, np.float32)
    check_range(array, 1)
    total = sum_of([array] * len(weights), weights)
    assert total.is_possible()
    assert np.array_equal(total.mean(), array)


@pytest.mark.parametrize(("limb", "sign"), [(0, 1), (0, -1), (1, 1), (1, -1)])
def test_a_sum_that_no_models_have_is_impossible(limb, sign):
    # Two terms below 2^31 are at most 2^32, in units of 2^-12.
    total = sum_of([np.zeros(3, np.float32)] * 2, [1, 1])
    total.limbs[limb, 1] += sign * 2**44
    assert total.is_possible()
    total.limbs[limb, 1] += sign
    assert not total.is_possible()


@pytest.mark.parametrize(("number", "weight"), [(2.0**31, 1), (-3e8, 8), (np.nan, 1)])
def test_entries_beyond_the_range_are_refused(number, weight):
    with pytest.raises(InvalidResultError) as caught:
        check_range(np.float32([0, number]), weight)
    assert caught.value.reason == "range"


# Results that are added up where they are made


# Tasks of two clusters' models, 3 and 7, and of the global one, 0.
TASKS = [Task(1, (0, 3)), Task(2, (0, 7)), Task(4, (0, 3))]
PLAN = Plan(TASKS, [], {}, (2, 2), SumSpec((1, 0), by_samples=True))


def answer(client: int, *numbers: float) -> Answer:
    return Answer(client, [np.float32([n, n]) for n in numbers], num_examples=client)


def make_batch(plan: Plan) -> TaskBatch:
    summed = versions_of_node(plan.tasks, plan.sum_spec, simulated=True)
    return TaskBatch("train", 1, "{}", plan, models={}, sharers={}, summed=summed)


def test_versions_that_several_tasks_make_are_summed():
    shared = versions_of_node(TASKS, PLAN.sum_spec, simulated=True)
    assert shared == {(0, 3), (1, 0)}
    left = [remaining_reply(task, PLAN, shared) for task in TASKS]
    assert left == [(0, 0), (2, 0), (0, 0)]
    assert versions_of_node(TASKS, None, simulated=True) == set()
    # A device hides its own, or sends it as it is.
    assert versions_of_node(TASKS, PLAN.sum_spec, simulated=False) == set()


def test_shared_versions_are_added_up_and_others_sent():
    batch = make_batch(PLAN)
    sums: PartialSums = {}
    assert add_answer(sums, batch, TASKS[0], None) is None
    assert sums == {}
    answers = [
        answer(int(task.client), task.models[1], 10 * place)
        for place, task in enumerate(TASKS)
    ]
    pairs = zip(TASKS, answers, strict=True)
    sent = [add_answer(sums, batch, *pair) for pair in pairs]
    left = [[a.tolist() for a in each.arrays] for each in sent if each]
    assert left == [[[], []], [[7, 7], []], [[], []]]
    weights = {key: each.weight for key, each in sums.items()}
    assert weights == {(0, 3): 5, (1, 0): 7}
    assert sums[0, 3].mean().tolist() == [3, 3]
    assert sums[1, 0].mean().tolist() == np.float32([100 / 7] * 2).tolist()


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (answer(2, 1, np.nan), "non-finite"),
        (answer(2, 1), "shape"),
        (replace(answer(2, 1, 1), num_examples=0), "count"),
        (answer(2, 1, 2e9), "range"),
        (Answer(2, error=("raised", "ValueError: no")), "raised"),
    ],
)
def test_invalid_answer_costs_only_itself(bad, reason):
    tasks = [Task(client, (0, 3)) for client in (1, 2, 4)]
    batch = make_batch(replace(PLAN, tasks=tasks))
    sums: PartialSums = {}
    answers = [answer(1, 5, 6), bad, answer(4, 5, 6)]
    pairs = zip(tasks, answers, strict=True)
    sent = [add_answer(sums, batch, *pair) for pair in pairs]
    told = [each.error and each.error[0] for each in sent if each]
    assert told == [None, reason, None]
    terms = {key: each.terms for key, each in sums.items()}
    assert terms == {(0, 3): 2, (1, 0): 2}
    assert sums[1, 0].mean().tolist() == [6, 6]


def reply(rows: str, limbs: np.ndarray) -> RecordDict:
    sums = ArrayRecord({"0": Array(limbs)})
    return RecordDict({"sums": sums, "summed": ConfigRecord({"rows": rows})})


LIMBS = np.zeros((2, 2), np.int64)
PENDING = PendingMessage("train", 1, PLAN, TASKS, 7, {(0, 3), (1, 0)})


@pytest.mark.parametrize(
    "content",
    [
        RecordDict(),
        reply("nonsense", LIMBS),
        reply("[[0, 3, 2]]", LIMBS),
        reply("[[0, 9, 2, 2]]", LIMBS),
        reply("[[2, 0, 2, 2]]", LIMBS),
        reply("[[0, -1, 2, 2]]", LIMBS),
        reply("[[0, 3, 2, 2]]", LIMBS[:, :1]),
        reply("[[0, 3, 2, 2]]", LIMBS[:1]),
        reply("[[0, 3, 2, 2]]", LIMBS.astype(float)),
        reply("[[0, 3, 2, 2], [1, 0, 2, 2]]", LIMBS),
    ],
)
def test_sums_that_cannot_be_read_are_refused(content):
    with pytest.raises(InvalidResultError, match="sum"):
        open_sums(content, PENDING, {}, simulated=True)


MODELS = [np.full(2, index, np.float32) for index in range(100)]


def sizes(plan: Plan, adders: int, **options: bool) -> list[int]:
    return [len(part.tasks) for part in portions(plan, adders, **options)]


def test_portions_are_as_large_as_their_answers_allow(monkeypatch):
    monkeypatch.setattr("cfl_flower.communication.portions.PORTION_FLOATS", 40)
    whole = replace(PLAN, models=MODELS)
    # Each result is 2 x 2 floats; a sum is 8.
    alike = replace(whole, tasks=[Task(i, (0, 3)) for i in range(100)])
    assert sizes(alike, 0) == [10] * 10
    assert sizes(replace(alike, sum_spec=None), 2) == [10] * 10
    assert sizes(alike, 1) == sizes(alike, 2) == [100]
    apart = replace(whole, tasks=[Task(i, (0, i)) for i in range(100)])
    # omega: 8 x 2 floats, as much as a sum of each of two nodes; each theta 2.
    assert sizes(apart, 2) == [12] * 8 + [4]
    order = [task.client for part in portions(apart, 2) for task in part.tasks]
    assert order == list(range(100))
    assert sizes(replace(whole, tasks=[]), 2) == [0]


def test_a_message_has_only_so_many_models_and_each_is_in_one(monkeypatch):
    monkeypatch.setattr("cfl_flower.communication.portions.PORTION_FLOATS", 40)
    tests = Plan([Task(client, (client % 50,)) for client in range(300)], MODELS)
    parts = portions(tests, by_model=True)
    assert [len(part.tasks) for part in parts] == [120, 120, 60]
    where = [{task.models[0] for task in part.tasks} for part in parts]
    assert where == [set(range(20)), set(range(20, 40)), set(range(40, 50))]
    # A test depends on how many share a model in the whole phase.
    assert [set(part.sharers.values()) for part in parts] == [{6}] * 3
    # Whoever receives the same large models is in the same message.
    larger = replace(tests, tasks=[Task(i, tuple(range(30))) for i in range(9)])
    assert sizes(larger, 0, by_model=True) == [9]
    few = replace(tests, models=MODELS[:20], tasks=tests.tasks[:20])
    assert portions(few, by_model=True) == [few]
    monkeypatch.setattr("cfl_flower.communication.portions.SHARED_FLOATS", 20)
    assert sizes(tests, 0, by_model=True, shared=True) == [60] * 5


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> RunConfig:
    folder: Path = tmp_path_factory.mktemp("folding") / "run"
    options = ["strategy=fedavg", "clients=6", "participants=6", "faults.nan=0.3"]
    return compose_config([*options, f"output_dir={folder}"])


def test_sums_do_not_depend_on_who_adds(config):
    model = build_model(config.model, (1, 8, 8), 10, 0).to_vector()
    tasks = [Task(client, (client % 2,)) for client in range(6)]
    sum_spec = SumSpec((0,), by_samples=True)
    plan = Plan(tasks, [model, model + 1], {}, (len(model),), sum_spec)

    def train(work: Plan, *nodes: dict[str, int]) -> Results:
        fleet = Fleet(InProcessGrid(nodes), config, "0" * 32)
        fleet.discover()
        messages = fleet.messages("train", 1, work)
        return fleet.collect(fleet.grid.send_and_receive(messages), "train")

    devices: list[dict[str, int]] = [{"client-id": client} for client in range(6)]
    found = [train(plan, *nodes) for nodes in ([{}], [{}, {}, {}], devices)]
    one = found[0]
    assert 0 < len(one.failures) < 6
    assert all(not result.arrays for result in one)
    for other in found[1:]:
        assert other.failures == one.failures
        assert other.sums.keys() == one.sums.keys()
        for version, total in one.sums.items():
            assert other.sums[version].limbs.tolist() == total.limbs.tolist()
            assert other.sums[version].weight == total.weight
    # As the results themselves say.
    plain = train(replace(plan, sum_spec=None), {})
    for (_, base), total in one.sums.items():
        members = [each for each in plain if int(each.client) % 2 == base]
        arrays = [each.arrays[0].astype(float) for each in members]
        weights = [each.num_examples for each in members]
        expected = np.average(arrays, axis=0, weights=weights)
        assert total.mean() == pytest.approx(expected, rel=1e-6)
