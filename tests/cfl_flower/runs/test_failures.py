"""What a run keeps of its failures, and of the code that made it."""

import io
import platform
import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from safetensors.numpy import save_file

from cfl_flower.aliases import HOME
from cfl_flower.config.compose import compose_config
from cfl_flower.environment.code_version import code_digest, commit
from cfl_flower.errors import ClientFailedError, ConfigError
from cfl_flower.runs.provenance import PROVENANCE, read_provenance, record_provenance
from cfl_flower.server_app import execute
from simulations.engines.inprocess import InProcessGrid
from tests.conftest import SMALL, Run

RAISING = """
from clients.base import ClusteredClient


class Raising(ClusteredClient):
    def fit(self, parameters, config):
        if self.context.client % 3 == 0:
            raise KeyError("no sensor")
        if self.context.client % 3 == 1:
            return undefined_name
        return super().fit(parameters, config)
"""


@pytest.fixture
def raising(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Overrides of a run in which the clients of two thirds raise."""
    (tmp_path / "raising_client.py").write_text(RAISING)
    monkeypatch.syspath_prepend(str(tmp_path))
    return ["strategy=fedavg", "strategy.client=raising_client.Raising", "rounds=3"]


@pytest.mark.parametrize("engine", ["inprocess", "ray"])
def test_the_first_of_each_kind_leaves_a_traceback(engine, raising, run_small):
    run = run_small(*raising, f"engine={engine}")
    failed = [each for row in run.rounds for each in row["failures"]]
    assert len(failed) > 2
    assert set(failed[0]) == {"client", "phase", "reason", "detail"}
    log = (run.folder / "failures.log").read_text()
    assert log.count("Traceback") == 2
    assert 'raising_client.py", line 8, in fit' in log
    assert "KeyError: 'no sensor'" in log
    assert 'raising_client.py", line 10, in fit' in log
    assert "NameError: name 'undefined_name' is not defined" in log


def test_strict_in_process_raises_the_clients_own_exception(raising, run_small):
    strict = [*raising, "engine=inprocess", "faults.strict=true"]
    with pytest.raises((KeyError, NameError)) as caught:
        run_small(*strict)
    # Where a debugger stops.
    last = traceback.extract_tb(caught.value.__traceback__)[-1]
    assert Path(last.filename).name == "raising_client.py"
    (note,) = caught.value.__notes__
    assert "round 1, train; faults.strict=true" in note


def test_strict_elsewhere_ends_the_run_with_one_line(raising, run_small, tmp_path):
    with pytest.raises(ClientFailedError, match=r"phase train: raised: .*strict=true"):
        run_small(*raising, "engine=ray", "faults.strict=true")
    log = (tmp_path / "run" / "failures.log").read_text()
    assert log.count("Traceback") == 1
    assert (tmp_path / "run" / "failure.txt").read_text().startswith("client ")


def test_strict_counts_results_that_are_not_valid(run_small):
    with pytest.raises(ClientFailedError, match="non-finite"):
        run_small("strategy=fedavg", "faults.nan=0.5", "faults.strict=true")


def test_the_traceback_of_a_device_stays_in_its_own_log(raising, run_small, caplog):
    devices = InProcessGrid([{"client-id": client} for client in range(12)])
    run = run_small(*raising, grid=devices)
    assert not (run.folder / "failures.log").exists()
    told = [record for record in caplog.records if record.exc_info]
    assert told
    assert "raising_client.py" in caplog.text


@pytest.mark.parametrize(
    ("strategy", "length"), [("ditto", 1), ("local_rounds", 3), ("apfl", 1)]
)
def test_a_saved_model_of_another_length_is_one_line(
    length, strategy, run_small, tmp_path, caplog
):
    state = {"state-dir": str(tmp_path / "state")}
    devices = InProcessGrid([{"client-id": client, **state} for client in range(12)])
    options = [f"strategy={strategy}", "participants=12", "drift.rounds=[]"]
    run_small(*options, "rounds=1", grid=devices)
    (kept,) = tmp_path.glob("state/*/5/00000001.safetensors")
    save_file({"model": np.ones(length, np.float32)}, kept)
    run = run_small(*options, "rounds=2", "resume=true", grid=devices)
    failures = run.rounds[1]["failures"]
    # In training, and in the test.
    assert {(each["client"], each["reason"]) for each in failures} == {(5, "raised")}
    assert all("SavedStateError" in each["detail"] for each in failures)
    assert not any(record.exc_info for record in caplog.records)
    assert f"a saved model has the shape ({length},), not (650,)" in caplog.text


# Provenance


METHOD = """
from strategies.fedavg import FedAvg

class Mine(FedAvg):
    "Line {line}."
"""


def go_on(folder: Path, rounds: int) -> tuple[Run, str]:
    """Carry out, or go on with, a run of a method of one's own; return its lines."""
    own = ["strategy=fedavg", "strategy._target_=mine_of_provenance.Mine"]
    more = [f"rounds={rounds}", f"output_dir={folder}", "resume=true"]
    config = compose_config([*SMALL, *own, *more])
    lines = io.StringIO()
    execute(InProcessGrid(), config, Console(file=lines, width=1000))
    return Run(folder), lines.getvalue()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a method of one's own."""
    path = tmp_path / "mine_of_provenance.py"
    path.write_text(METHOD.format(line=1))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mine_of_provenance", raising=False)
    return path


def test_a_run_names_the_code_that_made_it(tmp_path, module):
    run, _ = go_on(tmp_path / "run", 2)
    (entry,) = read_provenance(run.folder)
    assert entry["after_round"] == 0
    assert entry["version"] == "0.1.0"
    assert entry["commit"] == commit()
    assert entry["code"] == code_digest()
    assert entry["python"] == platform.python_version()
    assert set(entry["own_code"]) == {"mine_of_provenance"}
    assert run.summary["versions"]["cfl-flower"] == "0.1.0"
    assert run.summary["code_changed_after"] == []


def test_going_on_with_changed_code_of_ones_own_is_told_and_marked(tmp_path, module):
    go_on(tmp_path / "run", 2)
    same, said = go_on(tmp_path / "run", 3)
    assert "warning" not in said
    assert same.summary["code_changed_after"] == []
    module.write_text(METHOD.format(line=2))
    changed, said = go_on(tmp_path / "run", 4)
    (line,) = [line for line in said.splitlines() if line.startswith("warning")]
    assert line.startswith("warning: mine_of_provenance changed since round 3:")
    assert changed.summary["code_changed_after"] == [3]
    first, second = read_provenance(changed.folder)
    assert first["own_code"] != second["own_code"]


def test_code_of_rounds_that_are_done_again_is_not_that_of_the_run(tmp_path, module):
    own = ["strategy=fedavg", "strategy._target_=mine_of_provenance.Mine"]
    resolved = compose_config([*SMALL, *own]).resolved
    said = []
    # By another code each time: from the start, once more, after rounds 4, 2 and 2.
    for line, done in enumerate((0, 0, 4, 2, 2)):
        module.write_text(METHOD.format(line=line))
        told = record_provenance(tmp_path, resolved, done)
        said.append(told and told.partition("since ")[2][:7])
    assert said == [None, None, "round 4", "round 2", "round 2"]
    assert [each["after_round"] for each in read_provenance(tmp_path)] == [0, 2]


def test_a_damaged_provenance_is_one_line(tmp_path, module):
    run, _ = go_on(tmp_path / "run", 2)
    for damaged in ("{", "[1]", '[{"code": 1}]', '[{"after_round": []}]'):
        (run.folder / PROVENANCE).write_text(damaged)
        with pytest.raises(ConfigError, match=r"cannot be read \(.*\); delete it"):
            read_provenance(run.folder)


def test_the_commit_is_that_of_the_checkout():
    if not (HOME / ".git").exists():
        pytest.skip("this code is in no git checkout")
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=HOME, text=True)
    assert (commit() or "").removesuffix("-dirty") == head.strip()
