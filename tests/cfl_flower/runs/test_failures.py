"""An exception of a client leaves a traceback, and ends a strict run."""

import traceback
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from cfl_flower.errors import ClientFailedError
from simulations.engines.inprocess import InProcessGrid

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
def test_the_first_of_each_kind_is_written_with_its_traceback(
    engine, raising, run_small
):
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
    ("strategy", "length"), [("ditto", 1), ("local", 3), ("apfl", 1)]
)
def test_a_device_whose_saved_model_has_another_length_fails_alone_and_in_a_line(
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
