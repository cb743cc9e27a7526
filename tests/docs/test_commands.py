"""Every command that README and docs show works.

All are read and checked as their command does before it starts anything, those of the
guide to real devices, too. Those that end within seconds are run, for two rounds and
without Ray: single runs of docs, report, assignment, map, preview and lists. README's
own are pasted into a shell by `test_readme`.

Not run are comparisons and tables of papers (run small by their own tests), sweeps,
runs of papers' settings, `flwr` and the commands of devices (run by the tests of the
SuperLink and of devices), and `make`, which runs the tests.
"""

import argparse
import importlib
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import pytest
from flwr.common.config import parse_config_args

from cfl_flower.config.compose import compose_config, compose_sweep
from cfl_flower.config.overrides import expand
from cfl_flower.errors import ConfigError, NoConceptsError
from simulations import assign, compare, preview, report, reproduce, run
from tests.conftest import sample

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "simulations" / "deploy" / "README.md"


def commands() -> Iterator[tuple[str, list[str]]]:
    """Return each command of each page, by the page's path."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", GUIDE]
    for page in sorted([*pages, *ROOT.glob("docs/**/*.md")]):
        name = str(page.relative_to(ROOT))
        for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line.removesuffix("&"), comments=True)
                if words:
                    yield name, spelt_out(words)


def spelt_out(words: list[str]) -> list[str]:
    """Return a command of `cfl-flower` as that of its module; others as they are."""
    if words[0] != "cfl-flower":
        return words
    command, start = ".".join(words[1:3]), 3
    if words[1] != "deploy":
        command, start = words[1].replace("-", "_").replace("list", "choices"), 2
    return ["python", "-m", f"simulations.{command}", *words[start:]]


ALL = list(commands())
OURS = {
    shlex.join(words): words
    for _, words in ALL
    if words[:2] == ["python", "-m"] and words[2].startswith("simulations.")
}


def module(command: str) -> ModuleType:
    """Return what `python -m` starts; a command that is not there fails."""
    found = importlib.import_module(f"simulations.{command}")
    if hasattr(found, "main"):
        return found
    return importlib.import_module(f"simulations.{command}.__main__")


def test_every_command_is_one_that_is_checked():
    # `COLUMNS=160 flwr list` is Flower's command with a variable before it.
    every = [(page, words[1:] if "=" in words[0] else words) for page, words in ALL]
    found = {words[0] for _, words in every}
    known = {"python", "make", "flwr", "pip", "source", "export"}
    known.add(".venv/bin/pre-commit")
    assert found <= known
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    for page, words in every:
        if words[0] == "make":
            assert words[1] in targets
        elif words[:2] == ["python", "-m"]:
            assert shlex.join(words) in OURS
        elif words[:2] == ["flwr", "run"]:
            assert compose_sweep(run_config(ROOT / page, words).get("overrides", ""))
        elif words[0] == "flwr":
            assert " ".join(words[1:]).startswith(("list", "supernode list"))


def run_config(page: Path, words: list[str]) -> dict[str, Any]:
    """Return what `flwr run` takes from its command line, or from a file."""
    if "--run-config" not in words:
        return {}
    typed = words[words.index("--run-config") + 1]
    if typed.endswith(".toml"):
        typed = str(page.parent / typed)
    return parse_config_args([typed])


OFTEN = {
    shlex.join(words)
    for page, words in ALL
    if re.match("README|CONTRIBUTING|simulations|docs/(README|tutorials|how-to)", page)
}


@pytest.mark.parametrize("command", sample(OURS, OFTEN))
def test_a_command_is_understood(command, monkeypatch):
    _, _, module_name, *arguments = OURS[command]
    try:
        check(module_name.removeprefix("simulations."), arguments, monkeypatch)
    except ConfigError as error:
        # Some need data that have to be fetched first, and say so.
        if "data_dir" not in str(error):
            raise


def compose_some(overrides: Sequence[str]) -> None:
    """Compose runs of a sweep until every value of every key was in one of them."""
    seen: set[str] = set()
    for job in expand(overrides):
        # Each has a folder of its own.
        values = {each for each in job if not each.startswith("output_dir=")}
        if not values <= seen:
            with suppress(NoConceptsError):
                compose_config(job)
        seen |= values


def check(command: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Compose what a command would run, or at least read what it is told."""
    if command == "run":
        compose_some([each for each in arguments if not each.startswith("-")])
    elif command == "compare":
        asked = list(compare.parse_arguments(arguments).overrides)
        if not any(each.startswith("strategy=") for each in asked):
            asked += compare.default_overrides()
        for line in compare.by_settings(compare.with_marks(asked)):
            # Where it would know nothing, the reference that was added is left out.
            with suppress(NoConceptsError):
                compose_some(line)
    elif command == "reproduce":
        tables = reproduce.load_tables()
        said = reproduce.parse(arguments, tables)
        if not said.list:
            cells = tables[said.table].cells(said.rows, said.methods)
            assert reproduce.Reproduction(said).job(cells[0], 0)
    elif command == "preview":
        compose_config([each for each in arguments if each != "--diagnose"])
    elif command == "report":
        assert report.parse(arguments).runs
    else:
        asked_for = read(command, arguments, monkeypatch)
        if command == "deploy.submit":
            words = [each.replace("$PWD", "/tmp") for each in asked_for.overrides]
            compose_config(words)


class Understood(BaseException):
    """Ends a command as soon as it has read its command line."""

    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__()
        self.asked = asked


def read(
    command: str, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> argparse.Namespace:
    """Return what a command makes of its command line, with its own parser."""
    # Whichever a command takes: this one reads what both do.
    parse = argparse.ArgumentParser.parse_intermixed_args

    def stop(self: argparse.ArgumentParser, *told: list[str]) -> NoReturn:
        try:
            asked = parse(self, *told)
        except ConfigError as error:
            # Which its command would tell in a line.
            raise SystemExit(2) from error
        raise Understood(asked)

    main = module(command).main
    with monkeypatch.context() as patch, pytest.raises(Understood) as found:
        for name in ("parse_args", "parse_intermixed_args"):
            patch.setattr(argparse.ArgumentParser, name, stop)
        patch.setattr(sys, "argv", [command, *arguments])
        main(*([arguments] if main.__code__.co_argcount else []))
    return found.value.asked


COMMANDS = {
    each.__name__.removeprefix("simulations."): each.main
    for each in (run, report, assign, preview, reproduce)
}


def is_quick(page: str, words: list[str]) -> bool:
    """Return whether a command of a page ends within seconds, after those before it."""
    command = words[2].removeprefix("simulations.") if len(words) > 2 else ""
    if not page.startswith("docs/") or command not in COMMANDS or "--multirun" in words:
        return False
    if page.startswith("docs/how-to/"):
        return command != "reproduce" or "--list" in words
    return command == "run" and not any(w.startswith("experiment=") for w in words)


@pytest.mark.slow
@pytest.mark.whole
def test_the_quick_commands_of_docs_run_one_after_the_other(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    quick = {shlex.join(words): words for page, words in ALL if is_quick(page, words)}
    for number, words in enumerate(quick.values()):
        command = words[2].removeprefix("simulations.")
        # The page's folders below /tmp are others' too: ours.
        arguments = [word.replace("/tmp", str(tmp_path)) for word in words[3:]]
        arguments += ["rounds=2"] * (command in ("run", "preview"))
        arguments += ["engine=inprocess"] * (command == "run")
        placed = any(word.startswith("output_dir=") for word in arguments)
        # Two runs of one method may begin within the second that names their folders.
        arguments += [f"output_dir=run-{number}"] * (command == "run" and not placed)
        assert COMMANDS[command](arguments) == 0, words
    assert {words[2].removeprefix("simulations.") for words in quick.values()} == {
        *COMMANDS
    }
    assert (tmp_path / "report.html").exists()
    assert "cfl-flower error" not in capsys.readouterr().err
