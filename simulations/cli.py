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
from importlib.util import find_spec
from pathlib import Path

import typer

from cfl_flower import __version__

COMMANDS = (
    *("run", "compare", "preview", "report", "reproduce", "track", "assign", "export"),
    "new",
)
DEVICES = ("keys", "superlink", "supernode", "connect", "submit", "doctor")
"""Commands of `cfl-flower deploy`."""

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    suggest_commands=False,  # click does
)
deploy = typer.Typer(no_args_is_help=True, help="Run on real devices.")
app.add_typer(deploy, name="deploy")


def summary(module: str) -> str:
    """Return the first line of a module's docstring, without importing it."""
    spec = find_spec(f"simulations.{module}")
    assert spec is not None and spec.origin is not None
    source = Path(spec.origin).read_text(encoding="utf-8")
    text = ast.get_docstring(ast.parse(source)) or ""
    return text.partition("\n")[0]


def add_command(group: typer.Typer, name: str, module: str) -> None:
    """Make a module a command that passes its arguments on."""
    argument = typer.Argument(None)

    def start(arguments: list[str] = argument) -> None:
        sys.argv[1:] = arguments or []
        # A script's path lacks the current folder, where one's own parts may be.
        sys.path.append(str(Path.cwd()))
        runpy.run_module(f"simulations.{module}", run_name="__main__")

    group.command(
        name.replace("_", "-"),
        help=summary(module),
        add_help_option=False,
        context_settings={"ignore_unknown_options": True},
    )(start)


def _print_version(asked: bool) -> None:
    if asked:
        print(f"cfl-flower {__version__}")
        raise typer.Exit


VERSION = typer.Option(
    False, "--version", callback=_print_version, is_eager=True, help="Print it."
)


@app.callback(help=(__doc__ or "").partition("\n")[0])
def main(version: bool = VERSION) -> None:
    """Do what the command says."""


for each in COMMANDS:
    add_command(app, each, each)
add_command(app, "list", "choices")
for each in DEVICES:
    add_command(deploy, each, f"deploy.{each}")


if __name__ == "__main__":
    app(prog_name="cfl-flower")
