"""What no server learns from a device whose owner has rules of their own."""

import importlib
import json
import pkgutil
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from PIL import Image

import clients
from cfl_flower.building import build, locate
from cfl_flower.client.node_config import SECURE_SUMS
from cfl_flower.client.requests import Request
from cfl_flower.communication.outstanding import PendingMessage
from cfl_flower.communication.records import unpack_answers
from cfl_flower.communication.task_records import encode_models, pack_tasks
from cfl_flower.config.compose import compose_config
from cfl_flower.config.options import list_options
from cfl_flower.errors import NoValidResultError
from cfl_flower.models import build_model
from cfl_flower.seeding import key
from cfl_flower.types import PASSES, Answer, Plan, Scalar, Task
from simulations.engines.inprocess import InProcessGrid
from tests.conftest import SYSTEMS, WHOLE, sample

SHAPE = (1, 8, 8)
FOLDERS = ["dataset=folder", "dataset.shape=[1,8,8]", "drift=none"]
FOLDERS += ["clients=6", "participants=6"]
NO_ROUNDS = {"ccfl", "fedsoft", "local_async", "fedasync", "fedbuff"}
METHODS = sorted({*list_options("strategy")} - {"oracle", *NO_ROUNDS})
LOCAL = "cfl_flower.privacy.settings.LocalPrivacy"
PRIVACY = {"_target_": LOCAL, "clip": 1.0, "noise_multiplier": 4.0}
NOISY = ["privacy=local", "privacy.noise_multiplier=4"]


def site(root: Path, name: str, seed: int = 0, **own: Any) -> dict[str, Any]:
    """Return a device; the seed changes what its training samples look like."""
    data = root / f"{name}-{seed}"
    data.mkdir(parents=True)
    rng = np.random.default_rng(key(name))
    x = rng.random((60, *SHAPE), np.float32)
    y = rng.integers(10, size=60)
    # As the folder divides samples: by the name of their file, and their place.
    trained = np.random.default_rng(key("a.npz")).random(60) >= 0.2
    other = np.random.default_rng(seed).random((60, *SHAPE), np.float32)
    x[trained] = other[trained]
    np.savez(data / "a.npz", x=x, y=y)
    state = str(root / f"state-{name}-{seed}")
    return {"client-id": name, "data-dir": str(data), "state-dir": state, **own}


def settings_of(root: Path, *options: str, run: str = "a" * 32) -> dict[str, Any]:
    """Return a run's settings as a server sends them."""
    config = compose_config([*FOLDERS, f"output_dir={root}/run", *options])
    settings: dict[str, Any] = json.loads(json.dumps(config.resolved))
    return settings | {"run": run}


def ask(
    node: dict[str, Any],
    phase: str,
    settings: dict[str, Any],
    config: dict[str, Scalar],
    *models: np.ndarray,
) -> Answer:
    """Return what a device answers to a server that asks whatever it likes."""
    grid = InProcessGrid([node])
    task = Task(node["client-id"], tuple(range(len(models))), config)
    plan = Plan([task], list(models), reply=tuple(map(len, models)))
    pending = PendingMessage(phase, 1, plan, [task], 1000)
    content = pack_tasks(pending, json.dumps(settings), encode_models(plan))
    reply = grid.answer(Message(content, 1000, phase))
    if reply.has_error():
        return Answer(node["client-id"], error=("raised", reply.error.reason))
    return unpack_answers(reply.content)[0]


def model_of(settings: dict[str, Any]) -> np.ndarray:
    """Return the initial model of a run."""
    return build_model(build(settings["model"]), SHAPE, 10, 0).to_vector()


def requests() -> Iterator[dict[str, Scalar]]:
    """Yield all that clients may be asked beside training and tests."""
    names = [each.name for each in pkgutil.walk_packages(clients.__path__, "clients.")]
    found = [vars(importlib.import_module(name)).items() for name in names]
    constants = [value for module in found for name, value in module if name.isupper()]
    words = {value for value in constants if isinstance(value, str)}
    kinds = [[each.name for each in fields(kind)] for kind in Request.__subclasses__()]
    numbers = {"halves": 0, "reported": 1, "chosen": 1, "directions": "a"}
    for asked in [*kinds, *([word] for word in sorted(words))]:
        yield {"directions": "a"} | {name: numbers.get(name, True) for name in asked}


@pytest.fixture
def noisy(tmp_path: Path) -> dict[str, Any]:
    """Return a device whose owner says how much noise its models get."""
    word = tmp_path / "own.json"
    word.write_text(json.dumps({"privacy": PRIVACY}))
    return site(tmp_path, "a", settings=str(word))


@pytest.mark.parametrize("method", sample(METHODS, SYSTEMS))
def test_no_query_has_an_answer_of_arrays_that_are_no_directions(
    method, noisy, tmp_path
):
    settings = settings_of(tmp_path, f"strategy={method}", "model=mlp")
    settings["privacy"] = {**PRIVACY, "report_noise": 1.0}
    client = locate(settings["strategy"]["client"])
    model = model_of(settings)
    for config in requests():
        answer = ask(noisy, "query", settings, config, model, model)
        direction = any(config.get(name) for name in client.directions)
        assert direction or not len(answer.arrays), config


KINDS = ("fielding", "flexcfl", "ccfl", "stocfl", "fedccfa", "ifca", "fedem", "apfl")
TESTED = [
    *(
        pytest.param([f"strategy={name}"], marks=[] if name in KINDS else WHOLE)
        for name in METHODS
    ),
    ["strategy=ifca", "strategy.tested=best"],
    ["strategy=fielding", "strategy/representation=embedding"],
]


class Twins(InProcessGrid):
    """Devices with twins that hear the same, and have other samples to train on.

    Their owners guard these when models are tested.
    """

    def __init__(self, root: Path, **own: Any) -> None:
        super().__init__([site(root, f"site-{number}") for number in range(6)])
        self.twins = {
            node: site(root, config["client-id"], 1)
            for node, config in self.node_configs.items()
        }
        self.own = own
        self.told: list[tuple[Answer, Answer]] = []

    def answer(self, message: Message) -> Message:
        node = message.metadata.dst_node_id
        tested = message.metadata.message_type == "evaluate"
        own = self.own if tested else {}
        replies = []
        for config in (self.twins[node], self.node_configs[node]):
            context = Context(1, node, {**config, **own}, RecordDict(), {})
            try:
                replies.append(self.client_app(deepcopy(message), context))
            except Exception:  # noqa: BLE001 - as InProcessGrid, a failure of its own
                return super().answer(message)
        if tested:
            (one,), (other,) = (unpack_answers(each.content) for each in replies)
            self.told.append((one, other))
        return replies[1]


@pytest.mark.parametrize("options", TESTED, ids=" ".join)
def test_what_a_test_tells_does_not_depend_on_training_samples(
    options, run_small, tmp_path
):
    more = ["model=mlp"]
    if "strategy/representation=embedding" in options:
        np.save(tmp_path / "shared.npy", np.zeros(4810, np.float32))
        more += [f"strategy.representation.shared.path={tmp_path}/shared.npy"]
    grid = Twins(tmp_path, **{SECURE_SUMS: True})
    with suppress(NoValidResultError):
        run_small(*FOLDERS, *more, *options, "rounds=1", grid=grid)
    assert grid.told
    for one, other in grid.told:
        for each in (one, other):
            for name in (PASSES, "representation", "profile"):
                each.metrics.pop(name, None)
        assert one == other


OTHERS = [
    ["strategy=fedem"],
    ["strategy=fedavg", "strategy.fine_tuning=1"],
    ["strategy=fedavg", "strategy.label_shares=true"],
    ["strategy=fielding", "strategy.client=clients.profile.ProfileClient"],
]
"""Tests of other models than received ones, or of their losses on training samples."""


@pytest.mark.parametrize("options", OTHERS, ids=" ".join)
def test_a_test_of_another_model_is_refused_by_name(options, noisy, tmp_path):
    hidden = ["strategy/privacy=client"] if "strategy=fielding" in options else []
    settings = settings_of(tmp_path, *options, *hidden, *NOISY)
    model = model_of(settings)
    plain = settings_of(tmp_path, "strategy=fedavg", *NOISY)
    strict = site(tmp_path, "b", **{SECURE_SUMS: True})
    client = settings["strategy"]["client"]
    for node in (noisy, strict):
        for config in ({"test": True}, {"test": False, **HISTOGRAM}):
            error = ask(node, "evaluate", settings, config, model).error
            assert error[0] == "refused"
            assert f"received models alone, as they are; {client}" in error[1]
        assert ask(node, "evaluate", plain, {"test": True}, model).num_examples == 10


HISTOGRAM: dict[str, Scalar] = {"representation": "label_histogram"}


@pytest.mark.parametrize("kind", ["histogram", "direction"])
def test_a_device_reports_the_same_with_the_same_noise_in_every_run(
    kind, noisy, tmp_path
):
    method = {"histogram": ["strategy=fielding", "strategy/privacy=client"]}
    options = [*NOISY, "model=mlp", *method.get(kind, ["strategy=stocfl"])]

    def told(run: str, name: str = "a") -> bytes:
        settings = settings_of(tmp_path, *options, run=run * 32)
        device = {**noisy, "client-id": name}
        if kind == "direction":
            asked, model = {"represent": True}, model_of(settings)
            return ask(device, "query", settings, asked, model).arrays[0].tobytes()
        answer = ask(device, "query", settings, HISTOGRAM)
        return answer.metrics["representation"]

    assert told("a") == told("b") == told("c")
    assert told("a", name="another") != told("a")


def test_with_other_settings_the_noise_is_another(tmp_path):
    node = site(tmp_path, "a")

    def noise(epsilon: float) -> np.ndarray:
        options = ["strategy=fielding", "strategy/privacy=laplace"]
        more = f"strategy.privacy.epsilon={epsilon}"
        settings = settings_of(tmp_path, *options, more)
        found = ask(node, "query", settings, HISTOGRAM).metrics["representation"]
        # Not cut off at 0, as it is small.
        return np.frombuffer(found, np.float32)

    honest, once, twice = noise(1e6), noise(200), noise(100)
    # Two unknowns, two reports: h + s n and h + 2 s n, but for rounding.
    assert abs(2 * once - twice - honest).max() > 1e-5


def test_a_noise_that_its_owner_does_not_say_is_the_default(noisy, tmp_path):
    options = ["strategy=fielding", "strategy/privacy=client", *NOISY]
    settings = settings_of(tmp_path, *options)
    assert "representation" in ask(noisy, "query", settings, HISTOGRAM).metrics
    own = {**settings["strategy"]["privacy"], "noise_multiplier": 1e-9}
    less = [("privacy", {"report_noise": 1e-9}), ("privacy", {"clip": 100.0})]
    for group, changed in [*less, ("strategy", {"privacy": own})]:
        other = {**settings, group: settings[group] | changed}
        error = ask(noisy, "query", other, HISTOGRAM).error
        assert error and error[1].startswith("DeviceFailedError: ConfigError"), changed


@pytest.mark.parametrize("names", ["hiv,well", "flu,well"])
def test_a_server_that_guesses_names_of_classes_hears_one_answer(names, tmp_path):
    node = site(tmp_path, "a", **{SECURE_SUMS: True})
    for name in ("hiv", "well"):
        folder = Path(node["data-dir"]) / name
        folder.mkdir()
        for number in range(20):
            Image.new("L", SHAPE[1:]).save(folder / f"{number}.png")
    options = ["strategy=fielding", f"dataset.names=[{names}]", "dataset.classes=2"]
    Path(node["data-dir"], "a.npz").unlink()
    settings = settings_of(tmp_path, *options, "partition.groups=2")
    answer = ask(node, "query", settings, HISTOGRAM)
    log = "DeviceFailedError: ConfigError; its text is in the device's own log"
    assert answer.error == ("raised", log)
