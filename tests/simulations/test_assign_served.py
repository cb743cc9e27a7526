"""Which cluster of a served folder is a device's, by whatever its method compares."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from simulations.assignment import open_run, open_served
from simulations.engines.superlink import PROJECT
from simulations.export import export

METHODS = [
    (["fedavg"], "loss"),
    (["cfl"], "loss"),
    (["ifca", "clusters=3"], "loss"),
    (["feddrift"], "loss"),
    (["fielding"], "distance"),
    (["fielding", "strategy/representation=embedding"], "distance"),
    (["fielding", "strategy/representation=combined"], "distance"),
    (["static"], "distance"),
    (["stocfl"], "cosine"),
    (["stocfl", "model.lora.rank=2", "model=mlp"], "loss"),
    (["flux", "strategy.warmup=1", "strategy.latest=0.25"], "distance"),
    (["feroma", "strategy.warmup=1"], "distance"),
    (["pacfl"], "angle"),
    (["pacfl", "model.lora.rank=2", "model=mlp"], "angle"),
]
"""A method, and what its clients compare clusters by."""


@pytest.mark.parametrize(("method", "by"), METHODS, ids=str)
def test_a_served_folder_says_what_the_run_does(method, by, run_small, tmp_path):
    options = ["drift=none", "partition.purity=1", "participants=12"]
    run = run_small(f"strategy={method[0]}", *method[1:], *options)
    opened = open_run(run.folder)
    export(run.folder, tmp_path / "served")
    for client in range(0, 12, 4):
        asked = opened.assign(client, opened.done).found
        view = opened.resources.stream.view(client, opened.done)
        x, y = view.train()
        device = tmp_path / f"device-{client}"
        device.mkdir()
        np.savez(device / "own.npz", x=x.numpy(), y=y.numpy())
        other = open_served(tmp_path / "served", device)
        # Of some of the samples; the others are for tests.
        same = replace(
            other.resources,
            stream=opened.resources.stream,
            settings={**other.resources.settings, "clients": 12},
        )
        found = replace(other, resources=same).assign(client, opened.done).found
        assert found.by == by
        if asked.by == by:
            assert found.cluster == asked.cluster
            assert found.fit == pytest.approx(
                asked.fit, abs=0.05 if by == "angle" else 1e-5
            )
        else:
            assert "model.lora.rank=2" in method


def test_a_device_finds_its_model_without_ray_and_hydra(run_small, tmp_path):
    run = run_small("strategy=ifca", "rounds=1")
    export(run.folder, tmp_path / "served")
    device = tmp_path / "device"
    device.mkdir()
    x = np.ones((40, 1, 8, 8), np.float32)
    np.savez(device / "own.npz", x=x, y=np.ones(40, int))
    asked = [str(tmp_path / "served"), "--data-dir", str(device)]
    code = (
        "import sys; sys.modules.update(ray=None, hydra=None, omegaconf=None);"
        f"from simulations.assign import main; sys.exit(main({asked}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "loss" in done.stdout
