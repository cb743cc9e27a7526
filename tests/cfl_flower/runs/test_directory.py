import os
import re
import resource
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cfl_flower.config.compose import compose_config
from cfl_flower.errors import ConfigError, RunFailedError
from cfl_flower.run_config import RunConfig
from cfl_flower.runs import directory as results
from cfl_flower.runs.console import WATCHED
from cfl_flower.runs.directory import RunDirectory
from cfl_flower.runs.lines import read_lines
from cfl_flower.runs.output_dir import check_output_dir
from cfl_flower.runs.record import ClientRow, RoundRecord
from cfl_flower.types import Failure
from simulations.engines.inprocess import InProcessGrid


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
    # Nobody was tested in the last round, as in the tables of `compare`.
    assert summary["final"] == {"accuracy": None, "accuracy_mean": None}
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


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").touch()
    config = compose_config([f"output_dir={tmp_path / 'file' / 'run'}"])
    with pytest.raises(ConfigError, match=r"output_dir=.*cannot be written"):
        check_output_dir(config)
