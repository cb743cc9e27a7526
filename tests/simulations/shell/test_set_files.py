"""Overrides from files, in the three commands that take them."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulations import compare, preview, run
from simulations.shell.terminal import read_overrides, with_files


def test_a_line_is_an_override_and_a_yaml_file_is_hydras_list(tmp_path: Path) -> None:
    lines, listed = tmp_path / "lines.txt", tmp_path / "overrides.yaml"
    lines.write_text("# ours\nstrategy=fielding\n\n  drift.rounds=[5,9] \n")
    listed.write_text("- strategy=fielding\n- drift.rounds=[5,9]\n")
    expected = ["strategy=fielding", "drift.rounds=[5,9]"]
    assert read_overrides(lines) == read_overrides(listed) == expected


def test_the_command_line_wins_and_of_two_files_the_later(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("seed=0,1\nrounds=5\nclients=20")
    second.write_text("rounds=6")
    found = with_files([first, second], ["++seed=7"])
    assert found == ["clients=20", "rounds=6", "++seed=7"]


def test_commands_take_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small").write_text("clients=4\nparticipants=2\npartition.groups=11\n")
    for command in (run, compare, preview):
        assert command.main(["seed=3", "--set-file", "small", "clients=5"]) == 2
        assert "partition.groups=11" in capsys.readouterr().err
    words = ["--set-file=small", "--multirun", "strategy=glob(*)", "clients=5"]
    asked = run.parse_arguments(words)
    assert asked.multirun
    assert asked.overrides == [
        *("participants=2", "partition.groups=11"),
        *("strategy=glob(*)", "clients=5"),
    ]
