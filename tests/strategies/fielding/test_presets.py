"""The paper's settings, Appendix D, tables 1 and 2."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

from cfl_flower.config.compose import compose_config
from cfl_flower.config.composition import compose_plain
from cfl_flower.server_app import execute
from simulations.engines.inprocess import InProcessGrid

PUBLISHED = {
    # clients, rounds between arrivals, rounds, learning rate, participants
    "fmow": (302, 2, 2000, 0.05, 50),
    "cityscapes": (217, 30, 200, 0.001, 20),
    "waymo": (212, 20, 100, 0.001, 20),
    "open_images": (5078, 50, 400, 0.05, 200),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_are_the_published_settings(name: str) -> None:
    plain, choices, _ = compose_plain(
        [f"experiment=fielding_{name}", "strategy=fielding"]
    )
    local = plain["strategy"]["local"]
    found = plain["clients"], plain["drift"]["every"], plain["rounds"]
    assert (*found, local["learning_rate"], plain["participants"]) == PUBLISHED[name]
    assert (local["steps"], local["batch_size"]) == (20, 20)
    assert choices["dataset"] == name


ZONES = ("1C", "18T", "31N", "55H", "33U", "45R")


def write_fmow(root: Path) -> None:
    """Write images of six zones over forty days, each with land uses of its own."""
    rng, lines = np.random.default_rng(0), ["split,timestamp,utm,category"]
    uses = ["airport", "zoo", "barn", "park"]
    images = root / "fmow_v1.1" / "images"
    images.mkdir(parents=True)
    for number in range(360):
        zone, day = number % 6, number // 9
        use = uses[(zone // 3 * 2 + rng.integers(2) + day // 20) % 4]
        split = "test" if number % 5 == 0 else "train"
        date = np.datetime64("2016-01-01") + day
        lines.append(f"{split},{date}T00:00:00Z,{ZONES[zone]},{use}")
        grey = rng.integers(0, 256, (8, 8, 3), np.uint8)
        Image.fromarray(grey).save(images / f"rgb_img_{number}.png")
    text = "".join(f"{line}\n" for line in lines)
    (root / "fmow_v1.1" / "rgb_metadata.csv").write_text(text)


@pytest.mark.slow
def test_a_preset_runs_on_files_in_its_format(tmp_path: Path) -> None:
    write_fmow(tmp_path)
    small = ["dataset.size=8", "model=mclr", "clients=6", "participants=4", "rounds=6"]
    stream = ["drift.periods=8", "drift.window=4", f"data_dir={tmp_path}"]
    config = compose_config(
        [
            *("experiment=fielding_fmow", "strategy=fielding", "engine=inprocess"),
            *(*small, *stream, f"output_dir={tmp_path / 'run'}"),
        ]
    )
    execute(InProcessGrid(), config, Console(file=io.StringIO()))
    lines = (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()
    rounds = [json.loads(line) for line in lines]
    assert len(rounds) == 6
    # Data arrive every second round, and change some clients' labels.
    assert any(row["drifted"] for row in rounds)
    assert all(row["participants"] and not row["failures"] for row in rounds)
