"""Many runs: how many at a time, what is told, and why one failed."""

import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from cfl_flower.config.compose import compose_sweep
from cfl_flower.runs.console import Verbosity
from simulations.batch.jobs import Job, Watch, at_once, carry_out

SMALL = "clients=6 participants=3 rounds=2 drift.rounds=[2] partition.groups=3"


def make(sweep: str, folder: Path) -> list[Job]:
    configs = compose_sweep(f"{SMALL} {sweep} output_dir={folder}")
    return [Job(Path(config.output_dir).name, config) for config in configs]


def test_as_many_at_a_time_as_there_are_processors(tmp_path, monkeypatch):
    monkeypatch.setattr("simulations.batch.jobs.usable_cores", lambda: 4)
    sweep = "engine=ray,inprocess,processes workers=2"
    configs = [job.config for job in make(sweep, tmp_path)]
    assert at_once(configs) == 2  # each with two workers
    assert at_once(configs[2:]) == 2
    assert at_once(configs[1:2]) == 4
    uneven = [job.config for job in make("engine=processes workers=1,2", tmp_path)]
    assert at_once(uneven) == 2
    assert at_once([job.config for job in make("seed=0,1", tmp_path)]) == 4
    assert at_once(configs, asked=3) == 3
    monkeypatch.setattr("simulations.batch.jobs.usable_cores", lambda: 1)
    assert at_once(configs) == 1


def test_without_a_terminal_each_end_is_a_line_without_colours(tmp_path):
    text = io.StringIO()
    two = make("seed=0,1", tmp_path)
    watch = Watch("title", two, Verbosity.NORMAL, Console(file=text, width=100))
    with watch.display:
        watch.look(two)
        watch.tell(two[0], "no [/b] valid result")
    assert text.getvalue() == "[1/2] seed0 failed: no [/b] valid result\n"


def test_on_a_terminal_the_runs_that_go_on_are_in_one_block(tmp_path, monkeypatch):
    text = io.StringIO()
    console = Console(file=text, width=100, force_terminal=True, color_system=None)
    (job, other) = make("seed=0,1", tmp_path)
    job.folder.mkdir(parents=True)
    rounds = job.folder / "rounds.jsonl"
    row = {"accuracy": 0.5, "num_clusters": 3, "seconds": 1.0}
    line = json.dumps({"round": 1, **row})
    watch = Watch("title", [job, other], Verbosity.NORMAL, console)
    read = Path.read_bytes
    seen: list[Path] = []
    monkeypatch.setattr(
        Path, "read_bytes", lambda file: seen.append(file) or read(file)
    )
    with watch.display:
        rounds.write_text(f"{line}\n{line}\n")
        watch.look([job, other])
        # It goes on from a checkpoint, and its last line is not yet whole.
        rounds.write_text(f"{line}\n{line[:9]}")
        watch.look([job, other])
    assert seen.count(rounds) == 2  # once in each look
    total, run, _ = text.getvalue().splitlines()[-3:]
    assert "title" in total
    assert "1/4 rounds" in total
    assert run.startswith("seed0 ")
    assert "1/2 rounds, accuracy 50.0%, 3 clusters" in run


@pytest.mark.slow
def test_finished_runs_are_kept_and_failed_ones_are_tried_again(tmp_path, capsys):
    two = make("faults.raises=0,1 engine=inprocess", tmp_path)
    reasons = carry_out(two, 2, Verbosity.VERBOSE, "title")
    assert list(reasons) == [two[1].config.output_dir]
    assert "none of 6 clients" in reasons[two[1].config.output_dir]
    said = capsys.readouterr().err
    assert "round 2/2" in said
    assert "faults.raises1 failed:" in said
    kept = two[0].folder / "rounds.jsonl"
    stamp = kept.stat().st_mtime_ns
    assert carry_out(two, 2, Verbosity.QUIET, "title") == reasons
    assert kept.stat().st_mtime_ns == stamp
    assert capsys.readouterr().err == ""
    assert carry_out(two[:1], 2, Verbosity.NORMAL, "title") == {}
