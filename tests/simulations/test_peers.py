"""The other libraries' benchmark, without the other libraries.

Our side does its work at a small size, and the scripts of the others agree with it on
networks, data and initial models.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict

from cfl_flower.models import FedCcfaCnn, FlatModel, Mclr, Mlp
from simulations.benchmark.peers import environments, scripts, table, work
from simulations.benchmark.peers.environments import MissingPeerError, all_peers
from simulations.benchmark.peers.scripts import runner, torch_network
from simulations.benchmark.peers.work import Data, Prepared, Work
from simulations.engines.inprocess import InProcessGrid

DIGITS = Data("digits", "dataset=digits dataset.size=28")
SMALL = "clients=12 participants=3 partition.samples=20"


def small(*overrides: str) -> Work:
    """Return a work that takes a second, in three rounds."""
    common = f"{work.COMMON} {SMALL} strategy.local.epochs=10"
    common += " strategy.local.learning_rate=0.5"
    return Work("small", f"{common} {' '.join(overrides)}", rounds=3, warm_up=1)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what makes the job of a work, as a script gets it."""
    monkeypatch.syspath_prepend(str(Path(scripts.__file__).parent))

    def make(script: str, chosen: Work) -> tuple[Prepared, dict[str, Any]]:
        config = chosen.config(DIGITS)
        prepared = Prepared(config)
        prepared.write(tmp_path)
        peer = next(each for each in all_peers() if each.script == script)
        return prepared, table.job_of(chosen, config, prepared, DIGITS, peer, tmp_path)

    return make


def answer(
    said: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> dict[str, Any]:
    """Return what the program answers to a job."""
    monkeypatch.setattr(sys, "argv", ["runner.py", json.dumps({**said, "began": 0.0})])
    runner.main()
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_our_side_does_a_small_work_and_learns(
    job: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prepared, said = job(
        "with_cfl_flower", small("partition=iid strategy=fedavg model=mclr")
    )
    figures = answer(said, monkeypatch, capsys)
    assert figures["start"] > 0
    assert figures["round"] > 0
    assert figures["step"] > 0
    assert figures["peak"] > 1e7
    assert figures["versions"]["torch"] == torch.__version__
    models = list(np.load(Path(said["folder"], "models.npy")))
    assert prepared.accuracy(models) > prepared.accuracy(prepared.start) + 0.2


def test_all_start_from_the_models_that_ours_starts_from(
    job: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    still = small(work.GROUPS, "strategy=ifca model=mclr", "strategy.local.mu=0")
    prepared, said = job("with_cfl_flower", still)
    said["overrides"] += " strategy.local.learning_rate=0"
    answer(said, monkeypatch, capsys)
    models = np.load(Path(said["folder"], "models.npy"))
    assert np.array_equal(models, np.stack(prepared.start))
    assert len(models) == 5


def test_works_are_of_sixty_steps_and_of_clients_that_differ_in_concepts_only() -> None:
    for each in work.WORKS:
        config = each.config(DIGITS)
        assert config.strategy.local.count_steps(40) == 60
        assert (config.clients, config.participants) == (1000, 20)
        assert config.names["partition"] in ("iid", "shifted")
        assert each.rounds > each.warm_up + 2


@pytest.mark.parametrize(
    ("network", "ours"),
    [("mclr", Mclr()), ("mlp", Mlp(hidden=200)), ("fedccfa_cnn", FedCcfaCnn())],
)
def test_networks_of_the_others_are_ours(network: str, ours: Any) -> None:
    model = FlatModel(ours.build((1, 28, 28), 10))
    theirs = torch_network.build(network)
    torch_network.load(theirs, model.to_vector())
    x = torch.rand(3, 1, 28, 28)
    assert torch.allclose(model.module(x), theirs(x), atol=1e-5)
    assert np.array_equal(torch_network.vector(theirs), model.to_vector())


def test_flowers_client_trains_the_model_that_it_gets(job: Any) -> None:
    from simulations.benchmark.peers.scripts.with_flower import client_app

    _, said = job("with_flower", small("strategy=fedavg model=mclr"))
    network = torch_network.build("mclr")
    start = np.load(Path(said["folder"], "start.npy"))[0]
    torch_network.load(network, start)
    grid = InProcessGrid([{"partition-id": 7}], client_app)
    content = RecordDict(
        {
            "arrays": ArrayRecord(network.state_dict()),
            "config": ConfigRecord({"job": json.dumps(said)}),
        }
    )
    (reply,) = grid.send_and_receive(
        [Message(content, grid.get_node_ids()[0], "train")]
    )
    assert reply.content.metric_records["metrics"]["num-examples"] == 20
    state = reply.content.array_records["arrays"].to_torch_state_dict()
    network.load_state_dict(state)
    assert not np.allclose(torch_network.vector(network), start)


def test_a_client_is_tested_with_the_model_that_fits_its_samples() -> None:
    prepared = Prepared(small(work.GROUPS, "strategy=fedavg model=mclr").config(DIGITS))
    # Each tells all samples of one label right, and its client all others wrong.
    models = []
    for label in (0, 1):
        models.append(np.zeros_like(prepared.start[0]))
        models[-1][-10 + label] = 5.0  # the biases are last
    prepared.y[:6], prepared.y[6:] = 0, 1
    prepared.y_test[:6], prepared.y_test[6:] = 0, 1
    assert prepared.accuracy(models) == 1.0
    assert prepared.accuracy(models[:1]) == 0.5


def test_synthetic_images_are_the_same_each_time() -> None:
    one, two = work.draw_images(30, 10), work.draw_images(30, 10)
    assert one["x_train"].shape == (30, 28, 28)
    assert one["x_test"].dtype == np.uint8
    assert all(np.array_equal(one[key], two[key]) for key in one)
    assert len(np.unique(one["y_train"])) > 5


def test_mnist_is_taken_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "MNIST").mkdir()
    monkeypatch.setenv("CFL_DATA_DIR", str(tmp_path))
    assert work.find_data() == Data("MNIST", "dataset=mnist")


def test_the_meter_leaves_out_the_first_rounds_and_the_last(tmp_path: Path) -> None:
    np.save(tmp_path / "y.npy", np.zeros((4, 40)))
    plain = {"participants": 2, "epochs": 3, "batch_size": 10, "warm_up": 2}
    rest = {"script": "", "network": "", "shapes": [], "learning_rate": 0.1}
    told = {"overrides": "", "reports": [], "began": 10.0, "rounds": 5}
    laps = [(30.0, 5.0), (40.0, 9.0), (42.0, 10.0), (43.0, 11.0), (99.0, 90.0)]
    made = runner.Job(folder=str(tmp_path), **plain, **rest, **told)  # type: ignore[arg-type]
    found = runner.Meter(laps).answer(made)
    assert (found["start"], found["round"]) == (20.0, 1.5)
    assert found["step"] == 1.0 / (2 * 3 * 4)


def test_the_time_of_a_child_that_has_ended_is_counted() -> None:
    before = runner.cpu_seconds()
    environments.execute([sys.executable, "-c", "sum(range(10**7))"], 60)
    assert runner.cpu_seconds() - before > 0.05


def test_a_line_has_its_units() -> None:
    figures = {"step": 0.00312, "round": 4.2345, "start": 5.0, "peak": 1.5e9}
    cells = table.Line("a", "b", figures, 0.9).cells
    assert cells == ("b", "3.12 ms", "4.23 s", "5.0 s", "1.50 GB", "0.900")


def test_a_peer_that_does_not_run_is_named_with_the_last_line() -> None:
    with pytest.raises(MissingPeerError, match=r"^ModuleNotFoundError: No module"):
        environments.execute([sys.executable, "-c", "import no_such_library"], 60)
    with pytest.raises(MissingPeerError, match="more than 0 s"):
        environments.execute([sys.executable, "-c", "import time; time.sleep(9)"], 0.1)


def test_the_environments_have_our_torch_and_our_flower() -> None:
    needs = {peer.name: peer.attempts for peer in all_peers()}
    assert needs["cfl-flower"] == ()
    release = torch.__version__.partition("+")[0]
    assert f"torch=={release}" in needs["Flower's simulation"][0]
    assert needs["fedjax"][0] == ("fedjax", "jax")
