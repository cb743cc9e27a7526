"""What a strategy for any ClientApp says of wrong uses, and what nodes may do."""

import logging
import re
from io import BytesIO
from typing import Any

import cfl_flower.strategies as plain
import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp

from cfl_flower.dropin.strategy import of_clusters
from cfl_flower.errors import CflError, ConfigError
from cfl_flower.mods import (
    ASK,
    choose_by_loss,
    embedding,
    fine_tune,
    label_histogram,
    label_shares,
)
from simulations.engines.inprocess import InProcessGrid

WEIGHT = "layer.weight"
SEEN = "layer.seen"
SCALE = "layer.scale"

INITIAL = {
    "layer.weight": np.zeros((2, 3), np.float64),
    "layer.seen": np.array(0, np.int64),
    "layer.scale": np.zeros(4, np.float32),
}


def record(**arrays: Any) -> ArrayRecord:
    """Return arrays, by default the initial ones, as a record."""
    named = {**INITIAL, **{f"layer.{name}": each for name, each in arrays.items()}}
    return ArrayRecord({name: Array(np.asarray(each)) for name, each in named.items()})


def make_app(labels: Any = None, answers: dict[int, Any] | None = None) -> ClientApp:
    """Return an app whose nodes add their number + 1, or answer otherwise."""
    mods = [] if labels is None else [label_histogram(labels, classes=4)]
    app = ClientApp(mods=mods)

    def answer(message: Message, context: Context) -> Message:
        node = int(context.node_config["partition-id"])
        content = RecordDict({"metrics": MetricRecord({"num-examples": node + 1})})
        if "cfl-flower" not in message.content and message.content["arrays"]:
            weight = message.content["arrays"]["layer.weight"].numpy() + node + 1
            content["arrays"] = record(weight=weight, seen=np.array(node))
        content = (answers or {}).get(node, lambda content: content)(content)
        return Message(content, reply_to=message)

    app.train()(answer)
    app.evaluate()(answer)
    return app


def start(
    app: ClientApp, kind: Any = plain.FedAvg, rounds: int = 2, **options: Any
) -> Any:
    """Run a strategy over four nodes."""
    grid = InProcessGrid([{"partition-id": node} for node in range(4)], app)
    strategy = kind(**options)
    return strategy.start(grid=grid, initial_arrays=record(), num_rounds=rounds)


def labels_of_half(context: Context) -> list[int]:
    """Return two labels for half of the nodes, and two others for all else."""
    first = 2 * (int(context.node_config["partition-id"]) % 2)
    return [first, first + 1] * 20


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

    def evaluate(number: int, cluster: int, arrays: ArrayRecord) -> MetricRecord:
        seen.append((number, arrays == first))
        return MetricRecord({"cluster": float(cluster)})

    grid = InProcessGrid(
        [{"partition-id": n} for n in range(4)], make_app(labels_of_half)
    )
    strategy = plain.Fielding(significance=0.0)
    found = strategy.start(grid, first, 2, evaluate_fn=evaluate)
    assert found.clusters == {1000: 0, 1001: 1, 1002: 0, 1003: 1}
    assert found.cluster_history == {1: found.clusters, 2: found.clusters}
    assert found.cluster_evaluate_metrics_serverapp[2] == {
        k: MetricRecord({"cluster": float(k)}) for k in (0, 1)
    }
    assert found.evaluate_metrics_serverapp[2] == MetricRecord({"cluster": 0.5})
    assert seen == [(n, n == 0) for n in (0, 1, 1, 2, 2)]
    assert found.failures == {1: [], 2: []}


def test_flowers_evaluate_function_is_called_as_flower_does():
    seen: list[int] = []
    grid = InProcessGrid([{"partition-id": n} for n in range(4)], make_app())
    plain.FedAvg().start(grid, record(), 1, evaluate_fn=lambda n, _: seen.append(n))
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


def test_nodes_without_the_mod_are_served(caplog):
    with caplog.at_level(logging.WARNING):
        found = start(make_app(), plain.Fielding)
    assert found.clusters == dict.fromkeys(range(1000, 1004), 0)
    lines = [each for each in caplog.messages if "has no mod" in each]
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("found", "named"),
    [
        (["cat", "dog"], "['cat', 'dog']"),
        ([0, 1, 2, 3, 4, 7], "[4, 7]"),
        ([0, 1, -1], "[-1]"),
        ([0.0, 1.0], "[0.0, 1.0]"),
        ([[0], [1]], "[0, 1]"),
    ],
)
def test_labels_are_whole_numbers_below_the_count_of_classes(found, named):
    words = re.escape(f"labels={named} is not allowed; use a list of whole numbers")
    with pytest.raises(CflError, match=rf"{words} from 0 to 3 \(classes=4\)"):
        start(make_app(lambda context: found), plain.Fielding)


@pytest.mark.parametrize(
    "make", [label_histogram, embedding, label_shares, choose_by_loss, fine_tune]
)
def test_a_function_that_makes_a_mod_is_called(make):
    app = ClientApp(mods=[make])
    app.train()(make_app())
    app.evaluate()(make_app())
    words = rf"mods=\[{make.__name__}\] is not allowed; call it"
    with pytest.raises(CflError, match=words):
        start(app, rounds=1)


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (plain.FlexCFL, {"cluster": 3}, "did you mean clusters"),
        (plain.FlexCFL, {"migration": True}, "migration=True"),
        (plain.FedAvg, {"fraction_train": 0.0}, "fraction_train=0.0"),
        (plain.Fielding, {"threshold": -1}, "threshold=-1"),
        (plain.FeSEM, {"clusters": 2}, "reseeded=None"),
        (plain.IFCA, {"clusters": 2}, "reseeded=None"),
        (plain.IFCA, {"clusters": 0}, "clusters=0"),
        (plain.IFCA, {"tested": "best"}, "tested=best is not allowed; use last"),
        (plain.FedDrift, {"form": "simplified"}, "form=simplified"),
        (plain.FedDrift, {"fine_tuning": 1}, "fine_tuning=1"),
    ],
)
def test_wrong_settings_are_one_line(kind, options, words):
    with pytest.raises(ConfigError, match=words):
        start(make_app(), kind, **options)


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

    start(listen, Slower)  # type: ignore[arg-type]
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


def nothing(message: Message, context: Context) -> Message:
    """Answer nothing."""
    return Message(RecordDict(), reply_to=message)


@pytest.mark.parametrize(
    ("mod", "words"),
    [
        (fine_tune(nothing), r"fine_tune: train=\[\] is not allowed; use one"),
        (label_shares(labels_of_half, 4, "bias"), "bias=bias is not allowed; use one"),
        (label_shares(labels_of_half, 4, WEIGHT), r"bias=\(2, 3\) is not allowed; use"),
        (label_shares(labels_of_half, 2, SCALE), r"bias=\(4,\) is not allowed; use"),
        (label_shares(lambda context: "cat", 4, SCALE), r"labels=.*cat.* is not"),
    ],
)
def test_a_mod_of_tests_that_fails_costs_a_nodes_test(mod, words):
    app = ClientApp()
    app.train()(make_app())
    app.evaluate(mods=[mod])(make_app())
    found = start(app, rounds=1)
    assert len(found.failures[1]) == 4
    for failure in found.failures[1]:
        assert failure.phase == "evaluate"
        assert re.search(words, failure.detail)


@pytest.mark.parametrize("rows", [[1.0, 2.0], 3.0, [[np.nan]], [["cat"]]])
def test_embeddings_are_rows_of_numbers(rows):
    app = ClientApp(mods=[embedding(lambda arrays, context: rows)])
    app.train()(make_app())
    app.evaluate()(make_app())
    with pytest.raises(CflError, match=r"embedding|representation|finite") as found:
        start(app, plain.Fielding, representation="embedding")
    assert "\n" not in str(found.value)


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


def sent(name: str, array: Array) -> Any:
    """Return what puts an array into a trained model."""

    def spoil(content: RecordDict) -> RecordDict:
        arrays = record()
        arrays[name] = array
        return RecordDict({**content, "arrays": arrays})

    return spoil


def measured(**metrics: Any) -> Any:
    """Return what answers other metrics."""
    return lambda content: RecordDict({**content, "metrics": MetricRecord(metrics)})


def forged(data: bytes = b"no array", stype: str = "numpy.ndarray") -> Array:
    return Array(dtype="float64", shape=(2, 3), stype=stype, data=data)


def bomb() -> bytes:
    """Return the header of an array that no memory holds."""
    file = BytesIO()
    shape = (10**9, 10**6)
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda content: 1 / 0, "node"),
        (lambda content: RecordDict({"arrays": content["arrays"]}), "num-examples"),
        (sent("layer.bias", Array(np.zeros(3))), "shape"),
        (sent(WEIGHT, Array(np.zeros(3))), "shape"),
        (sent(WEIGHT, Array(np.full((2, 3), np.nan))), "non-finite"),
        (sent(WEIGHT, Array(np.full((2, 3), 1e30))), "non-finite"),
        (sent(WEIGHT, forged()), "shape"),
        (sent(WEIGHT, forged(bomb())), "shape"),
        (sent(WEIGHT, forged(bytes(10**5))), "shape"),
        (sent(WEIGHT, forged(stype="pickle")), "shape"),
        (sent(WEIGHT, Array(np.full((2, 3), "cat"))), "shape"),
        (sent(WEIGHT, Array(np.full((2, 3), 1j))), "shape"),
        (sent(WEIGHT, Array(np.full((2, 3), 1))), "shape"),
        (sent(SEEN, Array(np.array(np.nan))), "shape"),
        (sent(SEEN, Array(np.array("cat"))), "shape"),
        (measured(**{"num-examples": 3, "accuracy": [1.0, 2.0]}), "metrics"),
        (measured(**{"num-examples": 3, "other": 1.0}), "metrics"),
        (measured(**{"num-examples": [3]}), "num-examples"),
        (measured(**{"num-examples": -3}), "num-examples"),
        (measured(**{"num-examples": float("nan")}), "num-examples"),
    ],
)
def test_a_node_that_lies_costs_its_own_result(spoil, reason):
    def honest(content: RecordDict) -> RecordDict:
        content["metrics"]["accuracy"] = 0.5
        return content

    def lie(content: RecordDict) -> RecordDict:
        return spoil(content) if "arrays" in content else honest(content)

    answers = {0: honest, 1: honest, 2: lie, 3: honest}
    found = start(make_app(answers=answers), rounds=2)
    for failures in found.failures.values():
        assert {each.client for each in failures} == {1002}
        assert failures[0].reason == reason
        assert "\n" not in failures[0].detail
    assert found.train_metrics_clientapp[2]["accuracy"] == pytest.approx(0.5)
    assert np.isfinite(found.arrays[WEIGHT].numpy()).all()


def test_an_app_that_is_wrong_everywhere_ends_in_one_line():
    def forget(content: RecordDict) -> RecordDict:
        return RecordDict({"arrays": content["arrays"]} if "arrays" in content else {})

    app = make_app(answers=dict.fromkeys(range(4), forget))
    words = r"num-examples=None, which .*; fix the app, and start again"
    with pytest.raises(CflError, match=words) as found:
        start(app)
    assert "\n" not in str(found.value)


def test_a_counter_that_lies_is_nobody_elses():
    lie = sent(SEEN, Array(np.array(2**62)))
    answers = {2: lambda content: lie(content) if "arrays" in content else content}
    found = start(make_app(answers=answers), rounds=2)
    assert found.arrays[SEEN].numpy() == 3


@pytest.mark.parametrize(
    "report",
    [
        {"representation": 1.5},
        {"representation": "cat"},
        {"representation": np.full(4, np.nan, np.float32).tobytes()},
        {"representation": np.full(400, 1 / 400, np.float32).tobytes()},
        {"other": 1},
    ],
)
def test_a_report_that_lies_is_nobody_elses(report):
    app = make_app(labels_of_half)

    def lie(message: Message, context: Context) -> Message:
        reply = app(message, context)
        if int(context.node_config["partition-id"]) == 2 and ASK in reply.content:
            reply.content[ASK] = ConfigRecord({"samples": 3, **report})
        return reply

    nodes = [{"partition-id": node} for node in range(4)]
    grid = InProcessGrid(nodes, lie)  # type: ignore[arg-type]
    strategy = plain.Fielding(significance=0.0)
    found = strategy.start(grid=grid, initial_arrays=record(), num_rounds=2)
    assert found.clusters == {1000: 0, 1001: 1, 1003: 1}
    assert {each.client for each in found.failures[1]} == {1002}


SEEDED: dict[str, Any] = {
    "clusters": 2,
    "reseeded": lambda seed: record(weight=np.full((2, 3), seed % 7, float)),
}


def choosing(name: str = "loss", mod: bool = True, **metrics: Any) -> ClientApp:
    """Return an app whose nodes choose the model that is nearest to their number."""
    app = ClientApp()

    def evaluate(message: Message, context: Context) -> Message:
        gaps = message.content["arrays"][WEIGHT].numpy() - context.node_id
        found = {name: float(abs(gaps).mean()), "num-examples": 2, **metrics}
        return Message(RecordDict({"metrics": MetricRecord(found)}), reply_to=message)

    def train(message: Message, context: Context) -> Message:
        found = {"num-examples": context.node_id - 999}
        arrays = message.content["arrays"]
        content = RecordDict({"arrays": arrays, "metrics": MetricRecord(found)})
        return Message(content, reply_to=message)

    app.train(mods=[choose_by_loss(evaluate)] * mod)(train)
    app.evaluate()(evaluate)
    return app


KINDS: dict[Any, dict[str, Any]] = {plain.IFCA: SEEDED, plain.FedDrift: {}}


ONES = np.ones(1, np.float32).tobytes()
HONEST = {"chosen": 0, "step": 1, "losses": ONES, "counts": ONES}
LIES: list[tuple[Any, dict[str, Any]]] = [
    *(
        (kind, {"cluster": one, "chosen": other})
        for kind in KINDS
        for one, other in ((2, 2), (-1, -2), (1.0, 0.0), (True, False), ("1", "0"))
    ),
    *((kind, {}) for kind in KINDS),
    *(
        (plain.FedDrift, {**HONEST, **lie})
        for lie in (
            {"losses": np.full(1, np.nan, np.float32).tobytes()},
            {"losses": np.full(1, -1, np.float32).tobytes()},
            {"losses": np.zeros(4, np.float32).tobytes()},
            {"losses": [0.0]},
            {"counts": np.full(1, np.inf, np.float32).tobytes()},
            {"counts": np.zeros(1, np.float32).tobytes()},
            {"step": 99},
            {"step": "1"},
        )
    ),
]


@pytest.mark.parametrize(("kind", "choice"), LIES)
def test_a_choice_that_lies_is_nobody_elses(kind, choice):
    app = choosing()

    def lie(message: Message, context: Context) -> Message:
        reply = app(message, context)
        if context.node_id == 1002 and ASK in reply.content:
            reply.content[ASK] = ConfigRecord(choice)
        return reply

    nodes = [{"partition-id": node} for node in range(4)]
    grid = InProcessGrid(nodes, lie)  # type: ignore[arg-type]
    found = kind(**KINDS[kind]).start(grid, record(), 2)
    for failures in found.failures.values():
        assert [each.client for each in failures] == [1002]
        assert failures[0].reason == "representation"
        assert "\n" not in failures[0].detail
    assert np.isfinite(found.arrays[WEIGHT].numpy()).all()


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


def test_losses_of_nan_are_never_chosen():
    found = start(choosing(loss=float("nan")), plain.IFCA, **SEEDED)
    assert set(found.clusters.values()) == {0}
    with pytest.raises(CflError, match="losses: numbers must be finite; fix the app"):
        start(choosing(loss=float("nan")), plain.FedDrift)


def test_without_the_mod_nodes_train_the_first_model(caplog):
    with caplog.at_level(logging.WARNING):
        found = start(choosing(mod=False), plain.IFCA, **SEEDED)
    assert set(found.clusters.values()) == {0}
    lines = [each for each in caplog.messages if "no mod choose_by_loss" in each]
    assert len(lines) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_an_evaluate_without_a_loss_is_one_line(kind):
    words = r"choose_by_loss: evaluate returned \['eval_loss', .*give choose_by_loss"
    with pytest.raises(CflError, match=words) as error:
        start(choosing("eval_loss"), kind, **KINDS[kind])
    assert "\n" not in str(error.value)
    with pytest.raises(CflError, match="chosen=None, not one of"):
        start(choosing(mod=False), plain.FedDrift)


def test_a_node_that_never_trained_gets_a_cluster_by_its_labels():
    found = start(make_app(labels_of_half), plain.Fielding, significance=0.0)
    assert found.assign([0, 1] * 9) == found.clusters[1000]
    assert found.assign(np.array([3, 2, 3])) == found.clusters[1001]
    with pytest.raises(ConfigError, match=r"labels=\['cat'\] is not allowed; use"):
        found.assign(["cat"])
    with pytest.raises(ConfigError, match=r"labels=\[4\] is not allowed; use"):
        found.assign([4])
    with pytest.raises(ConfigError, match="does not place nodes by labels, as Field"):
        start(make_app()).assign([0])


@pytest.mark.parametrize("epochs", [0, 1.5, "2"])
def test_epochs_of_fine_tuning_are_whole_numbers(epochs):
    with pytest.raises(ConfigError, match=f"fine_tune: epochs={epochs}"):
        fine_tune(make_app(), epochs)
