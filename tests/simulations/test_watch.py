"""The page of runs that are under way loads itself anew until the last has ended."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from cfl_flower.runs.directory import FAILURE
from simulations.watch import main
from tests.conftest import Runner


def test_the_page_is_written_until_the_last_run_has_ended(
    undisturbed: Runner,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    whole = undisturbed("strategy=fedavg").folder
    part = tmp_path / "part"
    shutil.copytree(whole, part)
    (part / "summary.json").unlink()
    rows = (part / "rounds.jsonl").read_text().splitlines(keepends=True)
    (part / "rounds.jsonl").unlink()
    (tmp_path / "waits").mkdir()
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "a.pdf").touch()
    page = tmp_path / "report.html"
    shown = []

    def go_on(seconds: float) -> None:
        assert seconds >= 3
        shown.append(page.read_text() if page.exists() else "")
        done = len(shown)
        if done < 4:
            (part / "rounds.jsonl").write_text("".join(rows[: 2 * done - 1]))
            return
        shutil.copy(whole / "summary.json", part)
        (part / "rounds.jsonl").write_text("".join(rows))
        shutil.copy(part / "config.yaml", tmp_path / "waits")
        (tmp_path / "waits" / FAILURE).write_text("no valid result\n")

    monkeypatch.setattr("time.sleep", go_on)
    assert main([str(tmp_path), "--every", "3"]) == 0
    assert shown[0] == ""
    again = '<meta http-equiv="refresh" content="3">'
    assert [again in each for each in shown[1:]] == [True, True, True]
    assert "1 of 4 rounds" in shown[1]
    assert again not in page.read_text()
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"2 runs go on or wait, 0 are in {page}"
    assert said[-1] == f"0 runs go on or wait, 2 are in {page}"


def test_what_is_no_folder_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "nowhere")]) == 2
    complaint = capsys.readouterr().err
    assert (
        "nowhere is not allowed; use the folder of a run or of several\n" in complaint
    )
