"""Wrong lines, and whether the tests of a module notice them: `make mutate`.

mutmut changes one operator, number, argument or value at a time, and runs those tests
of a module that reach the function. `[tool.mutants]` of pyproject.toml lists modules,
and the test files that judge each beside its mirror and its doctests. Results stay in
build/mutants: a run that was interrupted goes on, functions that changed are judged
anew, and wrong lines that survived are tried again with the tests of now.

    python -m tests.mutate [--sample N] [MODULE ...]

``--sample N`` tries about one in N, ``MODULE`` is part of a module's path.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tomllib
from collections.abc import Iterable
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


def mirrored(module: str) -> str:
    """Return the test file that mirrors a module."""
    path = Path("tests", module)
    return str(path.with_name(f"test_{path.name}"))


def prepare(module: str, settings: dict[str, Any], more: list[str]) -> Path:
    """Return a folder in which mutmut finds this checkout, and one module to change."""
    folder = FOLDER / module.removesuffix(".py").replace("/", ".")
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tests", "conf", *settings["source_paths"]):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(ROOT / name)
    judges = (module, mirrored(module), *more)  # its doctests are in the module
    tests = [each for each in judges if (ROOT / each).exists()]
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
        sys.exit(f"mutmut ended with {ended.returncode}; see {folder / 'log'}")


def results(folder: Path, module: str) -> dict[str, str]:
    """Return what became of each wrong line that was tried."""
    path = folder / "mutants" / f"{module}.meta"
    codes = json.loads(path.read_text())["exit_code_by_key"] if path.exists() else {}
    tried = {name: code for name, code in codes.items() if code is not None}
    return {name: CODES.get(code, "timeout") for name, code in tried.items()}


def main() -> None:
    """Try the wrong lines of the listed modules, and print each one's score."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--sample", type=int, default=1)
    asked = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mutants"]
    print(f"{'module':45} killed survived timeout share")
    for module, more in project["modules"].items():
        if asked.modules and not any(part in module for part in asked.modules):
            continue
        folder = prepare(module, project["mutmut"], more)
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
