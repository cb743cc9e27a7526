import json
import re
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

from cfl_flower.communication.outstanding import PendingMessage
from cfl_flower.communication.records import (
    check_reply,
    mark,
    pack_answers,
    unpack_answers,
)
from cfl_flower.communication.results import payload_bytes
from cfl_flower.communication.task_records import (
    encode_models,
    pack_tasks,
    unpack_tasks,
)
from cfl_flower.communication.validation import (
    asks_for_losses,
    check_test,
    is_bounded,
    validate,
)
from cfl_flower.errors import InvalidResultError
from cfl_flower.types import OTHER, SAID, Answer, Plan, Task
from simulations.engines.superlink import PROJECT

MODELS = [np.float32([1, 2]), np.float32([3, 4]), np.float32([5, 6])]


def answer(**changes: Any) -> Answer:
    values = {
        "client": 3,
        "arrays": [np.float32([1, 2])],
        "num_examples": 4,
        "loss": 0.5,
        "metrics": {"correct": 2},
    }
    return Answer(**{**values, **changes})


@given(st.sampled_from([*SAID]) | st.recursive(st.none() | st.text(), st.lists))
@settings(max_examples=30)
def test_a_failure_is_called_by_a_word_of_the_list(word):
    content = pack_answers([answer(arrays=[])])
    content["answers"]["rows"] = json.dumps([[3, 0, None, {}, [word, "why"], []]])
    (found,) = unpack_answers(content)
    assert found.error == (word if word in SAID else OTHER, "why")


def test_the_page_on_security_lists_the_words_of_failures():
    page = (PROJECT / "docs" / "security.md").read_text()
    (listed,) = re.findall(r"after a failure: a keyword \((.*?)\)", page, re.DOTALL)
    # A worker's end is no device's word.
    assert set(re.findall(r"`([a-z-]+)`", listed)) == {*SAID} - {"node"}


def test_arrays_are_encoded_as_flower_does():
    grid = np.arange(6, dtype=np.float32).reshape(2, 3)
    vectors = [MODELS[0], np.zeros(0, np.float32), grid[:, 1], MODELS[2]]
    content = pack_answers([answer(arrays=vectors[:2]), answer(arrays=vectors[2:])])
    assert content.array_records["arrays"]["all"] == Array(np.concatenate(vectors))
    assert pack_answers([]).array_records["arrays"]["all"].numpy().shape == (0,)


def test_clusters_with_one_model_have_it_sent_once():
    start = np.float32([7, 8])
    models = [MODELS[0], start, start, MODELS[1], start]
    tasks = [Task(i, (0, 1 + i % 4)) for i in range(8)]
    plan = Plan(tasks, [*models, MODELS[2]])
    pending = PendingMessage("train", 1, plan, tasks[:4], 1)
    content = pack_tasks(pending, "{}", encode_models(plan))
    assert len(content.array_records["models"]) == 3, "only those that are used"
    batch = unpack_tasks(content)
    # Tasks still name the models of five clusters, each with its own sharers.
    assert [task.models for task in batch.plan.tasks] == [(0, i) for i in range(1, 5)]
    received = [model.tolist() for model in batch.models.values()]
    assert received == [model.tolist() for model in models]
    # Of the eight clients of the phase, not of the four of this message.
    assert batch.sharers == {0: 8, 1: 2, 2: 2, 3: 2, 4: 2}
    assert len({id(model) for model in batch.models.values()}) == 5


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("answers", ConfigRecord({"rows": "x" * 1000})),
        ("answers", ConfigRecord({"rows": b"x" * 1000})),
        ("answers", ConfigRecord({"rows": [0] * 125})),
        ("answers", ConfigRecord({"rows": ["x" * 500] * 2})),
        ("answers", ConfigRecord({"x" * 500 + str(i): 0 for i in range(2)})),
        ("answers", ConfigRecord({str(i): i for i in range(125)})),
        ("metrics", MetricRecord({"losses": [0.5] * 125})),
        ("x" * 1000, ConfigRecord()),
        ("arrays", ArrayRecord({"all": Array(np.zeros(250, np.float32))})),
        ("arrays", ArrayRecord({"all": Array("x" * 1000, (), "", b"")})),
        ("arrays", ArrayRecord({"all": Array("", (1,) * 125, "", b"")})),
    ],
)
def test_whatever_a_reply_holds_counts(name, record):
    content = RecordDict({name: record})
    mark(content, "token", "train", 3)
    check_reply(content, "token", "train", 3, limit=2000)
    with pytest.raises(InvalidResultError, match="at most 999 expected") as caught:
        check_reply(content, "token", "train", 3, limit=999)
    assert caught.value.reason == "oversized"


@pytest.mark.parametrize(
    "asked", [("other", "train", 3), ("token", "query", 3), ("token", "train", 4)]
)
def test_answer_counts_for_one_run_phase_and_round(asked):
    content = RecordDict()
    mark(content, "token", "train", 3)
    with pytest.raises(InvalidResultError, match="not to this task") as caught:
        check_reply(content, *asked, limit=2000)
    assert caught.value.reason == "replayed"


TWO = np.float32([1, 2])
INVALID: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "timeout": [("train", {"error": ("timeout", "too late")})],
    "shape": [
        *(
            ("train", {"arrays": arrays})
            for arrays in ([], [TWO[:1]], [TWO, TWO], [TWO.astype(float)])
        ),
        ("train", {"metrics": {"norms": [1.0]}}),
        ("evaluate", {"loss": None}),
        ("evaluate", {"metrics": {}}),
        *(("evaluate", {"metrics": {"correct": right}}) for right in (5, -1, 1.5)),
        *(
            ("evaluate", {"metrics": {"correct": 2, f"{name}_tested": 2, **right}})
            for name in ("own", "validation", "unlabelled")
            for right in ({}, *({f"{name}_correct": n} for n in (3, -1, 1.0, "1")))
        ),
        ("evaluate", {"metrics": {"correct": 2, "own_correct": 1, "own_tested": 2.0}}),
    ],
    "non-finite": [
        *(
            ("train", {"arrays": [np.float32([1, x])]})
            for x in (nan, inf, -inf, 1.001e15, -1.001e15)
        ),
        ("train", {"metrics": {"norm": inf}}),
        *((phase, {"loss": nan}) for phase in ("train", "evaluate")),
    ],
    "count": [("train", {"num_examples": n}) for n in (0, -1, 2.0, True, 2**40 + 1)],
}


@pytest.mark.parametrize(
    ("reason", "phase", "changes"),
    [(reason, *each) for reason, answers in INVALID.items() for each in answers],
)
def test_invalid_answer_is_refused_with_its_reason(reason, phase, changes):
    with pytest.raises(InvalidResultError) as caught:
        validate(answer(**changes), phase, reply=(2,))
    assert caught.value.reason == reason
    assert "\n" not in caught.value.detail


def test_valid_answer_becomes_a_result():
    result = validate(answer(), "train", reply=(2,))
    assert (result.client, result.num_examples, result.loss) == (3, 4, 0.5)
    assert result.metrics == {"correct": 2}
    least = answer(num_examples=1, loss=1e15)
    assert validate(least, "train", reply=(2,)).loss == 1e15
    assert result.arrays[0].tolist() == [1, 2]
    largest = answer(arrays=[np.float32([1e15, -1e15])], num_examples=2**40)
    assert validate(largest, "train", reply=(2,)).num_examples == 2**40


@pytest.mark.parametrize("correct", [0, 4])
@pytest.mark.parametrize(
    "own", [{}, {"own_tested": 0}, {"own_correct": 1, "own_tested": 1}]
)
def test_valid_test_becomes_a_result(correct, own):
    metrics = {"correct": correct, **own}
    tested = answer(arrays=[], loss=0, metrics=metrics)
    assert validate(tested, "evaluate", reply=()).metrics == metrics
    # Who was not tested has no loss.
    untested = answer(arrays=[], num_examples=0, loss=None, metrics={})
    assert validate(untested, "evaluate", reply=()).num_examples == 0


@pytest.mark.parametrize("name", ["passes", "start_loss", "start_rms"])
@pytest.mark.parametrize("told", [-0.1, -1, "x", "1", b"1", True, nan, inf, 1e30, None])
@pytest.mark.parametrize("asked", [False, True])
@pytest.mark.parametrize("phase", ["train", "evaluate", "query"])
def test_measures_of_the_engine_are_numbers_of_at_least_0(name, told, asked, phase):
    asked &= name != "passes"
    config = {name: True} if asked else {}
    metrics = {"correct": 1, name: told}
    if told is None:
        del metrics[name]
        if not asked:
            validate(answer(metrics=metrics, loss=0.1), phase, (2,), config)
            return
    with pytest.raises(InvalidResultError, match=name) as caught:
        validate(answer(metrics=metrics, loss=0.1), phase, (2,), config)
    assert caught.value.reason in ("representation", "non-finite", "shape")


def test_losses_that_were_asked_for_are_kept_for_the_engine():
    none_lost = answer(metrics={"start_loss": 0.0})
    assert validate(none_lost, "train", (2,), {"start_loss": True}).telemetry
    assert asks_for_losses({"lr": 0.1, "start_loss": True})
    assert not asks_for_losses({"lr": 0.1, "start_loss": False})


@pytest.mark.parametrize(
    ("told", "valid"),
    [
        ({}, True),
        ({"after_tested": "x"}, True),
        *(({"tested": 3, "correct": right, "loss": 0.5}, True) for right in (0, 3)),
        *(({"tested": 3, "correct": right, "loss": 0.5}, False) for right in (-1, 4)),
        ({"tested": 3, "correct": 1.0, "loss": 0.5}, False),
        ({"tested": 3.0, "correct": 1, "loss": 0.5}, False),
        *(({"tested": 3, "correct": 1, "loss": x}, False) for x in (1, np.nan, np.inf)),
        *(({name: 1}, False) for name in ("tested", "correct", "loss")),
    ],
)
def test_clients_own_test_is_whole_and_possible_or_absent(told, valid):
    metrics = {k if "_" in k else f"before_{k}": v for k, v in told.items()}
    if valid:
        return check_test(metrics, "before")
    with pytest.raises(InvalidResultError, match=r"tested=.*before_loss=") as bad:
        check_test(metrics, "before")
    assert bad.value.reason == "test"
    return None


def test_bytes_are_those_of_models_and_representations():
    metrics = {"representation": b"\0" * 40, "correct": 3, "name": "no payload"}
    assert payload_bytes([np.zeros(10, np.float32)], metrics) == 40 + 40


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("numbers", "bounded"),
    [
        ([], True),
        ([1.0, -2.0], True),
        ([1e8, -1e8], True),  # whose squares are beyond the limit
        ([9e14], True),
        ([2e15], False),
        ([1.0, -2e15], False),
        ([3e30], False),  # whose square is infinite
        ([np.inf], False),
        ([np.inf, -np.inf], False),
        ([np.nan, 1.0], False),
    ],
)
def test_what_is_bounded_is_told_without_a_warning(numbers, bounded):
    assert is_bounded(np.array(numbers, np.float32)) is bounded
