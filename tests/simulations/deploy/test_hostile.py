"""A hostile device among real processes, over TLS and with a registered key."""

from __future__ import annotations

import pickle
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message, RecordDict

from tests.cfl_flower.client.test_node_config import (
    HIGH,
    LOW,
    SITES,
    add_samples,
    node_config,
)
from tests.cfl_flower.communication.test_hostile import (
    FLOATS,
    Attacks,
    HostileGrid,
    pickled,
    raw,
    rewritten,
    spoil,
    with_array,
    with_cell,
    with_record,
)
from tests.conftest import Run, Runner
from tests.simulations.deploy.loopback import Deployment, wait_for

pytestmark = [pytest.mark.slow, pytest.mark.devices]

VILLAIN = "site-c"
PATIENCE = 900.0
"""Seconds: each message starts a process that imports torch."""

RUN = [*SITES, "strategy=fielding", "partition.groups=2", "rounds=9"]
EVERYTHING = [*RUN, "drift.rounds=[]", "strategy.local.epochs=1"]
"""With what `run_small` adds."""


def attacks(folder: Path) -> Attacks:
    """Return one of each kind."""
    ones = np.ones(FLOATS, np.float32)
    return [
        ("oversized", with_array(np.zeros(2**19, np.float32))),
        ("shape", with_array(np.zeros(FLOATS + 1, np.float32))),
        ("shape", with_array(raw(b"no array"))),
        ("shape", with_array(raw(pickled(folder / "unpickled")))),
        ("non-finite", with_array(ones * np.float32("nan"))),
        ("foreign", rewritten(lambda row: [[0, *row[1:]]])),
        ("count", with_cell(1, -1)),
        (
            "representation",
            with_record("bytes", {"0.representation": b"no distribution"}),
        ),
    ]


def answer_falsely(folder: Path, reply: Message, asked: Message) -> Message:
    """Spoil a device's answer; its process ends with it, so a file is its memory."""
    memory = folder / "old.pickle"
    old: dict[str, RecordDict] = {}
    if memory.exists():
        old = pickle.loads(memory.read_bytes())
    spoiled = spoil(reply, asked, attacks(folder), old)
    memory.write_bytes(pickle.dumps(old))
    return spoiled


def make_hostile(folder: Path) -> str:
    """Write what Python runs at its start, and return the folder it looks into."""
    (folder / "sitecustomize.py").write_text(
        textwrap.dedent(f"""
            from pathlib import Path
            from flwr.clientapp import ClientApp

            honest = ClientApp.__call__

            def answer(self, message, context):
                from tests.simulations.deploy.test_hostile import answer_falsely
                reply = honest(self, message, context)
                return answer_falsely(Path({str(folder)!r}), reply, message)

            ClientApp.__call__ = answer
        """)
    )
    return str(folder)


def fill(root: Path) -> None:
    for name, labels in (("site-a", LOW), ("site-b", HIGH), (VILLAIN, HIGH)):
        add_samples(root / name, "first", labels)


def honest_rows(run: Run) -> list[dict[str, Any]]:
    """Return the tests of the others, which tell every model that they were served.

    A report that is refused does not take its client's test with it, so the hostile
    device itself is tested in that round.
    """
    return [row for row in run.clients if row["client"] != VILLAIN]


def test_a_hostile_supernode_is_as_one_that_fails(
    deployment: Deployment, run_small: Runner, tmp_path: Path
) -> None:
    devices = ("site-a", "site-b", VILLAIN)
    deployment.make_keys(*devices)
    deployment.register(*devices)
    fill(deployment.root)
    lair = tmp_path / "lair"
    lair.mkdir()
    for name in devices:
        first = make_hostile(lair) if name == VILLAIN else ""
        deployment.start_device(name, first)
    wait_for(lambda: deployment.online() == 3, "the start of the devices", PATIENCE)
    folder = deployment.root / "run"
    command = ["simulations.deploy.submit", "loopback", *EVERYTHING]
    command.append(f"output_dir={folder}")
    assert deployment.start("submit", *command).wait(PATIENCE) == 0

    run = Run(folder)
    reasons = [*(reason for reason, _ in attacks(lair)), "replayed"]
    for row, reason in zip(run.rounds, reasons, strict=True):
        found = {f["phase"]: f["reason"] for f in row["failures"]}
        assert {f["client"] for f in row["failures"]} == {VILLAIN}
        # Reports come with tests; with a trained model nobody reads one.
        phase = "evaluate" if reason == "representation" else "train"
        assert found[phase] == reason, row["failures"]
        assert set(found) == {phase, "evaluate"}
    assert not (lair / "unpickled").exists()

    other = tmp_path / "elsewhere"
    fill(other)
    quiet = run_small(
        *RUN,
        grid=HostileGrid([], [node_config(other, name) for name in devices], VILLAIN),
        folder="quiet",
    )
    # In that round the hostile device's model was sound, and counts from then on.
    alike = reasons.index("representation")
    rows = [
        [r for r in honest_rows(each) if r["round"] <= alike] for each in (run, quiet)
    ]
    assert rows[0] == rows[1]
