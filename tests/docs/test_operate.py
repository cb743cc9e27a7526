"""The recipes of the page on operation do what they say."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from simulations.deploy import doctor, flower_superlink, keys
from tests.cfl_flower.client.test_node_config import SITES, Sites
from tests.simulations.deploy.test_health import make_nodes

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "operate.md"
TEXT = PAGE.read_text(encoding="utf-8")
REMOVE, BACK_UP, RESTORE = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
METRICS = set(re.findall(r"`cfl_flower_(\w+)`", TEXT))
RUN = [*SITES, "strategy.local.epochs=1"]


def carry_out(code: str, folder: Path) -> None:
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)


@pytest.mark.parametrize("strategy", ["fielding", "local_rounds", "fedccfa"])
def test_a_restored_run_goes_on_as_if_nothing_had_happened(
    strategy, run_small, tmp_path
):
    """Its devices were two rounds ahead."""
    run = [*RUN, f"strategy={strategy}"]
    quiet = run_small(*run, "rounds=4", grid=Sites(tmp_path / "quiet"), folder="quiet")
    home = tmp_path / "superlink"
    home.mkdir()
    make_nodes(home / "state.db")
    grid, folder = Sites(tmp_path), "superlink/runs/first"
    run_small(*run, "rounds=2", grid=grid, folder=folder)
    carry_out(BACK_UP, tmp_path)
    devices = [*flower_superlink.device_samples(tmp_path / "backup" / "state.db")]
    assert len(devices) == 3
    run_small(*run, "rounds=4", "resume=true", grid=grid, folder=folder)
    carry_out(RESTORE, tmp_path)
    assert [*flower_superlink.device_samples(home / "state.db")] == devices
    again = run_small(*run, "rounds=4", "resume=true", grid=grid, folder=folder)
    assert again.numbers == quiet.numbers


def test_masked_rounds_that_devices_have_left_behind_train_nobody(
    run_small, tmp_path, caplog
):
    run = [*RUN, "strategy=fedavg", "privacy.secure_sums=true"]
    (tmp_path / "superlink").mkdir()
    make_nodes(tmp_path / "superlink" / "state.db")
    grid, folder = Sites(tmp_path), "superlink/run"
    run_small(*run, "rounds=1", grid=grid, folder=folder)
    carry_out(BACK_UP, tmp_path)
    run_small(*run, "rounds=4", "resume=true", grid=grid, folder=folder)
    carry_out(RESTORE, tmp_path)
    again = run_small(*run, "rounds=4", "resume=true", grid=grid, folder=folder)
    refused = [{f["reason"] for f in row["failures"]} for row in again.rounds]
    assert refused == [set(), {"refused"}, set(), set()]
    assert "client site-a, train: refused: it is asked for round 2 after round 4" in (
        caplog.text
    )


def test_a_copy_is_whole_whenever_it_is_made(run_small, tmp_path):
    """It is made before each round, and a run goes on from the last."""
    home = tmp_path / "superlink"
    home.mkdir()
    make_nodes(home / "state.db")
    grid = Sites(tmp_path)
    for server_round in (2, 3):
        grid.events[server_round] = lambda: carry_out(BACK_UP, tmp_path)
    run = [*RUN, "strategy=fedavg"]
    whole = run_small(*run, "rounds=4", grid=grid, folder="superlink/run")
    carry_out(RESTORE, tmp_path)
    again = run_small(
        *run, "rounds=4", "resume=true", grid=grid, folder="superlink/run"
    )
    assert again.numbers == whole.numbers


def test_a_renewed_certificate_is_another_of_the_same_authority(tmp_path, capsys):
    made = [str(tmp_path / "keys"), "--host", "127.0.0.1"]
    assert keys.main(made) == 0
    certificate = tmp_path / "keys" / "server.pem"
    first = certificate.read_bytes()
    carry_out(REMOVE, tmp_path)
    assert keys.main(made) == 0
    assert certificate.read_bytes() != first
    assert "ca.pem: was there, kept" in capsys.readouterr().out
    assert doctor.check_server(tmp_path / "keys", "127.0.0.1")


def test_an_authority_is_replaced_by_way_of_both(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        assert keys.main([str(folder), "--host", "127.0.0.1"]) == 0
    both = (old / "ca.pem").read_bytes() + (new / "ca.pem").read_bytes()
    for folder in (old, new):
        (folder / "ca.pem").write_bytes(both)
        assert doctor.check_server(folder, "127.0.0.1")


def test_the_rules_name_metrics_that_there_are():
    (rules,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    (group,) = yaml.safe_load(rules)["groups"]
    named = {
        n for r in group["rules"] for n in re.findall(r"cfl_flower_(\w+)", r["expr"])
    }
    assert named <= METRICS
    assert len(group["rules"]) == 3
