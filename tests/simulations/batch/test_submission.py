"""Runs as jobs: of this machine by submitit's own processes, of SLURM by its script."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import pytest

from simulations.compare import main

SMALL = ["clients=6", "participants=3", "partition.groups=3", "engine=inprocess"]
ASKED = [*SMALL, "--bare", "strategy=fedavg,local", "rounds=2", "drift=none"]

there = importlib.util.find_spec("submitit") is not None
needs_submitit = pytest.mark.skipif(
    not there, reason="submitit is not installed: pip install submitit"
)


@needs_submitit
def test_local_jobs_end_and_the_same_command_finds_them_finished(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = [*ASKED, f"output_dir={tmp_path}"]
    assert main([*asked, "--submit", "local", "--resource", "timeout_min=5"]) == 0
    said = capfd.readouterr().err
    assert "2 runs in" in said and "; 2 jobs submitted to local, logs in " in said
    assert said.splitlines()[2].endswith(" ".join(asked))
    summaries = [tmp_path / name / "summary.json" for name in ("fedavg", "local")]
    until = time.monotonic() + 200
    while not all(path.exists() for path in summaries):
        assert time.monotonic() < until, (*tmp_path.glob("jobs/*.out"),)
        time.sleep(0.2)
    written = [path.stat().st_mtime_ns for path in summaries]
    # No GPU is needed to show what is finished.
    assert main([*asked, "gpus_per_worker=1"]) == 0
    assert [path.stat().st_mtime_ns for path in summaries] == written
    assert main([*asked, "--submit", "local"]) == 0
    assert "; 0 jobs submitted to local" in capfd.readouterr().err


@needs_submitit
def test_slurm_is_asked_for_an_array_of_jobs_with_these_resources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "script"
    for name in ("srun", "sbatch"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\ncp $1 {script}\necho Submitted batch job 7\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    asked = [*ASKED, f"output_dir={tmp_path / 'out'}", "gpus_per_worker=1"]
    found = ["timeout_min=90", "mem_gb=8", "gpus_per_node=1", "slurm_partition=long"]
    resources = [f"--resource={each}" for each in found]
    assert main([*asked, "--submit=slurm", "--jobs=1", *resources]) == 0
    lines = script.read_text().splitlines()
    for flag in ("array=0-1%1", "time=90", "mem=8GB", "partition=long"):
        assert f"#SBATCH --{flag}" in lines
    capsys.readouterr()
    for wrong in ("slurm_partitio=long", "timeout_min=soon"):
        assert main([*asked, "--submit=slurm", f"--resource={wrong}"]) == 2
        said = capsys.readouterr().err
        assert said.startswith("cfl-flower error: --submit=slurm: ")
        assert said.count("\n") == 1


def test_without_submitit_a_line_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda *_: None)
    assert main([*ASKED, f"output_dir={tmp_path}", "--submit=slurm"]) == 2
    said = capsys.readouterr().err
    assert said.endswith("use another, or pip install submitit first\n")
