"""Processes of several runs: one that dies takes no other with it."""

from __future__ import annotations

import signal
from pathlib import Path

import psutil
import pytest

from cfl_flower.runs.console import Verbosity
from simulations.batch.processes import Processes, Unit, start

SMALL = "engine=inprocess clients=6 participants=3 drift=none partition.groups=3"


def unit(overrides: str, folder: Path, name: str) -> Unit:
    line = f"{SMALL} {overrides} output_dir={folder / name}"
    return Unit(line, str(folder / f"{name}.txt"))


def ends(found: Processes, count: int) -> dict[int, int]:
    codes: dict[int, int] = {}
    while len(codes) < count:
        told = [event for event in found.events(60) if event.exit_code is not None]
        codes |= {event.unit: event.exit_code for event in told}
    return codes


def forking_process() -> psutil.Process:
    """Return the process that forks; other tests may have left children of ours."""
    children = psutil.Process().children()
    (host,) = (
        each for each in children if "simulations.batch.processes" in each.cmdline()
    )
    return host


@pytest.mark.slow
def test_each_unit_ends_with_its_own_exit_code_and_log(tmp_path: Path) -> None:
    good = unit("rounds=1", tmp_path, "good")
    bad = unit("rounds=0", tmp_path, "bad")
    with start([bad, good], 1, Verbosity.NORMAL) as found:
        assert ends(found, 2) == {0: 2, 1: 0}
    assert "rounds=0 is not allowed" in Path(bad.log).read_text()
    assert "round 1/1" in Path(good.log).read_text()


@pytest.mark.slow
def test_a_run_that_is_killed_takes_no_other_with_it(tmp_path: Path) -> None:
    endless, short = unit("rounds=9999", tmp_path, "a"), unit("rounds=1", tmp_path, "b")
    with start([endless, short], 2, Verbosity.NORMAL) as found:
        while not (tmp_path / "a" / "rounds.jsonl").exists():
            found.events(0.1)
        host = forking_process()
        min(host.children(), key=psutil.Process.create_time).kill()
        assert ends(found, 2) == {0: -signal.SIGKILL, 1: 0}


@pytest.mark.slow
def test_runs_end_with_the_process_that_forked_them(tmp_path: Path) -> None:
    endless = unit("rounds=9999", tmp_path, "a")
    with start([endless, endless], 1, Verbosity.NORMAL) as found:
        while not (tmp_path / "a" / "rounds.jsonl").exists():
            found.events(0.1)
        host = forking_process()
        (run,) = host.children()
        host.kill()
        assert ends(found, 2) == dict.fromkeys((0, 1), -signal.SIGKILL)
        assert psutil.wait_procs([run], timeout=5)[1] == []
