"""The picture of a saved run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulations.directions_map import concepts, embed, main
from simulations.reporting.saved import load_run
from strategies.stocfl.method import StoCFLState
from tests.cfl_flower.client.test_node_config import SITES, Sites

Runner = Callable[..., Any]


def test_clients_of_one_concept_lie_together(run_small: Runner) -> None:
    run = run_small("strategy=stocfl", "clients=24", "participants=24", "rounds=2")
    saved = load_run(run.folder)
    _, state = saved.load_state()
    assert isinstance(state, StoCFLState)
    rows = np.flatnonzero(state.known())
    truth = concepts(saved.timeline, state, rows)
    places = embed([state.representations[row] for row in rows], 0)
    centres = np.array([places[truth == kind].mean(axis=0) for kind in range(3)])
    gaps = np.linalg.norm(places[:, None] - centres, axis=2)
    assert (gaps.argmin(axis=1) == truth).all()
    again = embed([state.representations[row] for row in rows], 0)
    assert again.tolist() == places.tolist()


def test_picture_is_written_to_the_output(run_small: Runner, tmp_path: Path) -> None:
    run = run_small("strategy=stocfl")
    assert main([str(run.folder)]) == 0
    assert (run.folder / "directions.png").read_bytes().startswith(b"\x89PNG")
    for name in ("one.svg", "two.svg"):
        assert main([str(run.folder), "--output", str(tmp_path / name)]) == 0
    one, two = ((tmp_path / name).read_bytes() for name in ("one.svg", "two.svg"))
    assert one == two


def test_a_run_on_devices_has_a_picture_without_the_truth(
    run_small: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Three devices make no map of four.
    monkeypatch.setattr("simulations.directions_map.FEWEST", 3)
    run = run_small(*SITES, "strategy=stocfl", grid=Sites(tmp_path))
    assert main([str(run.folder), "--output", str(tmp_path / "map.svg")]) == 0
    picture = (tmp_path / "map.svg").read_text()
    assert "3 clients by cluster: 2" in picture
    assert "true concept" not in picture


def test_bad_input_is_one_line(
    run_small: Runner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_small("strategy=stocfl", "participants=2", "rounds=1")
    other = run_small("strategy=fedavg", "rounds=1", folder="other")
    for arguments, words in (
        ([str(tmp_path / "none")], "holds no run"),
        ([str(run.folder)], "at least 4 clients"),
        ([str(other.folder)], "a run of stocfl"),
        ([str(run.folder), "--output", "a.txt"], ".png"),
    ):
        assert main(arguments) == 2
        err = capsys.readouterr().err
        assert words in err
        assert err.count("\n") == 1
