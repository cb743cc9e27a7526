"""The run command: what it refuses, and what its sweeps leave behind."""

import subprocess
import sys

import pytest
import yaml

from cfl_flower.runs.console import VERBOSITY, Verbosity, verbosity
from simulations.run import main
from tests.conftest import run_command

SMALL = ["engine=inprocess", "clients=6", "participants=3", "rounds=2"]
SMALL += ["partition.groups=2", "strategy.local.epochs=1", "drift.rounds=[2]"]


def test_quiet_and_verbose_are_no_overrides_and_reach_the_run(monkeypatch):
    monkeypatch.setenv(VERBOSITY, "normal")
    for flags, expected in (
        ([], Verbosity.NORMAL),
        (["-v"], Verbosity.VERBOSE),
        (["--quiet"], Verbosity.QUIET),
    ):
        # What is said is known before the settings are.
        assert main([*flags, "rounds=0", "--multirun"]) == 2
        assert verbosity() is expected


@pytest.mark.slow
def test_multirun_gives_every_run_its_own_folder(tmp_path):
    module = [sys.executable, "-m", "simulations.run", "--multirun", *SMALL]
    sweep = ["strategy=fedavg,local", "seed=0,1", f"output_dir={tmp_path}/sweep"]
    subprocess.run([*module, *sweep], cwd=tmp_path, check=True)
    folders = sorted(path.parent.name for path in tmp_path.rglob("summary.json"))
    assert folders == ["fedavg-seed0", "fedavg-seed1", "local-seed0", "local-seed1"]
    assert [path.name for path in tmp_path.iterdir()] == ["sweep"], "nothing beside it"


@pytest.mark.slow
def test_a_failed_run_exits_with_1_and_says_why(tmp_path):
    module = [sys.executable, "-m", "simulations.run", *SMALL]
    done = run_command(
        [*module, "faults.nan=1", f"output_dir={tmp_path}/run", "strategy=fedavg"]
    )
    assert done.returncode == 1
    assert "none of 3 clients gave a valid train result" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_folder_that_no_file_can_name_is_one_line(tmp_path, capsys):
    asked = [*SMALL, "strategy=fedavg", f"output_dir='{tmp_path}/run\udcff'"]
    assert main(asked) == 2
    complaint = capsys.readouterr().err
    assert "a text cannot be written" in complaint
    assert complaint.count("\n") == 1


def test_the_composed_configuration_has_what_no_file_says(capsys):
    assert main(["strategy=fielding", "strategy.threshold=0.5", "--cfg", "job"]) == 0
    node = yaml.safe_load(capsys.readouterr().out)
    assert node["strategy"]["threshold"] == 0.5
    assert node["strategy"]["scan"]["restarts"] == 10


def test_a_run_does_not_go_on_with_data_that_changed(tmp_path, capsys):
    rows = "".join(f"{i},{i % 7},{'ab'[i % 2]}\n" for i in range(60))
    (tmp_path / "data.csv").write_text("x,z,label\n" + rows)
    small = ["dataset=csv", f"data_dir={tmp_path}", "partition=iid", "drift=none"]
    small += ["clients=2", "participants=2", "strategy=fedavg", "engine=inprocess"]
    small += [f"output_dir={tmp_path / 'run'}", "resume=true"]
    assert main([*small, "rounds=1"]) == main([*small, "rounds=2"]) == 0
    (tmp_path / "data.csv").write_text("x,z,label\n" + rows.replace("59,3,b", "58,3,b"))
    before = (tmp_path / "run" / "rounds.jsonl").read_text()
    capsys.readouterr()
    assert main([*small, "rounds=3"]) == 2
    assert "the files of dataset=csv have changed" in capsys.readouterr().err
    assert (tmp_path / "run" / "rounds.jsonl").read_text() == before
    assert not (tmp_path / "run" / "failure.txt").exists()
