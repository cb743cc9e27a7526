"""Wrong lines, and whether the tests of a module notice them: `make mutate`.

mutmut changes one operator, number, argument or value at a time, and runs those tests
of a module that reach the function: its doctests, and the files that `judges` finds.
Results stay in build/mutants: a run that was interrupted goes on, functions that
changed are judged anew, and wrong lines that survived are tried again with the tests of
now.

    python -m tests.mutate [--turn K/N] [--sample N] [MODULE ...]

All modules of `cfl_flower`, `strategies` and `clients` have their turn: ``--turn K/N``
tries every N-th module, from the K-th on. Without it and without ``MODULE``, which is
part of a module's path, it is the turn of the day, one of 30. ``--sample N`` tries
about one wrong line in N.
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "build" / "mutants"
MEMORY = 8 * 2**30
"""Bytes for each process: a wrong line may append without end."""
NOTHING = {4: "no tests", 5: "no tests", 33: "no tests"}
"""The tests are there no more, all were left out, or none reaches the function."""
CODES = {0: "survived", 1: "killed", 3: "killed", **NOTHING}
"""What pytest's and mutmut's exit codes say; all others are timeouts and crashes."""


PACKAGES = ("cfl_flower", "strategies", "clients")
TURNS = 30


def find_modules() -> list[str]:
    """Return the paths of all modules that have functions."""
    paths = sorted(path for each in PACKAGES for path in (ROOT / each).rglob("*.py"))
    return [str(p.relative_to(ROOT)) for p in paths if "def " in p.read_text()]


def judges(module: str, more: Iterable[str] = ()) -> list[str]:
    """Return the test files of a module.

    The one that mirrors it, and those beside it that import it; or else its strategy's,
    if it is a client, and those that import it; and ``more``. Or else all in the folder
    of its mirror, or those of its package's name.
    """
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    mirror = ROOT / Path("tests", module).with_name(f"test_{Path(module).name}")
    name = ".".join(Path(module).with_suffix("").parts).removesuffix(".__init__")
    words = re.compile(rf"^from {re.escape(name)} import", re.MULTILINE)
    strategy = Path(str(mirror).replace("tests/clients", "tests/strategies"))
    package = f"test_{mirror.parent.name}.py"
    found = [e for e in files if e == strategy or words.search(e.read_text())]
    if mirror in files:
        beside = [e for e in found if e.parent == mirror.parent]
        found = list(dict.fromkeys([mirror, *beside]))
    found += [ROOT / each for each in more]
    found = found or [each for each in files if each.parent == mirror.parent]
    found = found or [each for each in files if each.name == package]
    return [str(each.relative_to(ROOT)) for each in found]


def of_turn(turn: str) -> slice:
    """Return which modules have the K-th of N turns, given K/N.

    >>> ["a", "b", "c", "d", "e"][of_turn("2/3")]
    ['b', 'e']
    """
    first, turns = map(int, turn.split("/"))
    if not 1 <= first <= turns:
        raise argparse.ArgumentTypeError(f"{turn} is not K/N with K from 1 to N")
    return slice(first - 1, None, turns)


def prepare(module: str, settings: dict[str, Any], more: list[str]) -> Path:
    """Return a folder in which mutmut finds this checkout, and one module to change."""
    folder = FOLDER / module.removesuffix(".py").replace("/", ".")
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tests", *settings["also_copy"], *settings["source_paths"]):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(ROOT / name)
    tests = [module, *judges(module, more)]  # its doctests are in the module
    own = {"only_mutate": [module], "pytest_add_cli_args_test_selection": tests}
    lines = [
        f"{key} = {json.dumps(value)}" for key, value in {**settings, **own}.items()
    ]
    text = (ROOT / "pyproject.toml").read_text()
    (folder / "pyproject.toml").write_text("\n".join([text, "[tool.mutmut]", *lines]))
    return folder


def mutmut(folder: Path, names: Iterable[str] = ()) -> None:
    """Try all wrong lines of a folder without a result, or those that are named."""
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", "1", *names]
    single = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    with (folder / "log").open("w") as log:
        ended = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **single},
            stdout=log,
            stderr=log,
            check=False,
        )
    if ended.returncode:
        print(f"mutmut ended with {ended.returncode}; see {folder / 'log'}")


def results(folder: Path, module: str) -> dict[str, str]:
    """Return what became of each wrong line that was tried."""
    path = folder / "mutants" / f"{module}.meta"
    codes = json.loads(path.read_text())["exit_code_by_key"] if path.exists() else {}
    tried = {name: code for name, code in codes.items() if code is not None}
    return {name: CODES.get(code, "timeout") for name, code in tried.items()}


def main() -> None:
    """Try the wrong lines of some modules, and print each one's score."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*")
    parser.add_argument(
        "--turn",
        type=of_turn,
        metavar="K/N",
        help="every N-th module, from the K-th on",
    )
    parser.add_argument("--sample", type=int, default=1)
    asked = parser.parse_args()
    modules = find_modules()
    if asked.modules:
        modules = [m for m in modules if any(part in m for part in asked.modules)]
    elif asked.turn is None:
        asked.turn = of_turn(f"{date.today().toordinal() % TURNS + 1}/{TURNS}")
    modules = modules[asked.turn or slice(None)]
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutants"]
    print(f"{'module':45} killed survived timeout share")
    for module in modules:
        folder = prepare(module, project["mutmut"], project["modules"].get(module, []))
        (folder / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)
        before = results(folder, module)
        if survivors := [n for n, found in before.items() if found != "killed"]:
            mutmut(folder, survivors)
        if asked.sample == 1:
            mutmut(folder)
        elif not before:
            # Those of a function are numbered from 1.
            ends = range(1, 10, asked.sample)
            mutmut(folder, [f"*__mutmut_*{end}" for end in ends])
        found = list(results(folder, module).values())
        killed, late = found.count("killed"), found.count("timeout")
        share = (killed + late) / max(len(found), 1)
        survived = len(found) - killed - late
        print(f"{module:45} {killed:6} {survived:8} {late:7} {share:5.0%}", flush=True)


if __name__ == "__main__":
    main()
