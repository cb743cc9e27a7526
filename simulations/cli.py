"""`cfl-flower`: all commands under one name, and a list of what can be chosen.

    cfl-flower run strategy=fielding rounds=20
    cfl-flower list strategy
    cfl-flower list fielding

A command is a module beside this one, `python -m simulations.run` for the first line
above; it is imported when it is asked for, and reads its own arguments.
"""

from __future__ import annotations

import ast
import runpy
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from cfl_flower import __version__
from cfl_flower.errors import ConfigError
from cfl_flower.settings import known_names
from simulations.shell.terminal import command

COMMANDS = (
    *("run", "compare", "preview", "report", "reproduce", "track", "assign", "export"),
    *("predict", "new"),
)
DEVICES = ("keys", "superlink", "supernode", "connect", "submit", "doctor")
"""Commands of `cfl-flower deploy`."""

MODULES = {name: name for name in COMMANDS} | {"list": "choices"}
DEPLOYING = {name: f"deploy.{name}" for name in DEVICES}
"""The module below `simulations` of each command."""


def summary(module: str) -> str:
    """Return the first line of a module's docstring, without importing it."""
    spec = find_spec(f"simulations.{module}")
    assert spec is not None and spec.origin is not None
    source = Path(spec.origin).read_text(encoding="utf-8")
    text = ast.get_docstring(ast.parse(source)) or ""
    return text.partition("\n")[0]


def show_commands(start: str, modules: dict[str, str]) -> None:
    """Print a line for each command."""
    print(f"usage: {start} COMMAND ...\n")
    rows = {name: summary(module) for name, module in modules.items()}
    if modules is MODULES:
        rows["deploy"] = "Run on real devices."
    for name, text in rows.items():
        print(f"  {name:10} {text}")
    print("\n  --help     this, or with a command what it takes\n  --version")


@command
def main(words: Sequence[str]) -> None:
    """Start the command that the first word names; exit as it does."""
    deploying = words[:1] == ["deploy"]
    modules = DEPLOYING if deploying else MODULES
    word, *arguments = [*words[deploying:], "--help"]
    if word in ("-h", "--help"):
        show_commands("cfl-flower deploy" if deploying else "cfl-flower", modules)
    elif word == "--version":
        print(f"cfl-flower {__version__}")
    elif word in modules:
        sys.argv[1:] = arguments[:-1]
        # A script's path lacks the current folder, where one's own parts may be.
        sys.path.append(str(Path.cwd()))
        runpy.run_module(f"simulations.{modules[word]}", run_name="__main__")
    else:
        hint = known_names(word, [*modules, *([] if deploying else ["deploy"])])
        raise ConfigError(f"{word} is no command; {hint}")


def app() -> None:
    """Be the script `cfl-flower`."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    app()
