"""What a strategy for any ClientApp says of wrong uses."""

import logging
import pickle
import re
from functools import partial
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
from flwr.clientapp.mod import LocalDpMod
from flwr.server import ServerApp, ServerAppComponents, ServerConfig

from cfl_flower.errors import CflError, ConfigError
from cfl_flower.mods import (
    choose_by_loss,
    embedding,
    fine_tune,
    label_histogram,
    label_shares,
)
from simulations.engines.inprocess import InProcessGrid
from tests.cfl_flower.dropin.apps import (
    KINDS,
    SCALE,
    SEEDED,
    WEIGHT,
    choosing,
    labels_of_half,
    make_app,
    record,
    reporting,
    start,
)


@pytest.mark.parametrize(
    ("app", "kind", "options", "said"),
    [
        (make_app(), plain.Fielding, {}, "has no mod"),
        (choosing(mod=False), plain.IFCA, SEEDED, "no mod choose_by_loss"),
    ],
)
def test_nodes_without_the_mod_are_served(app, kind, options, said, caplog):
    with caplog.at_level(logging.WARNING):
        found = start(app, kind, **options)
    assert found.clusters == dict.fromkeys(range(1000, 1004), 0)
    assert len([each for each in caplog.messages if said in each]) == 4


@pytest.mark.parametrize(("clusters", "told"), [(4, 0), (5, 1), (9, 1)])
def test_more_clusters_than_nodes_are_told(clusters, told, caplog):
    with caplog.at_level(logging.WARNING):
        start(make_app(), plain.FlexCFL, clusters=clusters)
    said = "4 nodes in round 1: clusters="
    assert len([each for each in caplog.messages if said in each]) == told


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
    words = rf"mods=\[{make.__name__}\] is not allowed; call it"
    with pytest.raises(CflError, match=words):
        start(reporting(make), rounds=1)


NODES = range(1000, 1004)


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        (plain.FlexCFL, {"cluster": 3}, "did you mean clusters"),
        (plain.FlexCFL, {"migration": True}, "migration=True"),
        (plain.Fielding, {"threshold": -1}, "threshold=-1"),
        (plain.FeSEM, {"clusters": 2}, "reseeded=None"),
        (plain.IFCA, {"clusters": 2}, "reseeded=None"),
        (plain.IFCA, {"clusters": 2, "reseeded": lambda _: None}, "reseeded .*initial"),
        (plain.IFCA, {"clusters": 2, "reseeded": lambda _: ArrayRecord()}, "reseeded"),
        (plain.IFCA, {**SEEDED, "reseeded": lambda _: record()}, "equal models"),
        (plain.CFL, {"robust": "median"}, "robust=median .* none or clip with .*=cfl"),
        (plain.Auxo, {"robust": "krum"}, "robust=krum .* none or clip with .*=auxo"),
        (plain.Oracle, {}, "give a strategy for an app of your own concepts="),
        (plain.Oracle, {"concepts": lambda _: None}, "concepts={} is .*allowed; use a"),
        (plain.Oracle, {"concepts": lambda _: {1000: 0}}, "concepts={1000: 0} is not"),
        (plain.Oracle, {"concepts": lambda _: dict.fromkeys(NODES, 0.5)}, "concepts="),
        (plain.Oracle, {"concepts": lambda _: dict.fromkeys(NODES, "a")}, "concepts="),
        (plain.Oracle, {"concepts": lambda _: dict.fromkeys(NODES, -1)}, "concepts="),
        (plain.IFCA, {"clusters": 0}, "clusters=0"),
        (plain.IFCA, {"tested": "best"}, "tested=best is not allowed; use last"),
        (plain.FedDrift, {"form": "simplified"}, "form=simplified"),
        (plain.FedDrift, {"fine_tuning": 1}, "fine_tuning=1"),
    ],
)
def test_wrong_settings_are_one_line(kind, options, words):
    with pytest.raises(ConfigError, match=words):
        start(make_app(), kind, **options)


@pytest.mark.parametrize("kind", [plain.FedAvg, plain.FlexCFL, plain.Fielding])
@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.full(3, np.nan), "numbers must be finite"),
        (np.array([0, -np.inf], np.float32), "numbers must be finite"),
        (np.array([0, np.finfo(np.float32).min]), "numbers must be finite"),
        (np.array(np.inf, np.float16), "numbers must be finite"),
        (np.full((2, 2), 1e300), "numbers must be finite"),
        (np.full(3, 1j, np.complex64), "=complex64 is not allowed; use its real and"),
        (np.zeros((2, 2), np.complex128), "=complex128 is not allowed; use its real"),
        (np.zeros(3, "V2"), r"=\|V2 is not allowed; use .* float32 for bfloat16"),
    ],
)
def test_initial_arrays_that_are_no_model_are_named(kind, array, words):
    with pytest.raises((ValueError, CflError), match=f"layer.odd.*{words}") as found:
        start(make_app(), kind, 1, record(odd=array))
    assert "\n" not in str(found.value)


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
    app = reporting(embedding(lambda arrays, context: rows))
    with pytest.raises(CflError, match=r"embedding|representation|finite") as found:
        start(app, plain.Fielding, representation="embedding")
    assert "\n" not in str(found.value)


def test_losses_of_nan_are_never_chosen():
    found = start(choosing(loss=float("nan")), plain.IFCA, **SEEDED)
    assert set(found.clusters.values()) == {0}
    with pytest.raises(CflError, match="losses: numbers must be finite; fix the app"):
        start(choosing(loss=float("nan")), plain.FedDrift)


@pytest.mark.parametrize("kind", KINDS)
def test_an_evaluate_without_a_loss_is_one_line(kind):
    words = r"choose_by_loss: evaluate returned \['eval_loss', .*give choose_by_loss"
    with pytest.raises(CflError, match=words) as error:
        start(choosing("eval_loss"), kind, **KINDS[kind])
    assert "\n" not in str(error.value)
    with pytest.raises(CflError, match="chosen=None, not one of"):
        start(choosing(mod=False), plain.FedDrift)


NUMBERS = ("x", "2", -1, 1.5, None, float("nan"))
SHARES = ("0.5", -0.1, 2, None, float("nan"))
NO_FUNCTIONS = (3, "mean", {})
UNASKED = InProcessGrid([{}], make_app())
WRONG: dict[Any, dict[str, tuple[Any, ...]]] = {
    plain.FedAvg: {
        "fraction_train": (0, *SHARES),
        "fraction_evaluate": SHARES,
        "min_train_nodes": NUMBERS[:2],
        "weighted_by_key": (3, None),
        "train_metrics_aggr_fn": NO_FUNCTIONS,
        "seed": NUMBERS,
        "reseeded": NO_FUNCTIONS,
        "concepts": NO_FUNCTIONS,
        "checkpoint": (5, []),
    },
    partial(plain.FedAvg().start, grid=UNASKED, initial_arrays=record()): {
        "num_rounds": NUMBERS,
        "timeout": (0, *NUMBERS[:3]),
        "train_config": ({}, 3),
        "evaluate_fn": NO_FUNCTIONS,
        "initial_arrays": ({}, None, [np.zeros((3, 3))]),
    },
    plain.Fielding.resume: {"path": (5, None)},
    partial(fine_tune, make_app()): {"epochs": (0, *NUMBERS)},
    partial(label_histogram, labels_of_half): {"classes": (0, *NUMBERS)},
    partial(choose_by_loss, make_app()): {"loss": (3, None), "version": NO_FUNCTIONS},
}


@pytest.mark.parametrize("call", WRONG)
def test_arguments_out_of_type_or_bounds_are_one_line_before_any_message(call):
    for name, values in WRONG[call].items():
        for value in values:
            said = rf"^{name}=[^\n]* is not allowed; use [^\n]+$"
            with pytest.raises(ConfigError, match=said):
                call(**{name: value})


def test_a_server_app_of_a_server_fn_is_told_what_to_call():
    def server_fn(context: Context) -> ServerAppComponents:
        strategy: Any = plain.FlexCFL(clusters=2)
        return ServerAppComponents(strategy=strategy, config=ServerConfig(1))

    words = r"FlexCFL .*; call strategy.start\(...\) in a .* @app.main\(\), as docs/"
    with pytest.raises(ConfigError, match=words):
        ServerApp(server_fn=server_fn)(UNASKED, Context(1, 0, {}, RecordDict(), {}))


@pytest.mark.parametrize(
    ("kind", "options", "served"),
    [
        (plain.FlexCFL, {"clusters": 2}, True),
        (plain.StoCFL, {"regularisation": 0.0}, True),
        (plain.StoCFL, {}, False),
    ],
)
def test_a_train_gets_one_record_of_arrays_unless_a_term_needs_two(
    kind, options, served
):
    app = ClientApp()

    @app.train()
    def train(message: Message, context: Context) -> Message:
        (arrays,) = message.content.array_records.values()
        told = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"a": arrays, "m": told}), reply_to=message)

    app.evaluate()(make_app())
    if served:
        assert start(app, kind, **options).failures == {1: [], 2: []}
    else:
        with pytest.raises(CflError, match="too many values to unpack"):
            start(app, kind, **options)


def test_noise_of_flowers_mod_goes_after_the_choice():
    def weight(value: float) -> ArrayRecord:
        return ArrayRecord({WEIGHT: Array(np.full((2, 3), value, float))})

    def trained(message: Message, context: Context, call_next: Any) -> Message:
        reply: Message = call_next(message, context)
        reply.content["arrays"] = weight(9.0)
        return reply

    noise = LocalDpMod(clipping_norm=1, sensitivity=0.1, epsilon=1, delta=1e-5)
    seeded = {**SEEDED, "reseeded": lambda seed: weight(seed % 7)}
    app = choosing(after=[noise, trained])
    found = start(app, plain.IFCA, initial=weight(0.0), **seeded)
    assert found.failures == {1: [], 2: []}


def test_what_is_flowers_own_loop_is_told():
    strategy = plain.FedAvg()
    with pytest.raises(ConfigError, match="FedAvg=a method is not allowed; use after"):
        strategy.configure_train(1, record(), ConfigRecord(), grid=None)
    with pytest.raises(ConfigError, match="after start"):
        strategy.save("folder")
    assert type(pickle.loads(pickle.dumps(strategy))) is plain.FedAvg
