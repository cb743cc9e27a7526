"""What a user's own subclass of a strategy changes, and what is refused."""

from typing import Any

import cfl_flower.strategies as plain
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord

from cfl_flower.dropin.strategy import DropIn
from cfl_flower.errors import ConfigError
from tests.cfl_flower.dropin.apps import WEIGHT, labels_of_half, make_app, start

KINDS = [plain.FedAvg, plain.CFL, plain.FlexCFL, plain.StoCFL, plain.Auxo]
KINDS.append(plain.Fielding)
METHOD: Any = DropIn
"""What `super()` is, before a test knows the method."""


def half(arrays: ArrayRecord) -> ArrayRecord:
    """Return other arrays, the numbers of one being halved."""
    return ArrayRecord({**arrays, WEIGHT: Array(arrays[WEIGHT].numpy() / 2 + 1)})


def in_place(arrays: ArrayRecord) -> ArrayRecord:
    """Change a record that came."""
    arrays[WEIGHT] = half(arrays)[WEIGHT]
    return arrays


def of_train(change: Any) -> Any:
    def override(self: Any, number: int, arrays: Any, *rest: Any) -> Any:
        return METHOD.configure_train(self, number, change(arrays), *rest)

    return {"configure_train": override}


def of_tests(change: Any) -> Any:
    def override(self: Any, number: int, arrays: Any, *rest: Any) -> Any:
        return METHOD.configure_evaluate(self, number, change(arrays), *rest)

    return {"configure_evaluate": override}


def of_means(change: Any) -> Any:
    def override(self: Any, *given: Any) -> Any:
        arrays, metrics = METHOD.aggregate_train(self, *given)
        return change(arrays), metrics

    return {"aggregate_train": override}


def nothing(*given: Any) -> None:
    """Leave out what the method does."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("change", [half, in_place, nothing])
@pytest.mark.parametrize("place", [of_train, of_tests, of_means])
def test_other_arrays_are_refused(kind, change, place):
    own = type("Own", (kind,), place(change))
    words = "arrays=an override's own is not allowed; use those that super.. returns"
    with pytest.raises(ConfigError, match=words) as found:
        start(make_app(labels_of_half), own)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", [of_train, of_tests, of_means])
def test_equal_arrays_change_nothing(kind, place):
    def copy(arrays: ArrayRecord) -> ArrayRecord:
        return ArrayRecord({k: Array(each.numpy()) for k, each in arrays.items()})

    own = type("Own", (kind,), place(copy))
    app = make_app(labels_of_half)
    assert start(app, own).cluster_arrays == start(app, kind).cluster_arrays


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize(
    ("verb", "override"),
    [
        ("configure_train", lambda *given: []),
        ("aggregate_evaluate", lambda *given: MetricRecord({"own": 1.0})),
        ("aggregate_evaluate", nothing),
    ],
)
def test_a_round_is_opened_and_closed_by_the_method(verb, override, rounds):
    own = type("Own", (plain.FedAvg,), {verb: override})
    words = rf"Own.{verb}=an override without super\(\) is not allowed; use super\(\)"
    with pytest.raises(ConfigError, match=words):
        start(make_app(), own, rounds)


def kept(keep: Any) -> Any:
    """Return overrides that send a round's messages to some nodes alone."""

    def override(verb: str) -> Any:
        def configure(self: Any, number: int, *rest: Any) -> list[Message]:
            found = getattr(METHOD, verb)(self, number, *rest)
            return [e for e in found if keep(number, e.metadata.dst_node_id - 1000)]

        return configure

    verbs = ("configure_train", "configure_evaluate")
    return {verb: override(verb) for verb in verbs}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "keep",
    [
        lambda number, node: False,
        lambda number, node: number == 1,
        lambda number, node: number == 2,
        lambda number, node: node < 2,
    ],
)
def test_who_is_not_asked_does_not_fail(kind, keep):
    own = type("Own", (kind,), kept(keep))
    found = start(make_app(labels_of_half), own, 3)
    assert found.failures == {1: [], 2: [], 3: []}
    asked = [n for n in (1, 2, 3) if any(keep(n, node) for node in range(4))]
    assert [*found.train_metrics_clientapp] == asked
    assert [*found.evaluate_metrics_clientapp] == asked
    assert set(found.clusters) == set(range(1000, 1004))


def test_tests_of_ones_own_may_be_none():
    own = type("Own", (plain.FedAvg,), {"configure_evaluate": lambda *given: []})
    assert start(make_app(), own).failures == {1: [], 2: []}
