"""Three SuperNodes over TLS, each with a csv of its own: they agree, train, resume."""

import json

import pytest

from tests.cfl_flower.engine.test_hello import (
    COLUMNS,
    RUN,
    Tables,
    frame_of,
    numbers,
    run,
)
from tests.simulations.deploy.loopback import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.devices]

PATIENCE = 900.0
"""Seconds: each message starts a process that imports torch."""


def test_three_supernodes_agree_on_their_tables_behind_masks(deployment, tmp_path):
    deployment.make_keys(*COLUMNS)
    deployment.register(*COLUMNS)
    for name in COLUMNS:
        (deployment.root / name).mkdir()
        path = deployment.root / name / "data.csv"
        frame_of(name).to_csv(path, index=False)
        deployment.start_device(name, more=["--tell-names"])
    wait_for(lambda: deployment.online() == 3, "the start of the devices", PATIENCE)
    folder = deployment.root / "run"
    secure = ["privacy.secure_sums=true", "system.message_timeout=300"]
    command = ["simulations.deploy.submit", "loopback", *RUN, *secure]
    command += [f"output_dir={folder}"]
    submitted = deployment.start("submit", *command)
    assert submitted.wait(PATIENCE) == 0, deployment.log("submit")
    known = json.loads((folder / "preprocessing.json").read_text())

    other = tmp_path / "elsewhere"
    other.mkdir()
    assert run(Tables(other), other / "run", *secure) == known
    assert numbers(folder) == numbers(other / "run")
    # The server that goes on knows what was agreed.
    again = deployment.start("again", *command, "rounds=3", "resume=true")
    assert again.wait(PATIENCE) == 0, deployment.log("again")
    assert json.loads((folder / "preprocessing.json").read_text()) == known
