"""Kill, freeze and damage runs at random moments, and see that no number changes.

    python -m simulations.chaos --minutes 10 --seed 3
    python -m simulations.chaos --minutes 2 --strategies fielding ccfl

Each method's run is carried out once in process, undisturbed. Then the same run goes on
over a real SuperLink and Ray while faults, drawn from the seed, meet it: a process is
killed with -9 or stopped for seconds, all are killed and the newest file of the
checkpoint torn at a random byte, or the disk of the run's folder is full (root alone
can mount the small one that this needs). After each end the same command goes on with
`resume=true`. In the end the rounds, the clients' rows and the models must be those of
the undisturbed run, or the run must have said in one line why not. Exit code 1 if one
did neither.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil
from rich.console import Console
from rich.table import Table

from cfl_flower.errors import ERROR_MARK, ConfigError
from cfl_flower.plugins import CONF
from cfl_flower.runs.reading import read_rounds
from cfl_flower.seeding import generator
from cfl_flower.settings import known_names
from simulations.chaos_results import differences, lost_results
from simulations.superlink import PROJECT
from simulations.terminal import Parser, command

STRATEGIES = ("fielding", "stocfl", "fedccfa", "ccfl")
ROUNDS = 24
SETTINGS = (f"rounds={ROUNDS}", "workers=2", "system.checkpoint_every=2")
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
PATIENCE = 600.0
"""Seconds that a command may take, frozen and all."""
DISK = "8m"
"""Size of the disk that is filled: what a run writes fits in."""


@dataclass
class Ledger:
    """What happened, counted by kind of fault or of end."""

    faults: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    """Faults that came when their process was not there, or the run had ended."""
    ends: Counter[str] = field(default_factory=Counter)
    resumes: int = 0
    lost: int = 0
    problems: list[str] = field(default_factory=list)


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
    for each in (root, *root.children(recursive=True)):
        try:
            if words in " ".join(each.cmdline()):
                return each
        except psutil.Error:
            continue
    return None


def wait_for_end(process: psutil.Process) -> None:
    """Wait until a process has ended, and leave its exit code to its parent."""
    end = time.monotonic() + PATIENCE
    with suppress(psutil.NoSuchProcess):
        while process.status() != psutil.STATUS_ZOMBIE and time.monotonic() < end:
            time.sleep(0.05)


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
    family = root.children(recursive=True)
    for each in (root, *family):
        with suppress(psutil.NoSuchProcess):
            each.kill()
    for each in (root, *family):
        wait_for_end(each)
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
    ledger.ends["equal to the bit" if not found else "different"] += 1
    ledger.problems += [f"{trial.strategy}: {each}" for each in found]


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
    (ledger.faults if done else ledger.missed)[kind] += 1
    return done


def judge_words(code: int, said: str) -> str:
    """Return what is wrong with how a command ended: it completes, or says one line."""
    lines = said.strip().splitlines()
    if code in (0, -signal.SIGKILL):
        return ""
    if len(lines) == 1 and lines[0].startswith(ERROR_MARK):
        return ""
    return f"exit code {code} with {len(lines)} lines: {lines[-1:]}"


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


def show(ledger: Ledger, console: Console) -> None:
    """Print what happened."""
    table = Table(title="faults", title_justify="left")
    for heading in ("kind", "happened", "came too late or found nothing"):
        table.add_column(heading)
    for kind in KINDS:
        table.add_row(kind, str(ledger.faults[kind]), str(ledger.missed[kind]))
    console.print(table)
    ends = ", ".join(f"{count} {end}" for end, count in ledger.ends.items())
    console.print(f"runs: {ends}; {ledger.resumes} resumes, {ledger.lost} results lost")
    for problem in ledger.problems:
        console.print(f"PROBLEM {problem}", style="red", markup=False)


@command
def main(arguments: Sequence[str]) -> int:
    """Disturb runs for some minutes; exit code 1 if one ends otherwise than it may."""
    parser = Parser("chaos", __doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=0, help="of the faults")
    parser.add_argument("--strategies", nargs="+", default=[*STRATEGIES])
    asked = parser.parse_args(arguments)
    known = [path.stem for path in (CONF / "strategy").glob("*.yaml")]
    for strategy in asked.strategies:
        if strategy not in known:
            raise ConfigError(f"{strategy}: {known_names(strategy, known)}")
    console, ledger = Console(), Ledger()
    end, number = time.monotonic() + 60 * asked.minutes, 0
    with tempfile.TemporaryDirectory(prefix="cfl-chaos-") as name:
        for strategy in asked.strategies:
            run_reference(strategy, Path(name, strategy))
        while number < len(asked.strategies) or time.monotonic() < end:
            strategy = asked.strategies[number % len(asked.strategies)]
            folder = Path(name, f"{number}-{strategy}")
            rng = generator(asked.seed, "chaos", number)
            with small_disk(folder):
                disturb(Trial(strategy, folder, Path(name, strategy)), rng, ledger)
            number += 1
            console.print(f"run {number}, {strategy}: {dict(ledger.ends)}")
    show(ledger, console)
    return int(bool(ledger.problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
