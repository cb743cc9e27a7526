"""Disturbed runs over a real SuperLink and Ray, beside the same runs in process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from cfl_flower.runs.reading import read_rounds
from cfl_flower.seeding import generator
from simulations.engines.superlink import PROJECT
from tests.chaos.ledger import (
    PATIENCE,
    Ledger,
    family,
    judge_words,
    kill_all,
    wait_for_end,
)
from tests.chaos.results import differences, lost_results

STRATEGIES = ("fielding", "stocfl", "fedccfa", "ccfl")
ROUNDS = 24
SETTINGS = (f"rounds={ROUNDS}", "engine=ray", "workers=2", "system.checkpoint_every=2")
TARGETS = {
    "command": "simulations.run",
    "SuperLink": "flower-superlink",
    "server": "flwr-simulation",
    "worker": "ray::ClientAppActor",
}
"""What can be killed or frozen, and the words that tell its process."""
KINDS = (*(f"kill {name}" for name in TARGETS), "freeze", "tear", "fill disk")
LATER = 1.0
"""Seconds at most between the round after which a fault is due and the fault."""
MOST_FAULTS = 3
"""Faults of one run, before it may come to its end."""
DISK = "8m"
"""Size of the disk that is filled: what a run writes fits in."""


@dataclass(frozen=True)
class Trial:
    """A run that is disturbed, in its folder."""

    strategy: str
    folder: Path
    reference: Path

    def start(self) -> subprocess.Popen[str]:
        """Start the command that begins the run, or goes on with it."""
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "simulations.run", "-q", "resume=true"),
                *overrides(self.strategy, self.folder),
            ],
            cwd=PROJECT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def rounds(self) -> int:
        """Return how many rounds are on record."""
        return len(read_rounds(self.folder))

    def complete(self) -> bool:
        """Return whether the run has ended, and says so."""
        return (self.folder / "summary.json").exists()


def overrides(strategy: str, folder: Path) -> list[str]:
    """Return the settings of a method's run."""
    return [f"strategy={strategy}", *SETTINGS, f"output_dir={folder}"]


def find(root: psutil.Process, words: str) -> psutil.Process | None:
    """Return a process below another one whose command line has these words."""
    for each in family(root):
        try:
            if words in " ".join(each.cmdline()):
                return each
        except psutil.Error:
            continue
    return None


def kill(target: str) -> Callable[[psutil.Process, Trial, np.random.Generator], bool]:
    """Return a fault that kills a process with -9."""

    def strike(root: psutil.Process, trial: Trial, rng: np.random.Generator) -> bool:
        found = find(root, TARGETS[target])
        if found is None:
            return False
        found.kill()
        return True

    return strike


def freeze(root: psutil.Process, trial: Trial, rng: np.random.Generator) -> bool:
    """Stop one of the processes for one to five seconds."""
    found = find(root, str(rng.choice([*TARGETS.values()])))
    if found is None:
        return False
    found.suspend()
    time.sleep(rng.uniform(1, 5))
    found.resume()
    return True


def tear(root: psutil.Process, trial: Trial, rng: np.random.Generator) -> bool:
    """Kill all processes, and cut the checkpoint's newest file at a random byte."""
    kill_all(family(root))
    files = [each for each in (trial.folder / "checkpoint").glob("*") if each.is_file()]
    newest = max(files, key=lambda file: file.stat().st_mtime, default=None)
    if newest is None or not newest.exists():
        return False
    os.truncate(newest, int(rng.integers(newest.stat().st_size)))
    return True


def fill_disk(root: psutil.Process, trial: Trial, rng: np.random.Generator) -> bool:
    """Leave no room in the run's folder until the command has ended."""
    if not trial.folder.is_mount():
        return False
    filler = trial.folder / "filler"
    try:
        with filler.open("wb", buffering=0) as file:
            while file.write(bytes(4096)):
                pass
    except OSError:  # No room is left, as wanted.
        wait_for_end(root)
    filler.unlink()
    return True


FAULTS = {
    **{f"kill {name}": kill(name) for name in TARGETS},
    "freeze": freeze,
    "tear": tear,
    "fill disk": fill_disk,
}


def disturb(trial: Trial, rng: np.random.Generator, ledger: Ledger) -> None:
    """Carry out a run while faults meet it, to its end."""
    torn = False
    for number in range(MOST_FAULTS + 1):
        ledger.resumes += number > 0
        process = trial.start()
        if number < MOST_FAULTS:
            kind = str(rng.choice(KINDS))
            torn |= meet(process, kind, trial, rng, ledger) and kind == "tear"
        _, said = process.communicate(timeout=PATIENCE)
        problem = judge_words(process.returncode, said)
        if problem:
            ledger.problems.append(f"{trial.strategy}: {problem}")
        if torn and process.returncode > 0:
            ledger.ends["refused its torn checkpoint"] += 1
            return
        if trial.complete():
            break
    ledger.lost += lost_results(trial.reference, trial.folder)
    found = differences(trial.reference, trial.folder) if trial.complete() else ["end"]
    ledger.judge(trial.strategy, found)


def meet(
    process: subprocess.Popen[str],
    kind: str,
    trial: Trial,
    rng: np.random.Generator,
    ledger: Ledger,
) -> bool:
    """Let a fault happen at a random moment; return whether it did."""
    due = int(rng.integers(min(trial.rounds(), ROUNDS - 1), ROUNDS))
    while process.poll() is None and trial.rounds() < due:
        time.sleep(0.05)
    time.sleep(rng.uniform(0, LATER))
    try:
        done = process.poll() is None and FAULTS[kind](
            psutil.Process(process.pid), trial, rng
        )
    except psutil.NoSuchProcess:
        done = False
    ledger.note(kind, done)
    return done


@contextmanager
def small_disk(folder: Path) -> Iterator[None]:
    """Give a folder a disk of its own, if this process may."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    may = os.geteuid() == 0 and shutil.which("mount") is not None
    mounted = may and subprocess.run(mount, check=False, capture_output=True)
    try:
        yield
    finally:
        if mounted and not mounted.returncode:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def run_reference(strategy: str, folder: Path) -> None:
    """Carry out a method's run in process, undisturbed."""
    line = [*overrides(strategy, folder), "engine=inprocess"]
    subprocess.run(
        [sys.executable, "-m", "simulations.run", "-q", *line], cwd=PROJECT, check=True
    )


def disturb_all(
    strategies: Sequence[str], minutes: float, seed: int, ledger: Ledger
) -> Iterator[str]:
    """Disturb each method's run in turn; yield a line on each that has ended."""
    end = time.monotonic() + 60 * minutes
    number = 0
    with tempfile.TemporaryDirectory(prefix="cfl-chaos-") as name:
        for strategy in strategies:
            run_reference(strategy, Path(name, strategy))
        while number < len(strategies) or time.monotonic() < end:
            strategy = strategies[number % len(strategies)]
            folder = Path(name, f"{number}-{strategy}")
            rng = generator(seed, "chaos", number)
            with small_disk(folder):
                disturb(Trial(strategy, folder, Path(name, strategy)), rng, ledger)
            number += 1
            yield f"run {number}, {strategy}"
