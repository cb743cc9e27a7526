"""The list of docs/security.md of what leaves a device is what devices send."""

import re
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, RecordDict

from cfl_flower.building import locate
from cfl_flower.client.node_config import SECURE_SUMS
from cfl_flower.communication.records import unpack_answers
from cfl_flower.config.compose import compose_config
from cfl_flower.config.options import list_options
from cfl_flower.errors import NoValidResultError
from simulations.engines.inprocess import InProcessGrid
from tests.conftest import SYSTEMS, Runner

PAGE = Path(__file__).parents[2] / "docs" / "security.md"

SECURE = "privacy.secure_sums=true"

CENTRAL = ["strategy.weighting=plain", "privacy=central"]

PUBLIC = ("ccfl", "fedsoft", "local_async")
"""Methods whose server has samples of its own."""

RUNS = [
    *([f"strategy={name}"] for name in list_options("strategy") if name != "oracle"),
    *(
        ["strategy=fielding", f"strategy/representation={kind}"]
        for kind in ("embedding", "gradient")
    ),
    ["strategy=fielding", "strategy/privacy=laplace"],
    [
        *("strategy=fielding", "strategy/representation=gradient"),
        "strategy.representation.sketch=10",
    ],
    *(
        ["strategy=stocfl", f"strategy.{option}"]
        for option in ("refresh=on_drift", "sketch=10", "omega=sequential")
    ),
    ["strategy=ifca", "strategy.migration=true"],
    ["strategy=flexcfl", "strategy.migration=true"],
    ["strategy=fedavg", "partition.validation=0.2"],
    ["strategy=fedavg", "strategy.fine_tuning=1"],
    ["strategy=fedavg", "strategy.label_shares=true"],
    ["strategy=fedavg", "metrics=[macro_f1,auc]", "dataset.classes=2"],
    ["strategy=fedavg", "selection=oort"],
    ["strategy=fedavg", "server_optimizer=qfedavg"],
    ["strategy=fedavg", "privacy=local"],
    ["strategy=fedavg", *CENTRAL],
    *(
        [f"strategy={name}", SECURE]
        for name in ("fedavg", "fielding", "ifca", "stocfl")
    ),
    *(
        ["strategy=fedavg", SECURE, f"strategy.{option}"]
        for option in ("robust=clip", "fine_tuning=1", "label_shares=true")
    ),
    ["strategy=fedavg", "faults.raises=1"],
]

FIELDS = re.compile(r"`([a-z_]+)`")


def by_shared_model(options: list[str]) -> bool:
    """Return whether devices report by a shared model, which is then in a file."""
    return any(each.startswith("strategy/representation=") for each in options)


def listed() -> set[str]:
    """Return the fields of the table."""
    text = PAGE.read_text().split("<!-- fields -->")[1]
    rows = text.split("<!-- end of fields -->")[0].strip().splitlines()[2:]
    return {name for row in rows for name in FIELDS.findall(row.split("|")[1])}


class Listening(InProcessGrid):
    """Devices of their own, and all that they send."""

    def __init__(self, root: Path, classes: int) -> None:
        super().__init__([site(root, number, classes) for number in range(6)])
        self.left: list[RecordDict] = []

    def answer(self, message: Message) -> Message:
        reply = super().answer(message)
        if reply.has_content():
            self.left.append(deepcopy(reply.content))
        return reply


def site(root: Path, number: int, classes: int) -> dict[str, Any]:
    """Return a device with samples, whose folder and file have telling names."""
    data = root / f"Sentinel-{number}"
    data.mkdir(parents=True)
    rng = np.random.default_rng(number)
    x = rng.random((60, 8), np.float32)
    np.savez(data / "Sentinel.npz", x=x, y=rng.integers(classes, size=60))
    return {
        "client-id": f"site-{number}",
        "data-dir": str(data),
        "state-dir": str(root / "state" / str(number)),
    }


def sent_by(options: list[str], run_small: Runner, folder: Path) -> set[str]:
    """Return the fields that devices send in a run, which names none of their files."""
    grid = Listening(folder, 2 if "dataset.classes=2" in options else 10)
    more = ["model=mlp", "rounds=8" if "strategy=feroma" in options else "rounds=3"]
    if by_shared_model(options):
        np.save(folder / "shared.npy", np.zeros(90, np.float32))
        more[0] = f"strategy.representation.shared.path={folder}/shared.npy"
    if options[0].removeprefix("strategy=") in PUBLIC:
        more += [f"strategy.public_dir={folder}/public"]
        for number in range(5):
            site(folder / "public", number, 10)
    more += ["dataset=folder", "dataset.shape=[8]", "clients=6", "participants=6"]
    if "privacy=local" in options or CENTRAL[1] in options:
        pytest.importorskip("dp_accounting")
    more += ["drift=none", "partition.groups=2"]
    with suppress(NoValidResultError):
        run_small(*more, *options, grid=grid, folder=str(folder / "run"))
    assert grid.left
    sent: set[str] = set()
    for content in grid.left:
        for name, record in content.config_records.items():
            assert "Sentinel" not in str(record), f"{name} names a file or folder"
        if "answers" in content:
            sent.update(*(answer.metrics for answer in unpack_answers(content)))
    return sent


OFTEN = [
    options
    for options in RUNS
    if options[0].removeprefix("strategy=") in {*SYSTEMS, "fedavg"}
]


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("options", OFTEN, ids=" ".join)
def test_devices_send_no_field_that_is_not_listed(options, run_small, tmp_path):
    assert sent_by(options, run_small, tmp_path) <= listed()


RARE = {"empty", "lost"}
"""Fields that need a device without samples, or without what it kept."""


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.usefixtures("impatient")
def test_every_field_that_is_listed_is_sent(run_small, tmp_path):
    sent = {
        " ".join(options): sent_by(options, run_small, tmp_path / str(number))
        for number, options in enumerate(RUNS)
    }
    others = {run: fields - listed() for run, fields in sent.items()}
    assert not any(others.values()), others
    assert listed() - RARE == set().union(*sent.values())


def test_the_methods_are_named_whose_tests_are_of_other_models():
    text = PAGE.read_text().split("<!-- tested otherwise -->")[1].split(")")[0]
    clients = {
        name: compose_config([f"strategy={name}", "output_dir=x"]).strategy.client
        for name in list_options("strategy")
    }
    otherwise = {n for n, each in clients.items() if not locate(each).tests_received}
    assert set(FIELDS.findall(text)) == otherwise


def test_the_settings_of_the_page_are_those_of_a_run(run_small, tmp_path):
    pytest.importorskip("dp_accounting")
    text = PAGE.read_text().split("```json")[1].split("```")[0]
    (tmp_path / "own.json").write_text(text)
    grid = Listening(tmp_path, 10)
    for config in grid.node_configs.values():
        config |= {"settings": str(tmp_path / "own.json"), SECURE_SUMS: True}
    options = ["strategy=fedavg", SECURE, "privacy=local", "model=mlp", "rounds=1"]
    options += ["dataset=folder", "dataset.shape=[8]", "clients=6", "participants=6"]
    options += ["drift=none", "partition.groups=2"]
    options += ["privacy.report_noise=4"]
    run = run_small(*options, "privacy.noise_multiplier=4", grid=grid)
    assert not run.failures
    with pytest.raises(NoValidResultError, match="ConfigError"):
        run_small(*options, folder="less", grid=grid)
