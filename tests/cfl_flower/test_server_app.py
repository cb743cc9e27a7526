import io
import logging

import numpy as np
import pytest
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from rich.console import Console

from cfl_flower.client_app import app as app_of_devices
from cfl_flower.config.compose import compose_sweep
from cfl_flower.errors import (
    LONGEST,
    CflError,
    ConfigError,
    FailedRunsError,
    InvalidResultError,
    printable,
)
from cfl_flower.server_app import app, execute, execute_all, open_stream
from simulations.engines.inprocess import InProcessGrid
from simulations.preview import main as preview

SMALL = "clients=6 participants=3 rounds=2 drift.rounds=[2] partition.groups=3"


def test_failed_run_does_not_hide_the_others(tmp_path):
    configs = compose_sweep(f"{SMALL} faults.raises=0,1 output_dir={tmp_path}")
    text = io.StringIO()
    with pytest.raises(FailedRunsError, match=r"1 of 2 runs .*raises1.*none of"):
        execute_all(InProcessGrid(), configs, Console(file=text, width=120))
    rows = [line for line in text.getvalue().splitlines() if "│" in line]
    cells = [[cell.strip() for cell in row.split("│")[:2]] for row in rows]
    names = ["fielding raises=0", "fielding raises=1"] * 4
    # And what the swept setting does, value by value: at the end, and in the mean.
    assert [name for name, _ in cells] == names + ["fielding"] * 2
    assert [first for _, first in cells if first == "failed"] == ["failed"] * 4
    assert "raises=1 seed 0 failed: round 1" in " ".join(text.getvalue().split())
    (reason,) = tmp_path.rglob("failure.txt")
    assert "none of" in reason.read_text()


def test_what_devices_say_is_no_markup(tmp_path, monkeypatch):
    """Rich raises on a tag that closes none."""
    # There is one device of six, for whom the server waits.
    monkeypatch.setattr("cfl_flower.communication.nodes.JOIN_TIMEOUT", 0.1)
    rude = ClientApp()

    @rude.query("identify")
    def identify(message: Message, context: Context) -> Message:
        return app_of_devices(message, context)

    @rude.query()
    def refuse(message: Message, context: Context) -> Message:
        raise ValueError("[/red] [link=file:///x]")

    configs = compose_sweep(f"{SMALL} seed=0,1 output_dir={tmp_path}")
    text, grid = io.StringIO(), InProcessGrid([{"client-id": 0}], rude)
    with pytest.raises(FailedRunsError, match=r"2 of 2 runs failed.*\[/red\]"):
        execute_all(grid, configs, Console(file=text, width=120))
    assert text.getvalue().count("[/red]") >= 2


def test_flowers_log_has_the_reason_in_one_line_and_no_traceback(tmp_path, monkeypatch):
    """What Flower logs after an app's exception is what its simulation does."""
    monkeypatch.setenv("CFL_FLOWER_CONSOLE", str(tmp_path / "lines"))
    flower = logging.getLogger("flwr")
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    flower.addHandler(handler)
    context = Context(1, 0, {}, RecordDict(), {"overrides": "strategy=100%s"})
    try:
        app(InProcessGrid(), context)
    except CflError as error:
        flower.error("Simulation raised an exception", exc_info=error)
        flower.error("Exit Code: 700\nAn unhandled exception occurred")
    finally:
        flower.removeHandler(handler)
        flower.filters.clear()
    (line,) = text.getvalue().splitlines()
    assert line.startswith("cfl-flower error: strategy=100%s is not allowed; known")
    assert (tmp_path / "lines").read_text() == f"{line}\n"


EMPTY = [
    ("partition=iid clients=3000", 3000),
    ("partition=dirichlet partition.minimum=0 partition.alpha=0.01 clients=60", 60),
    ("partition=iid partition.validation=0.5 clients=1000", 1000),
    ("partition=iid clients=100", 0),
]
"""Overrides, and how many clients there are if some of them hold nothing."""


@pytest.mark.parametrize(("overrides", "clients"), EMPTY, ids=str)
def test_clients_without_samples_are_counted_by_run_and_preview(
    overrides, clients, tmp_path, capsys
):
    asked = f"{overrides} strategy=fedavg rounds=1 participants=5 drift=none"
    (config,) = compose_sweep(f"{asked} output_dir={tmp_path}")
    text = io.StringIO()
    execute(InProcessGrid(), config, Console(file=text, width=200))
    stream = open_stream(config)
    views = [stream.view(each, 1) for each in range(config.clients)]
    assert preview(asked.split()) == 0
    found = {"train": [view.train() for view in views]}
    found["test"] = [view.test() for view in views]
    for words in (text.getvalue(), capsys.readouterr().out):
        for verb, samples in found.items():
            none = [len(y) for _, y in samples].count(0)
            said = f"{none:,} of {clients:,} clients hold no sample to {verb} on"
            assert (f"hold no sample to {verb} on" in words) is bool(none)
            assert not none or said in words
        assert ("hold no sample to train" in words) is bool(clients)


def test_a_run_in_which_nobody_tests_is_refused(tmp_path):
    y = np.arange(60) % 3
    parts = {"x_train": y[:, None], "y_train": y, "x_test": y[:9, None]}
    # Clients hold labels 0 and 2.
    np.savez(tmp_path / "data.npz", **parts, y_test=np.full(9, 1))
    asked = f"dataset=npz data_dir={tmp_path} clients=2 participants=2 clusters=2"
    asked += " partition.groups=2 partition.labels=1 partition.purity=1"
    (config,) = compose_sweep(
        f"{asked} strategy=fedavg rounds=1 drift=none output_dir={tmp_path / 'out'}"
    )
    with pytest.raises(ConfigError, match="no client has samples to test on; take"):
        execute(InProcessGrid(), config, Console(file=io.StringIO()))
    # Some do after a drift.
    for number in (1, 3):
        (config,) = compose_sweep(f"{asked} rounds=4 drift.rounds=[{number}]")
        open_stream(config).require_samples()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ValueError: no, 7 < 8 µs", "ValueError: no, 7 < 8 µs"),
        ("no\nclient 1, train: shape", "no\\nclient 1, train: shape"),
        ("\x1b[2J\r\t\0", "\\x1b[2J\\r\\t\\x00"),
        ("\ud800", "\\ud800"),
        ("a\u2028b\u202ec", "a\\u2028b\\u202ec"),
        ("x" * LONGEST, "x" * LONGEST),
        ("x" * 10**6, "x" * (LONGEST - 1) + "…"),
        ("\n" * LONGEST, ("\\n" * LONGEST)[: LONGEST - 1] + "…"),
    ],
)
def test_a_clients_text_becomes_one_short_line(text, shown):
    assert printable(text) == shown
    shown.encode()


def test_a_refusal_is_printable():
    error = InvalidResultError("rai\nsed", "\ud800" * 1000)
    assert error.reason == "rai\\nsed"
    assert error.detail == str(error)
    assert len(error.detail) == LONGEST
    error.detail.encode()
