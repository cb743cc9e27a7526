import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from cfl_flower.analysis.baselines import BOUND, REFERENCES
from cfl_flower.analysis.method_tables import new_table
from cfl_flower.errors import ConfigError
from cfl_flower.runs.console import fitting
from cfl_flower.runs.lines import read_lines
from simulations.compare import announce, main, make_jobs, with_marks
from tests.simulations.deploy.loopback import wait_for

SMALL = ["clients=6", "participants=3", "partition.groups=3", "engine=inprocess"]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("fielding", "fedavg,fedavg_ft,fedavg_ls,local,fielding,oracle"),
        ("oracle,fedavg", "fedavg_ft,fedavg_ls,local,oracle,fedavg"),
        ("choice(fielding,local)", "fedavg,fedavg_ft,fedavg_ls,fielding,local,oracle"),
        ("fedavg_ft", "fedavg,fedavg_ls,local,fedavg_ft,oracle"),
        ("glob(fes*)", "fedavg,fedavg_ft,fedavg_ls,local,fesem,oracle"),
    ],
)
def test_marks_are_added_to_whatever_way_strategies_are_swept(asked, found):
    other = "strategy.local.mu=1"
    assert with_marks([other, f"strategy={asked}"]) == [other, f"strategy={found}"]
    assert with_marks([other]) == [other]


def test_a_reference_without_a_run_for_each_seed_is_refused(tmp_path, capsys):
    assert main(["strategy=ifca", "--reference=ifc", f"output_dir={tmp_path}"]) == 2
    known = "use one of fedavg, fedavg_ft, fedavg_ls, local, ifca, oracle"
    assert f"reference=ifc is not allowed; {known}\n" in capsys.readouterr().err
    swept = ["strategy=ifca", "strategy.clusters=2,3", f"output_dir={tmp_path}"]
    assert main([*swept, "--reference=ifca"]) == 2
    assert "compare with one value of each\n" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.jsonl"))


def test_methods_that_do_less_with_a_linear_network_are_named(tmp_path, capsys):
    sweep = ["strategy=fedavg,fedccfa,fedfm", "seed=0,1", f"output_dir={tmp_path}"]
    announce(make_jobs([*SMALL, *sweep, "model=mclr"]), sweep)
    said = capsys.readouterr().err
    for method in ("fedccfa", "fedfm"):
        line = f"strategy={method} is for networks with an extractor, and that of "
        assert said.count(f"{line}model=mclr has no weights") == 1
    assert "strategy=fedavg is" not in said
    announce(make_jobs([*SMALL, *sweep, "model=mlp"]), sweep)
    assert "extractor" not in capsys.readouterr().err


def test_a_run_keeps_its_folder_when_more_seeds_and_settings_are_asked_for(tmp_path):
    asked = [*SMALL, "strategy=fedavg", "rounds=2", f"output_dir={tmp_path}"]
    (job,) = make_jobs(asked)
    assert job.folder == tmp_path / "fedavg"
    settings = {**job.config.resolved, "resume": False}
    (job.folder / "config.yaml").write_text(yaml.safe_dump(settings))
    (job.folder / "rounds.jsonl").write_text("")

    def names(*more: str) -> list[str]:
        return [job.folder.name for job in make_jobs([*asked, *more])]

    assert names() == ["fedavg"]
    assert names("seed=0,1") == ["fedavg", "seed1"]
    assert names("strategy.local.epochs=10,2") == ["fedavg", "strategy.local.epochs2"]
    # Fewer rounds are another run.
    assert names("rounds=1,2") == ["rounds1", "fedavg"]


@pytest.mark.parametrize(
    "sweep",
    [
        *("seed=0,00", "seed=0,1,00", "strategy.local.epochs=1,1.0,2", "seed=1,1"),
        *("strategy.local.learning_rate=0.1,0.10", "partition.purity=1,1.0"),
    ],
)
def test_equal_settings_are_one_run_however_they_are_written(sweep, tmp_path):
    asked = [*SMALL, "strategy=fedavg,ifca", f"output_dir={tmp_path}", sweep]
    with pytest.raises(ConfigError, match=r"same run occurs twice.*name each value"):
        make_jobs(asked)


def test_a_broken_run_is_named_before_any_other_starts(tmp_path, capsys):
    asked = [*SMALL, "rounds=2", "seed=0,1", f"output_dir={tmp_path}", "--bare"]
    asked += ["strategy=local", "drift.rounds=[2]"]
    (config, _) = [job.config for job in make_jobs([a for a in asked if a[0] != "-"])]
    folder = tmp_path / "seed0"
    (folder / "config.yaml").write_text(yaml.safe_dump(config.resolved))
    (folder / "summary.json").write_text('{"rounds": 2, "seconds": 1.0}')
    (folder / "rounds.jsonl").write_text('{"round": 1, "accu\n')
    assert main(asked) == 2
    complaint = capsys.readouterr().err
    assert complaint.count("\n") == 1
    assert f"{folder / 'rounds.jsonl'} cannot be read (line 1 is torn)" in complaint
    assert not list((tmp_path / "seed1").iterdir())


def numbers(folder: Path) -> dict[str, list[Any]]:
    return {
        path.parent.name: [{**row, "seconds": 0} for row in read_lines(path)]
        for path in folder.rglob("rounds.jsonl")
    }


def lines(folder: Path) -> int:
    return sum(path.read_text().count("\n") for path in folder.rglob("rounds.jsonl"))


@pytest.mark.slow
def test_killed_in_the_middle_the_same_command_goes_on(tmp_path, capsys):
    runs = [*SMALL, "strategy=static", "rounds=12", "drift=regroup,none"]
    runs += ["engine=processes"]
    asked = [*runs, "--bare", "--jobs=2", f"output_dir={tmp_path / 'killed'}"]
    command = [sys.executable, "-m", "simulations.compare", *asked]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as command:
        wait_for(lambda: lines(tmp_path) >= 3, "the third round", 90)
        ours = psutil.Process(command.pid).children()
        command.kill()
    assert ours
    _, left = psutil.wait_procs(ours, timeout=10)
    assert not [each for each in left if each.status() != psutil.STATUS_ZOMBIE]
    done = {path.parent.name for path in tmp_path.rglob("summary.json")}
    assert len(done) < 2
    assert main(asked) == 0
    out = capsys.readouterr().out
    # A drift has other data than none: each has tables of results, costs, clusters and
    # clients.
    by_drift = 2
    shown = sum(line.startswith(" static ") for line in out.splitlines())
    assert shown == 4 * 2 + by_drift
    whole = [*runs, "--bare", "--jobs=1", f"output_dir={tmp_path / 'whole'}"]
    assert main([*whole, "-q", "--markdown"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "| static " in out
    assert len(numbers(tmp_path / "whole")) == 2
    # No GPU is needed to show what is finished.
    assert main([*whole, "-q", "gpus_per_worker=1"]) == 0
    assert numbers(tmp_path / "killed") == numbers(tmp_path / "whole")
    page = (tmp_path / "whole" / "report.html").read_text()
    assert "static under drift regroup and no drift on digits" in page
    assert (tmp_path / "whole" / "report.csv").read_text().count("static") == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("strategy=fedavg --bare", ["methods: fedavg; seeds: 1; runs: 1, of which 1 "]),
        ("strategy=ifca seed=0,1,2", ["ifca, oracle; seeds: 3; ", "runs: 18"]),
        ("strategy=fedprox seed=0,1 drift=regroup,rotate", ["seeds: 2"]),
    ],
)
def test_a_dry_run_says_what_there_is_to_do(arguments, told, tmp_path, capsys):
    place = f"output_dir={tmp_path / 'c'}"
    assert main([*arguments.split(), "--dry-run", "-q", "rounds=3", place]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert all(each in said for each in told)
    assert re.search(r"to be carried out, \d at a time in /", said)
    assert "--dry-run" not in said
    assert not list(tmp_path.rglob("rounds.jsonl"))


@pytest.mark.parametrize(
    ("asked", "left_out"),
    [
        ("strategy=fielding server_optimizer=yogi", ["local"]),
        ("strategy=fesem selection=nearest strategy.local.epochs=1", None),
        ("strategy=fielding selection=nearest", [*REFERENCES, BOUND]),
        ("strategy=fielding participants=99", None),
        ("strategy=fedavg participants=99", None),
    ],
)
def test_references_that_cannot_have_a_setting_are_left_out(
    asked, left_out, tmp_path, capsys
):
    place = f"output_dir={tmp_path / 'c'}"
    found = main([*asked.split(), "--dry-run", "-q", "rounds=3", "drift=none", place])
    said = capsys.readouterr().err
    assert found == (2 if left_out is None else 0)
    for name in left_out or ():
        assert f"strategy={name}" in said
    assert said.count("left out") == len(left_out or ())


@given(
    cells=st.lists(st.lists(st.integers(1, 18), min_size=2, max_size=12), min_size=1),
    width=st.integers(50, 130),
)
def test_tables_fit_and_lose_nothing(cells, width):
    count = min(map(len, cells))
    texts = [[f"{'x' * size}" for size in row[:count]] for row in cells]
    rows = {f"method{number}": row for number, row in enumerate(texts)}
    headings = [f"heading of {n}" for n in range(count)]
    table = new_table("some title", headings, rows).draw()
    parts = fitting(table, width)
    out = Console(file=io.StringIO(), width=width)
    for part in parts:
        out.print(part)
    lines = out.file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    for number, row in enumerate(texts):
        shown = "".join(line for line in lines if f"method{number} " in line)
        assert re.findall("x+", shown) == row
