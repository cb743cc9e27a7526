"""What a strategy for any ClientApp gives back, and what it sends."""

import copy
from typing import Any

import cfl_flower.strategies as plain
import numpy as np
import pytest
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp

from cfl_flower.dropin.strategy import of_clusters
from cfl_flower.errors import ConfigError
from simulations.engines.inprocess import InProcessGrid
from tests.cfl_flower.dropin.apps import (
    SEEDED,
    WEIGHT,
    choosing,
    labels_of_half,
    make_app,
    record,
    start,
)


def test_arrays_keep_their_names_types_and_counters():
    found = start(make_app(), rounds=1)
    arrays = found.cluster_arrays[0]
    assert arrays["layer.weight"].numpy().dtype == np.float64
    mean = (1 + 4 + 9 + 16) / 10
    np.testing.assert_allclose(arrays["layer.weight"].numpy(), mean, rtol=1e-7)
    seen = arrays["layer.seen"].numpy()
    assert (seen, seen.shape, seen.dtype) == (2, (), np.int64)
    assert found.arrays == arrays


def test_metrics_are_by_round_and_cluster():
    seen: list[tuple[int, bool]] = []
    first = record()
    told = {0: {"all": 4.0}, 1: {"of one": 8.0, "each": [1.0, 2.0], "all": 1.0}}

    def evaluate(number: int, cluster: int, arrays: ArrayRecord) -> MetricRecord:
        seen.append((number, arrays == first))
        return MetricRecord(told[cluster])

    more = {"evaluate_fn": evaluate, "significance": 0.0}
    found = start(make_app(labels_of_half), plain.Fielding, initial=first, **more)
    assert found.clusters == {1000: 0, 1001: 1, 1002: 0, 1003: 1}
    assert found.cluster_history == {1: found.clusters, 2: found.clusters}
    each = {k: MetricRecord(told[k]) for k in (0, 1)}
    assert found.cluster_evaluate_metrics_serverapp[2] == each
    # A mean over the clusters that have a measure.
    mean = found.evaluate_metrics_serverapp[2]
    assert mean == MetricRecord({"all": 2.5, "of one": 8.0, "each": [1.0, 2.0]})
    assert seen == [(n, n == 0) for n in (0, 1, 1, 2, 2)]
    assert found.failures == {1: [], 2: []}


@pytest.mark.parametrize(
    ("told", "said"),
    [
        (
            [{"each": [1.0]}, {"each": [1.0, 2.0]}],
            "evaluate_fn's each=.*the same length",
        ),
        ([{"each": 1.0}, {"each": [1.0, 2.0]}], "evaluate_fn's each=.*the same length"),
        ([{"each": []}, {"each": [2]}], "evaluate_fn's each=.*the same length"),
    ],
)
def test_clusters_measures_of_different_lengths_are_an_error(told, said):
    def evaluate(number: int, cluster: int, arrays: ArrayRecord) -> MetricRecord:
        return MetricRecord(told[cluster])

    more = {"evaluate_fn": evaluate, "significance": 0.0}
    with pytest.raises(ConfigError, match=said):
        start(make_app(labels_of_half), plain.Fielding, **more)


@pytest.mark.parametrize("found", [0.5, "good", {"loss": 0.5}, (0.5, {"loss": 1})])
def test_an_evaluate_function_of_another_type_is_an_error(found):
    """Flower 1.x's former functions returned a pair."""
    with pytest.raises(ConfigError, match=r"evaluate_fn=.*returns a MetricRecord"):
        start(make_app(), rounds=1, evaluate_fn=lambda n, _: found)


def test_flowers_evaluate_function_is_called_as_flower_does():
    seen: list[int] = []
    start(make_app(), rounds=1, evaluate_fn=lambda n, _: seen.append(n))
    assert seen == [0, 1]


@pytest.mark.parametrize(
    ("function", "clustered"),
    [
        (lambda number, arrays: None, False),
        (lambda number, arrays, device="cpu": None, False),
        (lambda number, arrays, **more: None, False),
        (lambda number, *rest: None, False),
        (lambda number, arrays, *, device="cpu": None, False),
        (lambda number, k, arrays: None, True),
        (lambda number, k, arrays, device="cpu": None, True),
        (lambda number, cluster=0, arrays=None: None, True),
    ],
)
def test_a_test_on_the_server_gets_the_cluster_if_it_asks_for_it(function, clustered):
    assert (of_clusters(function) is function) == clustered
    assert of_clusters(function)(1, 0, record()) is None


class Slower(plain.FedAvg):  # type: ignore[misc]
    """A strategy that changes the config of a round, as Flower's users write it."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Any
    ) -> Any:
        config["rate"] = 1 / server_round
        return super().configure_train(server_round, arrays, config, grid)


def test_a_round_has_a_config_of_its_own():
    seen = []

    app = make_app()

    def listen(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "train":
            seen.append(message.content["config"]["rate"])
        return app(message, context)

    start(listen, Slower)
    assert seen == [1.0] * 4 + [0.5] * 4


def test_counters_are_what_they_were_after_a_restart(tmp_path):
    grid = InProcessGrid([{"partition-id": node} for node in range(4)], make_app())
    saved = plain.FedAvg(checkpoint=tmp_path).start(grid, record(), 1)
    sent = []

    def listen(message: Message, context: Context) -> Message:
        sent.append(message.content["arrays"])
        return make_app()(message, context)

    grid.client_app = listen  # type: ignore[assignment]
    plain.FedAvg.resume(tmp_path).start(grid, record(), 2)
    assert sent[0] == saved.cluster_arrays[0]


def test_newcomers_join_and_who_left_is_kept():
    grid = InProcessGrid([{"partition-id": n} for n in range(4)])

    def move(content: RecordDict) -> RecordDict:
        if 1000 in grid.node_configs:
            grid.remove_node(1000)
            grid.add_node({"partition-id": 7})
        return content

    grid.client_app = make_app(labels_of_half, answers={3: move})
    strategy = plain.Fielding(significance=0.0)
    found = strategy.start(grid=grid, initial_arrays=record(), num_rounds=3)
    assert found.clusters == {1000: 0, 1001: 1, 1002: 0, 1003: 1, 1004: 1}
    assert [each.client for each in found.failures[1]] == [1000]


def leaving(grid: InProcessGrid, app: ClientApp) -> InProcessGrid:
    """Return a grid that the first of four nodes leaves when the last one answers."""

    def answer(message: Message, context: Context) -> Message:
        if context.node_id == 1003 and 1000 in grid.node_configs:
            grid.remove_node(1000)
        return app(message, context)

    grid.client_app = answer  # type: ignore[assignment]
    return grid


def test_clusters_split_without_those_who_left():
    app = ClientApp()

    def train(message: Message, context: Context) -> Message:
        weight = message.content["arrays"][WEIGHT].numpy()
        weight = weight + (-1) ** context.node_id * (2 + weight) * np.ones((2, 3))
        content = RecordDict({"arrays": record(weight=weight)})
        content["metrics"] = MetricRecord({"num-examples": 1})
        return Message(content, reply_to=message)

    app.train()(train)
    grid = leaving(InProcessGrid([{}] * 6), app)
    found = plain.CFL(first=1, eps1=100, fraction_evaluate=0).start(grid, record(), 2)
    assert [found.clusters[node] for node in range(1001, 1006)] == [0, 1, 0, 1, 0]


def test_true_clusters_are_asked_of_who_is_there_in_rounds_that_are():
    asked = []

    def concepts(server_round: int) -> dict[int, int]:
        asked.append(server_round)
        return {node: 1 + node % 2 for node in grid.get_node_ids()}

    grid = leaving(InProcessGrid([{"partition-id": n} for n in range(4)]), make_app())
    found = plain.Oracle(concepts=concepts).start(grid, record(), 3)
    assert found.clusters == {1000: 0, 1001: 1, 1002: 0, 1003: 1}
    assert max(asked) == 3


def test_all_train_whatever_a_method_does_with_shares():
    trained = []
    app = make_app(lambda context: [2 * (context.node_id == 1003)] * 20)

    def answer(message: Message, context: Context) -> Message:
        if message.metadata.message_type == "train":
            trained.append(context.node_id)
        return app(message, context)

    found = start(answer, plain.Fielding, significance=0.0)
    assert [*found.clusters.values()] == [0, 0, 0, 1]
    assert sorted(trained) == sorted([*range(1000, 1004)] * 2)


def measuring(**metrics: float) -> Any:
    """Return what answers some metrics beside, or in the place of, others."""

    def answer(content: RecordDict) -> RecordDict:
        found = MetricRecord({**content["metrics"], **metrics})
        return RecordDict({**content, "metrics": found})

    return answer


def test_a_metric_that_few_nodes_send_costs_no_other():
    less = measuring(acc=1.0)
    more = measuring(acc=3.0, f1=1.0)
    found = start(make_app(answers={0: less, 1: less, 2: more, 3: more}), rounds=1)
    assert found.evaluate_metrics_clientapp[1] == {"acc": pytest.approx(2.4)}
    assert {each.client for each in found.failures[1]} == {1002, 1003}


@pytest.mark.parametrize(
    ("kind", "counts", "weights"),
    [
        (plain.StoCFL, [10, 20, 30, 40], [10, 20, 30, 40]),
        (plain.FedAvg, [0.02, 0.9, 0.01, 0.03], [0.02, 0.125, 0.01, 0.03]),
        (plain.FedAvg, [0.2, 0.8, 0.5, 1e6], [0.2, 0.8, 0.5, 3.25]),
    ],
)
def test_weights_are_the_nodes_numbers_up_to_the_cap(kind, counts, weights):
    told = [
        measuring(**{"num-examples": count, "acc": float(1 + place)})
        for place, count in enumerate(counts)
    ]
    app = make_app(answers=dict(enumerate(told)))
    options = {"weight_cap": 5.0, "weighting": "samples"}
    found = start(app, kind, rounds=1, **options)
    (cluster,) = set(found.clusters.values())
    weight = found.cluster_arrays[cluster][WEIGHT].numpy()
    mean = np.average([1, 2, 3, 4], weights=weights)
    np.testing.assert_allclose(weight, mean, 1e-6)
    for by_round in (found.train_metrics_clientapp, found.evaluate_metrics_clientapp):
        assert by_round[1]["acc"] == pytest.approx(mean)
    assert found.cluster_train_metrics[1][cluster]["acc"] == pytest.approx(mean)


def test_a_strategy_is_copied_and_a_result_is_shown_without_its_numbers():
    strategy = plain.FlexCFL(clusters=2)
    grid = InProcessGrid([{"partition-id": n} for n in range(4)], make_app())
    found = strategy.start(grid, record(), 1)
    assert copy.deepcopy(strategy).settings == strategy.settings
    assert "\\x" not in repr(found)


def test_nodes_choose_by_loss_and_metrics_are_of_what_they_chose():
    found = start(choosing(), plain.IFCA, rounds=1, **SEEDED)
    first = record(weight=np.zeros((2, 3)))
    drawn = {k: each[WEIGHT].numpy()[0, 0] for k, each in found.cluster_arrays.items()}
    chosen = set(found.clusters.values())
    # All are nearer to the larger of the two first models.
    assert len(chosen) == 1
    assert drawn[chosen.pop()] == max(drawn.values())
    assert found.cluster_train_metrics[1].keys() == set(found.clusters.values())
    assert first.keys() == found.arrays.keys()


def test_a_node_that_never_trained_gets_a_cluster_by_its_labels():
    found = start(make_app(labels_of_half), plain.Fielding, significance=0.0)
    assert found.assign([0, 1] * 9) == found.clusters[1000]
    assert found.assign(np.array([3, 2, 3])) == found.clusters[1001]
    with pytest.raises(ConfigError, match=r"labels=\['cat'\] is not allowed; use"):
        found.assign(["cat"])
    with pytest.raises(ConfigError, match=r"labels=\[4\] is not allowed; use"):
        found.assign([4])
    with pytest.raises(ConfigError, match=r"labels=\[\] is not allowed; use"):
        found.assign([])
    with pytest.raises(ConfigError, match="does not place nodes by labels, as Field"):
        start(make_app()).assign([0])


@pytest.mark.parametrize("kind", [plain.FedAvg, plain.FedDrift, plain.StoCFL])
def test_after_no_round_the_arrays_are_the_initial_ones(kind):
    found = start(make_app(), kind, rounds=0)
    assert found.arrays == record()
    assert found.clusters == {}
