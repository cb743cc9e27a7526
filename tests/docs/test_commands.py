"""Every command that README and docs show works.

All are composed and checked as their door does before it starts anything. Those that
end within seconds are run, too, for two rounds and without Ray: single runs, report,
assignment, map, preview and lists. Not run here are comparisons and tables of papers
(run small by their own tests), sweeps, `flwr run` (run by the tests of the SuperLink)
and `make`, which runs the tests.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from cfl_flower.config import compose_config, compose_sweep
from cfl_flower.errors import ConfigError
from cfl_flower.overrides import expand
from simulations import (
    assign,
    compare,
    directions_map,
    preview,
    report,
    reproduce,
    run,
)

ROOT = Path(__file__).parents[2]
DOORS = [
    *("run", "compare", "reproduce", "report"),
    *("preview", "assign", "directions_map", "benchmark"),
    "export",
]


def commands() -> Iterator[tuple[str, list[str]]]:
    """Return each command of each page, by the page's name."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    for page in sorted(pages):
        for block in re.findall(r"```bash\n(.*?)```", page.read_text(), re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                if words:
                    yield page.name, words


ALL = list(commands())
OURS = {
    shlex.join(words): words
    for _, words in ALL
    if words[:2] == ["python", "-m"] and words[2].startswith("simulations.")
}


def test_every_command_is_one_that_is_checked() -> None:
    found = {words[0] for _, words in ALL}
    known = {"python", "make", "flwr", "pip", "source", ".venv/bin/pre-commit"}
    assert found <= known
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
    for _, words in ALL:
        if words[0] == "make":
            assert words[1] in targets
        elif words[:2] == ["python", "-m"]:
            assert words[2] in [f"simulations.{door}" for door in DOORS]
        elif words[0] == "flwr":
            (overrides,) = re.findall(r'^overrides="(.*)"$', words[-1])
            assert len(compose_sweep(overrides)) == 1


@pytest.mark.parametrize("command", OURS)
def test_a_command_is_understood(command: str) -> None:
    _, _, door, *arguments = OURS[command]
    try:
        check(door.removeprefix("simulations."), arguments)
    except ConfigError as error:
        # Some need data that have to be fetched first, and say so.
        if "data_dir" not in str(error):
            raise


def check(door: str, arguments: list[str]) -> None:
    """Compose what a door would run."""
    if door == "run":
        overrides = [each for each in arguments if not each.startswith("-")]
        for job in expand(overrides):
            compose_config(job)
    elif door == "compare":
        asked = list(compare.parse_arguments(arguments).overrides)
        if not any(each.startswith("strategy=") for each in asked):
            asked += compare.default_overrides()
        for line in compare.by_settings(compare.with_marks(asked)):
            assert compose_sweep(shlex.join(line))
    elif door == "reproduce":
        tables = reproduce.load_published()
        said = reproduce.parse(arguments, tables)
        if not said.list:
            cells = tables[said.table].cells(said.rows, said.methods)
            assert reproduce.make_job(cells[0], 0, said.scale, Path("/tmp/none"))
    elif door == "preview":
        overrides, _ = preview.parse_arguments(arguments)
        compose_config(overrides)
    elif door == "report":
        assert report.parse(arguments).runs


@pytest.mark.slow
def test_the_readmes_commands_run_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    doors = {
        "run": run.main,
        "report": report.main,
        "assign": assign.main,
        "directions_map": directions_map.main,
        "preview": preview.main,
        "reproduce": reproduce.main,
    }
    done = []
    for name, words in ALL:
        door = words[2].removeprefix("simulations.") if len(words) > 2 else ""
        long = door == "reproduce" and "--list" not in words
        if name != "README.md" or door not in doors or long or "--multirun" in words:
            continue
        # The page's folders below /tmp are others' too: ours.
        arguments = [word.replace("/tmp", str(tmp_path)) for word in words[3:]]
        if door in ("run", "preview"):
            arguments += ["rounds=2"]
        if door == "run":
            arguments += ["engine=inprocess"]
        assert doors[door](arguments) == 0, words
        done.append(door)
    assert set(done) == set(doors)
    assert (tmp_path / "report.html").exists()
    assert "cfl-flower error" not in capsys.readouterr().err
