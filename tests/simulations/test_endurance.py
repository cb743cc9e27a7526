"""The benchmark of endurance sees what grows, where it does, and only then."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest

from simulations.benchmark.endurance import ALL, DRIFTS, judge, measure_files, watch

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


def test_what_is_flat_after_the_first_tenth_holds() -> None:
    rounds = range(10, 210, 10)
    columns = dict.fromkeys(("files", "threads", "stored"), [1.0] * 20)
    # The second of twenty points is still of the first tenth.
    memory = [1e6, 2e6, *[100e6] * 18]
    flat = pd.DataFrame({**columns, "memory": memory}, index=rounds)
    assert judge("run", flat).holds
    for column, last in (("memory", 106e6), ("files", 2.0), ("threads", 2.0)):
        grown = flat.copy()
        grown.loc[200, column] = last
        assert not judge("run", grown).holds
