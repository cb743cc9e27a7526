"""The benchmark of endurance sees what grows, where it does, and only then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from simulations.benchmark.endurance import (
    ALL,
    DRIFTS,
    PARTS,
    draw,
    judge,
    measure_files,
    watch,
)
from simulations.reporting.plotting import to_svg

LEAK = """
import sys, threading, time
kept = []
with open(sys.argv[1], "w") as rounds:
    for round in range(60):
        time.sleep(0.05)
        kept += [bytearray(2**20), open(sys.argv[0])]
        kept[-2][:] = b"1" * 2**20
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        print("{}", file=rounds, flush=True)
"""
"""In each round keeps a megabyte and a file, and starts a thread that stays."""


def curve(**columns: list[float]) -> pd.DataFrame:
    flat = dict.fromkeys(("memory", "files", "threads"), [1.0] * 20)
    rounds = range(10, 210, 10)
    stored = [100.0 * round for round in rounds]
    return pd.DataFrame({**flat, "stored": stored, **columns}, index=rounds)


def test_what_a_program_leaks_in_each_round_is_seen(tmp_path: Path) -> None:
    program = tmp_path / "leak.py"
    program.write_text(LEAK)
    command = [sys.executable, str(program), str(tmp_path / "rounds.jsonl")]
    found = watch(command, tmp_path, 5)[ALL]
    first, last = found.iloc[0], found.iloc[-1]
    rounds = found.index[-1] - found.index[0]
    assert rounds >= 30
    # A point stands for any moment of its five rounds.
    grown = last - first
    assert grown["memory"] / 2**20 == pytest.approx(rounds, abs=6)
    assert grown["files"] == pytest.approx(rounds, abs=5)
    assert grown["threads"] == pytest.approx(rounds, abs=5)
    assert grown["stored"] == pytest.approx(3 * rounds, abs=15)
    assert not judge("leak", found).holds


def test_a_run_in_process_stays_as_it_is(tmp_path: Path) -> None:
    line = [*("strategy=fielding", "engine=inprocess", "rounds=30"), *DRIFTS]
    run = [sys.executable, "-m", "simulations.run", *line, f"output_dir={tmp_path}/run"]
    found = watch([*run, "-q"], tmp_path, 3)
    assert list(found) == [ALL]
    curve = found[ALL]
    assert curve.index.is_monotonic_increasing
    assert curve.index[-1] == 30
    later = curve.iloc[1:]
    assert later["memory"].min() > 50e6
    assert later["memory"].max() <= 1.05 * later["memory"].iloc[0]
    assert later["threads"].nunique() == 1
    done, size = measure_files(tmp_path)
    assert done == 30
    assert size == sum(path.stat().st_size for path in tmp_path.rglob("*"))
    # While a checkpoint replaces another, both are there.
    assert curve["stored"].iloc[-1] < 1.2 * size


def test_a_command_that_fails_has_no_curve(tmp_path: Path) -> None:
    with pytest.raises(subprocess.CalledProcessError):
        watch([sys.executable, "-c", "raise SystemExit(1)"], tmp_path, 1)


@pytest.mark.slow
@pytest.mark.ray
def test_the_parts_of_a_run_on_ray_are_told_apart(tmp_path: Path) -> None:
    line = ["strategy=fedavg", "rounds=8", f"output_dir={tmp_path}/run", "-q"]
    found = watch([sys.executable, "-m", "simulations.run", *line], tmp_path, 2)
    assert set(found) == {ALL, *PARTS.values()}
    last = {part: each.iloc[-1] for part, each in found.items()}
    parts = sum(last[part]["memory"] for part in set(PARTS.values()))
    assert parts < last[ALL]["memory"]
    assert all(each["threads"] > 1 for each in last.values())


def test_what_is_flat_after_the_first_tenth_holds() -> None:
    rising = [1e6, 2e6, *[100e6] * 18]
    row = judge("run", curve(memory=rising, files=[3.0, *[9.0] * 19]))
    # The second of twenty points is still of the first tenth.
    assert row.holds
    assert row.figure == "1.000 x 100 MB, files +0, threads +0, 0.1 kB a round"


@pytest.mark.parametrize(
    ("column", "last", "figure"),
    [
        ("memory", 1.06, "1.060 x"),
        ("files", 2.0, "files +1"),
        ("threads", 0.0, "threads +1"),
    ],
)
def test_growth_of_anything_does_not_hold(
    column: str, last: float, figure: str
) -> None:
    row = judge("run", curve(**{column: [1.0] * 19 + [last]}))
    assert not row.holds
    assert figure in row.figure


def test_the_picture_names_every_line() -> None:
    lines = {"fielding": curve(), "static": curve()}
    svg = to_svg(draw({"in process": lines, "on Ray": {ALL: curve()}}), "endurance")
    for words in ("fielding", "static", ALL, "round, on Ray", "open files", "threads"):
        assert words in svg
