import io
import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from cfl_flower.config.compose import compose_config
from cfl_flower.errors import ConfigError, RunFailedError
from cfl_flower.run_config import RunConfig
from cfl_flower.runs import directory as results
from cfl_flower.runs.checkpoint import Checkpoint
from cfl_flower.runs.console import WATCHED
from cfl_flower.runs.directory import FAILURE, RunDirectory, check_output_dir
from cfl_flower.runs.lines import read_lines
from cfl_flower.runs.reading import finished, read_settings
from cfl_flower.runs.record import ClientRow, RoundRecord
from cfl_flower.server_app import execute, warn_of_lost_states
from cfl_flower.state import ClusteredState, no_clusters
from cfl_flower.types import Failure
from simulations.engines.inprocess import InProcessGrid
from tests.cfl_flower.client.test_node_config import SITES, Sites


@pytest.fixture
def config(tmp_path: Path) -> RunConfig:
    # No checkpoint is due in the few rounds that tests write.
    late = "system.checkpoint_every=100"
    return compose_config([f"output_dir={tmp_path / 'run'}", late])


def write(directory: RunDirectory, rounds: int) -> None:
    for round in range(1, rounds + 1):
        record = RoundRecord(round, accuracy=round / 10, seconds=1.0, bytes_up=round)
        record.accuracy_mean = record.accuracy
        directory.append(record, [ClientRow(round, 0, 0, round / 10, 3)])


def test_lines_have_null_for_what_was_not_measured_and_measures_among_the_keys(config):
    rows = [
        ClientRow(1, "site-a", 2, 0.5, 8),
        ClientRow(1, 4, 0, 0.25, 4, measures={"kl": 0.5}),
    ]
    failure = Failure(3, "train", "timeout", "too late")
    with RunDirectory(config) as directory:
        record = RoundRecord(1, cluster_sizes=[1, 0, 1], failures=[failure])
        directory.append(record, rows)
    (row,) = read_lines(directory.path / "rounds.jsonl")
    assert row["accuracy"] is None
    assert row["heterogeneity"] is None
    assert row["cluster_sizes"] == [1, 0, 1]
    assert row["failures"] == [vars(failure)]
    first, second = read_lines(directory.path / "clients.jsonl")
    assert "measures" not in first
    assert second["kl"] == 0.5
    assert [first, second] == [row.row() for row in rows]


@pytest.mark.parametrize(
    ("place", "of_devices"),
    [(0, False), (1, True), (3, False), (8, False), (8, True), (20, True)],
)
def test_a_resumed_run_leaves_nothing_of_killed_writes(
    run_small, tmp_path, monkeypatch, place, of_devices
):
    asked = ["strategy=ditto", "resume=true"]
    nodes: list[dict[str, object]] = [{}]
    if of_devices:
        state = str(tmp_path / "state")
        nodes = [{"client-id": client, "state-dir": state} for client in range(12)]
    count = iter(range(place + 1))
    honest = Path.replace

    def killed(self: Path, target: Path) -> Path:
        if self.suffix == ".tmp" and next(count, place) == place:
            raise KeyboardInterrupt
        return honest(self, target)

    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "replace", killed)
        patch.setattr(os, "getpid", lambda: gone.pid)
        run_small(*asked, grid=InProcessGrid(nodes))
    assert [*tmp_path.rglob("*.tmp")] != []
    run = run_small(*asked, grid=InProcessGrid(nodes))
    assert [*tmp_path.rglob("*.tmp")] == []
    assert len(run.rounds) == 4


def test_a_disk_that_is_full_is_one_line_and_the_run_goes_on_afterwards(config):
    kind = resource.RLIMIT_FSIZE
    before = resource.getrlimit(kind)
    words = r"written .*; make room, and go on by r"
    try:
        with (
            pytest.raises(RunFailedError, match=words),
            RunDirectory(config) as directory,
        ):
            resource.setrlimit(kind, (2000, before[1]))
            write(directory, 100)
    finally:
        resource.setrlimit(kind, before)
    done = len(read_lines(directory.path / "rounds.jsonl"))
    assert 0 < done < 100
    with RunDirectory(replace(config, resume=True)) as directory:
        directory.rewind(done)
        write(directory, 1)
    assert len(read_lines(directory.path / "clients.jsonl")) == done + 1


def test_rewinding_drops_later_rounds_and_torn_lines(config):
    with RunDirectory(config) as directory:
        write(directory, 5)
        for name in ("rounds.jsonl", "clients.jsonl"):
            with (directory.path / name).open("a") as file:
                file.write('{"round": 6, "accu')
        directory.rewind(3)
        for name in ("rounds.jsonl", "clients.jsonl"):
            rows = read_lines(directory.path / name)
            assert [row["round"] for row in rows] == [1, 2, 3]
        write(directory, 1)
        assert len(read_lines(directory.path / "rounds.jsonl")) == 4


@pytest.mark.parametrize(
    ("name", "old", "new", "fault"),
    [
        ("rounds.jsonl", ".+\\n", "", "no line of round 1"),
        ("rounds.jsonl", '."round": [34].+\\n', "", "no line of round 3"),
        ("clients.jsonl", '."round": 2.+\\n', "", "no line of round 2"),
        ("rounds.jsonl", "bytes_up", "bytes_Up", "line 1 has no bytes_up"),
        ("clients.jsonl", "0.1", '"half"', "line 1 has accuracy"),
        ("clients.jsonl", "0.2", "0.3", "round 2 has another accuracy_mean"),
    ],
)
def test_lines_that_a_resumed_run_would_lack_are_named(config, name, old, new, fault):
    with RunDirectory(config) as directory:
        write(directory, 3)
        # A round without a test.
        directory.append(RoundRecord(4), [])
        directory.rewind(4)
        path = directory.path / name
        path.write_text(re.sub(old, new, path.read_text()))
        with pytest.raises(ConfigError, match=f"{name} cannot be read.*{fault}"):
            directory.rewind(3)


def test_the_summary_is_made_from_the_rounds_on_disk(config):
    with RunDirectory(config) as directory:
        write(directory, 3)
        directory.append(RoundRecord(4, seconds=0.5), [])
        summary = directory.write_summary()
    assert summary["rounds"] == 4
    assert summary["final"] == {"accuracy": 0.3, "accuracy_mean": 0.3}
    assert summary["best"]["accuracy"] == 0.3
    assert summary["bytes_up"] == 1 + 2 + 3
    assert summary["seconds"] == 3.5
    assert summary["peak_rss_mb"] > 1
    assert summary["worst_client"] == {"client": 0, "accuracy": 0.3}


def test_the_first_line_of_config_yaml_is_a_shell_command(tmp_path):
    place = tmp_path / "a run"
    asked = ["rounds=5", f"output_dir='{place}'", "drift.rounds=[3, 5]", "resume=True"]
    again = compose_config([*asked, "rounds=7", f"output_dir='{place}'", "resume=true"])
    with RunDirectory(again) as directory:
        first = (directory.path / "config.yaml").read_text().partition("\n")[0]
    words = shlex.split(first.removeprefix("# "))
    assert words[:3] == ["python", "-m", "simulations.run"]
    # The last of each key, and what trains from the start.
    assert words[3:] == ["rounds=7", f"output_dir='{place}'", "drift.rounds=[3, 5]"]
    assert compose_config(words[3:]).resolved == again.resolved | {"resume": False}


def test_a_second_process_waits_for_the_folder_and_refuses_it(config, monkeypatch):
    code = (
        "import sys; from filelock import FileLock;"
        f"lock = FileLock('{config.output_dir}/.lock'); lock.acquire();"
        "print('held', flush=True); sys.stdin.read()"
    )
    Path(config.output_dir).mkdir()
    monkeypatch.setattr(results, "LOCK_TIMEOUT", 0.2)
    command, pipe = [sys.executable, "-c", code], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe) as other:
        assert other.stdout.readline() == b"held\n"
        words = "is in use by another run; wait or use another"
        with pytest.raises(ConfigError, match=words):
            RunDirectory(config).__enter__()
        other.kill()
    late = RunDirectory(config)
    # A killed process holds no lock.
    with RunDirectory(config) as directory:
        write(directory, 1)
    before = {path: path.read_bytes() for path in files_of(directory.path)}
    with pytest.raises(ConfigError, match="already holds a run"):
        late.__enter__()
    assert before == {path: path.read_bytes() for path in files_of(directory.path)}


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


def test_a_run_goes_on_where_nobody_can_be_told_of_it(config, monkeypatch, caplog):
    """Somebody may clear the folder of a SuperLink that is asked for health."""
    watched = Path(config.output_dir).with_name("watched")
    monkeypatch.setenv(WATCHED, str(watched))
    with RunDirectory(config) as directory:
        assert (watched / directory.token).read_text() == config.output_dir
    shutil.rmtree(watched)
    watched.touch()
    with RunDirectory(config):
        pass
    assert "--health has no numbers of this run" in caplog.text


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


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


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


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    config = compose_config([f"output_dir={tmp_path / 'file' / 'run'}"])
    with pytest.raises(ConfigError, match=r"output_dir=.*cannot be written"):
        check_output_dir(config)


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
