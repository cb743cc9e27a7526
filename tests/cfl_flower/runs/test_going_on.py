"""What goes on in a folder that a run has begun: the same run, and no other."""

import io
import re
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from cfl_flower.config.compose import compose_config
from cfl_flower.errors import ConfigError
from cfl_flower.run_config import RunConfig
from cfl_flower.runs import directory as results
from cfl_flower.runs.checkpoint import Checkpoint
from cfl_flower.runs.directory import FAILURE, RunDirectory
from cfl_flower.runs.lines import read_lines
from cfl_flower.runs.reading import finished, read_settings
from cfl_flower.server_app import execute, warn_of_lost_states
from cfl_flower.state import ClusteredState, no_clusters
from simulations.engines.inprocess import InProcessGrid
from tests.cfl_flower.client.test_node_config import SITES, Sites
from tests.cfl_flower.runs.test_directory import files_of, write

DITTO = ["strategy=ditto", "participants=4"]


OF_TABLE = ["dataset=csv", "dataset.label=y", "partition=iid", "drift=none"]


@pytest.mark.parametrize(
    ("attempt", "then"),
    [
        ([*DITTO, "seed=1", "clients=15"], DITTO),
        (["strategy=apfl", "faults.raises=0.5"], [*DITTO, "model=mlp"]),
        ([*DITTO, *OF_TABLE], DITTO),
        (DITTO, [*DITTO, *SITES]),
    ],
)
def test_a_run_reads_nothing_of_an_attempt_without_a_round(
    attempt, then, run_small, tmp_path, monkeypatch
):
    rows = "".join(f"{n % 7},{n},{n % 2}\n" for n in range(200))
    (tmp_path / "data.csv").write_text(f"u,v,y\n{rows}")

    def failed(*_: object) -> None:
        raise ValueError("mend me")

    with monkeypatch.context() as patch, pytest.raises(ValueError, match="mend me"):
        patch.setattr(RunDirectory, "append", failed)
        run_small(*attempt, f"data_dir={tmp_path}")
    assert "mend me" in (tmp_path / "run" / FAILURE).read_text()
    own = {Path("clients/0/1.npz"), Path("clients/ifca.py"), Path("clients/0/7/0.txt")}
    for name in own:
        (tmp_path / "run" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "run" / name).touch()
    numbers, files = [], []
    for name in ("run", "whole"):
        grid = Sites(tmp_path) if SITES[0] in then else None
        run = run_small(*then, folder=name, grid=grid)
        numbers.append(run.numbers)
        files.append({path.relative_to(run.folder) for path in files_of(run.folder)})
    assert numbers[0] == numbers[1]
    assert files[0] == files[1] | own


def stopped(config: RunConfig) -> str:
    """Let a run stop before a round is finished; return its token."""
    with pytest.raises(KeyboardInterrupt), RunDirectory(config) as directory:
        raise KeyboardInterrupt
    return directory.token


OTHER = [
    *("seed=1", "clients=39", "participants=9", "model.hidden=9", "privacy=none"),
    *("privacy.noise_multiplier=100", "privacy.clip=3", "strategy=fedprox"),
    *("strategy.local.learning_rate=0.3", "partition.groups=3", "drift=none"),
]


SAME = ["rounds=9", "workers=2", "engine=inprocess", "system.message_timeout=9"]


@pytest.mark.parametrize(
    ("other", "resume"),
    [*((each, True) for each in [*OTHER, *SAME]), (OTHER[0], False), (SAME[0], False)],
)
def test_a_run_goes_on_with_its_own_settings_alone(other, resume, tmp_path):
    options = [f"output_dir={tmp_path}", "strategy=fedavg", "strategy.weighting=plain"]
    options += ["privacy=local", "model=mlp"]
    token = stopped(compose_config([*options, "privacy.noise_multiplier=0.01"]))
    before = {path: path.read_bytes() for path in files_of(tmp_path)}
    noise = [] if "privacy" in other else ["privacy.noise_multiplier=0.01"]
    again = compose_config([*options, *noise, other, f"resume={resume}"])
    if resume and other in OTHER:
        with pytest.raises(ConfigError, match=r"another run \(.* anew without resume"):
            RunDirectory(again).__enter__()
        assert before == {path: path.read_bytes() for path in files_of(tmp_path)}
    else:
        # The devices know the run that begins anew by another name.
        assert (stopped(again) == token) == resume


@pytest.mark.parametrize("rounds", [4, 6, 9])
@pytest.mark.parametrize(
    ("schedule", "depends"),
    [
        *(("cosine", True), ("OneCycleLR", True), ("LinearLR", True)),
        *(("PolynomialLR", True), ("step", False), ("ExponentialLR", False)),
        *(("cosine", False), (None, False)),
    ],
)
def test_rates_of_rounds_that_are_done_stay(schedule, depends, rounds, tmp_path):
    own = {"OneCycleLR": "{max_lr: 1}", "step": "{step_size: 2}"}
    given = own.get(schedule or "", "{gamma: 0.9}" if "Exp" in str(schedule) else "{}")
    if schedule == "cosine" and not depends:
        given = "{T_max: 20}"
    asked = [f"output_dir={tmp_path}", f"strategy.local.schedule={schedule or 'null'}"]
    asked += [f"strategy.local.schedule_settings={given}", "strategy.local.warmup=1"]
    stopped(compose_config([*asked, "rounds=6"]))
    again = compose_config([*asked, f"rounds={rounds}", "resume=true"])
    if depends and rounds != 6:
        with pytest.raises(ConfigError, match=rf"another run \(rounds=6, not {rounds}"):
            RunDirectory(again).__enter__()
    else:
        stopped(again)


def test_settings_and_token_are_never_of_two_runs(tmp_path, monkeypatch):
    one, two = (compose_config([f"output_dir={tmp_path}", f"seed={s}"]) for s in (1, 2))
    token = stopped(one)
    write_atomically = results.write_atomically

    def killed(last: str, path: Path, data: bytes) -> None:
        write_atomically(path, data)
        if path.name == last:
            raise KeyboardInterrupt

    for last in (".token", "config.yaml"):
        monkeypatch.setattr(results, "write_atomically", partial(killed, last))
        with pytest.raises(KeyboardInterrupt):
            RunDirectory(two).__enter__()
        settings = read_settings(tmp_path / "config.yaml")
        assert settings["seed"] == 1 or (tmp_path / ".token").read_text() != token


def test_fewer_rounds_than_a_folder_holds_are_refused(tmp_path):
    options = [f"output_dir={tmp_path}", "resume=true"]
    longer = compose_config([*options, "rounds=3"])
    with RunDirectory(longer) as directory:
        write(directory, 3)
    shorter = compose_config([*options, "rounds=2"])
    with pytest.raises(ConfigError, match=r"rounds=2 is not .* at least the 3"):
        RunDirectory(shorter).__enter__()
    assert read_settings(tmp_path / "config.yaml")["rounds"] == 3


def test_nothing_is_written_into_a_run_of_another_version(tmp_path):
    config = compose_config([f"output_dir={tmp_path}", "resume=true"])
    with RunDirectory(config) as directory:
        write(directory, 1)
    saved = Checkpoint(tmp_path / "checkpoint", config.resolved)
    # The state of a method that has changed since.
    saved.save(1, ClusteredState([], no_clusters(), []))
    before = {path: path.read_bytes() for path in files_of(tmp_path)}
    with pytest.raises(ConfigError, match=r"another version .* ClusteredState"):
        RunDirectory(config).__enter__()
    assert before == {path: path.read_bytes() for path in files_of(tmp_path)}


def test_a_resumed_run_has_no_summary_until_its_end(run_small):
    config = run_small("strategy=fedavg", "rounds=1").config
    # Opened again for as many rounds, it is as complete as it was.
    with RunDirectory(replace(config, resume=True)):
        pass
    assert finished(config)
    with RunDirectory(replace(config, resume=True, rounds=3)) as directory:
        pass
    assert not (directory.path / "summary.json").exists()


@pytest.mark.parametrize(
    ("every", "rounds", "complete", "said"),
    [
        (1, 2, True, "the lines of 2 rounds and no checkpoint; restore checkpoint/"),
        (5, 2, True, "the lines of 2 rounds and no checkpoint; restore checkpoint/"),
        (1, 2, False, "the lines of 2 rounds and no checkpoint; restore checkpoint/"),
        # Killed before the first checkpoint, and before it began.
        (1, 1, False, "nothing to resume in .*: begins again with round 1"),
        (5, 2, False, "nothing to resume in .*: begins again with round 1"),
        (1, 0, False, "nothing to resume in .*: begins with round 1"),
    ],
)
def test_rounds_without_their_checkpoint_are_never_dropped_unsaid(
    every, rounds, complete, said, tmp_path
):
    options = ["strategy=fedavg", "drift=none", "clients=4", "participants=4"]
    options += [f"output_dir={tmp_path}", f"system.checkpoint_every={every}"]
    config = compose_config([*options, "partition.groups=2", "rounds=2"])
    with RunDirectory(config) as directory:
        write(directory, rounds)
        if complete:
            directory.write_summary()
    text = io.StringIO()
    try:
        execute(InProcessGrid(), replace(config, resume=True), Console(file=text))
    except ConfigError as error:
        assert len(read_lines(tmp_path / "rounds.jsonl")) == rounds
        text.write(str(error))
    assert re.search(said, " ".join(text.getvalue().split()))


@pytest.mark.parametrize("strategy", ["ditto", "fedrep", "apfl", "fedavg"])
@pytest.mark.parametrize("lost", ["nothing", "a file", "a folder", "all"])
def test_a_resumed_run_says_whose_states_are_missing(strategy, lost, run_small):
    folder = run_small(f"strategy={strategy}", "drift=none", "rounds=1").folder
    states = sorted((folder / "clients").glob("[!.]*"))
    assert bool(states) == (strategy != "fedavg")
    for state in {"nothing": [], "all": states}.get(lost, states[:1]):
        for path in state.rglob("*.safetensors"):
            path.unlink()
        if lost != "a file":
            shutil.rmtree(state)
    text: list[str] = []
    warn_of_lost_states(Checkpoint(folder / "checkpoint", {}), text.append)
    count = {"nothing": 0, "all": len(states)}.get(lost, min(1, len(states)))
    said = f"the states of {count} of {len(states)} clients are missing"
    assert any(said in each for each in text) == (count > 0)
