"""Clusters of clients that never trained, told from a saved run."""

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cfl_flower.analysis.saved import load_run
from simulations.assign import main
from simulations.assignment import open_run, open_served
from simulations.engines.superlink import PROJECT
from simulations.export import export
from strategies.stocfl import StoCFLState
from tests.cfl_flower.client.test_node_config import SITES, Sites, add_samples
from tests.conftest import Runner, run_command, sample

OPTIONS = ["drift.rounds=[]", "clients=12", "rounds=4", "strategy.local.epochs=5"]


@pytest.fixture
def run(run_small: Runner) -> Any:
    """Return a run in which a few of twelve clients took part."""
    return run_small("strategy=stocfl", *OPTIONS, "participants=4", "rounds=2")


def test_clients_that_never_trained_find_their_concept(run):
    opened = open_run(run.folder)
    state = run.state
    assert isinstance(state, StoCFLState)
    found = [opened.assign(client, opened.done) for client in range(12)]
    seen = [len(each) > 0 for each in state.representations]
    assert 0 < sum(seen) < 12
    # Clusters of one concept that never met in a round are still apart.
    members = {
        int(cluster): {
            found[row].concept for row in np.flatnonzero(state.clusters == cluster)
        }
        for cluster in range(1, len(state.models))
    }
    assert all(len(concepts) == 1 for concepts in members.values())
    for each in found:
        if each.found.joins:
            assert members[each.found.cluster] == {each.concept}
            assert each.found.fit >= 0.5
        else:
            assert {each.concept} not in members.values()
    assert sum(each.found.joins for each in found) > sum(seen)


@pytest.mark.parametrize("option", ["strategy.sketch=256", "strategy.omega=parallel"])
def test_without_labels_most_still_do(option, run_small):
    options = [*OPTIONS, option, "participants=12"]
    run = run_small("strategy=stocfl", *options)
    opened = open_run(run.folder)
    state, done = run.state, opened.done
    right = [
        opened.assign(client, done, unlabelled=True).found.cluster == cluster
        for client, cluster in zip(state.clients, state.clusters.tolist(), strict=True)
    ]
    assert sum(right) >= 10


@pytest.mark.parametrize(
    "served", ["fine_tuning=0", "fine_tuning=2", "label_shares=true"]
)
def test_clients_of_other_methods_go_where_their_loss_is_smallest(
    served, run_small, capsys
):
    options = [*OPTIONS, "participants=12", "clusters=3", f"strategy.{served}"]
    run = run_small("strategy=ifca", *options)
    opened = open_run(run.folder)
    found = [opened.assign(client, opened.done) for client in range(12)]
    assert [each.found.cluster for each in found] == run.state.clusters.tolist()
    # Of what a client is served, as the run tested it.
    last = [row["accuracy"] for row in run.clients if row["round"] == opened.done]
    assert [each.accuracy for each in found] == last
    assert main([str(run.folder), "--clients", "15", "--client", "12-14"]) == 0
    assert "3 clients, mean accuracy" in capsys.readouterr().out


@pytest.mark.parametrize("served", ["fine_tuning=5", "label_shares=true"])
def test_who_has_no_labels_is_served_the_model_as_it_is(served, run_small):
    options = ["strategy=ifca", "drift=none", "rounds=3"]
    run = run_small(*options, f"strategy.{served}")
    plain = run_small(*options, folder="plain")
    both = [open_run(each.folder) for each in (run, plain)]
    without = [[each.assign(c, 3, unlabelled=True) for c in range(12)] for each in both]
    assert without[0] == without[1]
    # With labels the same clients are served more.
    labelled = [both[0].assign(client, 3).accuracy for client in range(12)]
    assert labelled != [both[1].assign(client, 3).accuracy for client in range(12)]


def test_a_device_is_told_by_its_whole_folder(run_small, tmp_path, capsys):
    run = run_small(*SITES, "strategy=stocfl", grid=Sites(tmp_path))
    where = str(tmp_path / "site-c")
    found = open_run(run.folder, data_dir=where).assign(0, 4)
    _, state = load_run(run.folder).load_state()
    assert found.found.cluster == state.clusters[state.clients.index("site-c")]
    assert found.found.joins
    # Alone in its cluster: its direction is the cluster's.
    assert found.found.fit == pytest.approx(1, abs=1e-5)
    asked = [str(run.folder), "--client", "0"]
    assert main(asked) == 2
    assert "the folder of a device" in capsys.readouterr().err
    assert main([*asked, "--data-dir", where, "--clients", "4"]) == 2
    assert "--clients=4 is not allowed" in capsys.readouterr().err
    assert main([*asked, "--data-dir", where]) == 0


def test_without_labels_a_client_goes_where_its_samples_are_told_apart(run_small):
    run = run_small("strategy=ifca", "drift=none", "rounds=6", "participants=12")
    opened = open_run(run.folder)
    found = [opened.assign(each, 6, unlabelled=True).found for each in range(12)]
    assert {each.by for each in found} == {"information"}
    with_labels = [opened.assign(each, 6).found.cluster for each in range(12)]
    same = sum(one.cluster == two for one, two in zip(found, with_labels, strict=True))
    assert same >= 9


def test_bad_input_is_one_line(run, run_small, tmp_path, capsys):
    local = run_small("strategy=local", "rounds=1", folder="local")
    export(run.folder, tmp_path / "served")
    for arguments, words in (
        ([str(run.folder), "--client", "12"], "a client from 0 to 11"),
        ([str(run.folder), "--client", "0", "--round", "9"], "a round from 1 to 2"),
        ([str(tmp_path / "none"), "--client", "0"], "use the folder of a run"),
        # Nobody trained what its server keeps.
        ([str(local.folder), "--client", "0"], "no common model"),
        ([str(run.folder)], "--client=none is not allowed"),
        ([str(tmp_path / "served"), "--client", "3"], "--client=[[3]] is not allowed"),
        ([str(tmp_path / "served"), "--round", "2"], "--round=2 is not allowed"),
        ([str(run.folder), "--client", "a"], "invalid numbers value: 'a'; see --help"),
    ):
        assert main(arguments) == 2
        err = capsys.readouterr().err
        assert words in err
        assert err.count("\n") == 1


METHODS = {
    "fedavg": "loss",
    "cfl": "loss",
    "ifca clusters=3": "loss",
    "feddrift": "loss",
    "fielding": "distance",
    "fielding strategy/representation=embedding": "distance",
    "fielding strategy/representation=combined": "distance",
    "static": "distance",
    "stocfl": "cosine",
    "stocfl model.lora.rank=2 model=mlp": "loss",
    "flux strategy.warmup=1 strategy.latest=0.25": "distance",
    "feroma strategy.warmup=1": "distance",
    "pacfl": "angle",
    "pacfl model.lora.rank=2 model=mlp": "angle",
    "feddag": "angle",
}
"""A method, and what its clients compare clusters by."""


@pytest.mark.parametrize(
    "method", sample(METHODS, ["ifca clusters=3", "fielding", "stocfl", "pacfl"])
)
def test_a_served_folder_says_what_the_run_does(method, run_small, tmp_path):
    by = METHODS[method]
    options = ["drift=none", "partition.purity=1", "participants=12"]
    run = run_small(*f"strategy={method}".split(), *options)
    opened = open_run(run.folder)
    export(run.folder, tmp_path / "served")
    for client in range(0, 12, 4):
        asked = opened.assign(client, opened.done).found
        view = opened.resources.stream.view(client, opened.done)
        x, y = view.train()
        device = tmp_path / f"device-{client}"
        device.mkdir()
        np.savez(device / "own.npz", x=x.numpy(), y=y.numpy())
        other = open_served(tmp_path / "served", device)
        # Of some of the samples; the others are for tests.
        same = replace(
            other.resources,
            stream=opened.resources.stream,
            settings={**other.resources.settings, "clients": 12},
        )
        found = replace(other, resources=same).assign(client, opened.done).found
        assert found.by == by
        if asked.by == by:
            assert found.cluster == asked.cluster
            assert found.fit == pytest.approx(
                asked.fit, abs=0.05 if by == "angle" else 1e-5
            )
        else:
            assert "model.lora.rank=2" in method


@pytest.mark.parametrize(
    "scaling",
    ["normalise=[0.66,0.1]", "normalise=[[0.7],[0.1]]", "standardise=clients"],
)
def test_samples_of_a_device_are_scaled_as_the_run_s(scaling, run_small, tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    x = np.clip(rng.normal(150 + 40 * y[:, None, None], 12, (200, 8, 8)), 0, 255)
    device = tmp_path / "device"
    device.mkdir()
    np.savez(device / "data.npz", x=x[:, None].astype(np.uint8), y=y)
    own = ["dataset=npz", f"data_dir={device}", f"dataset.{scaling}", "drift=none"]
    run = run_small("strategy=fedavg", *own, "partition=iid", "rounds=3", "model=mlp")
    export(run.folder, tmp_path / "served")
    opened = open_served(tmp_path / "served", device)
    seen = opened.resources.stream.view(0, opened.done).train()[0]
    assert seen.mean() == pytest.approx(0, abs=0.8)
    assert seen.std() == pytest.approx(1, abs=0.2)
    assert opened.assign(0, opened.done).accuracy == run.rounds[-1]["accuracy"] == 1


@pytest.mark.parametrize("kind", ["bytes", "numbers", "share"])
@pytest.mark.parametrize("scaling", ["", "normalise=[0.5,0.2]", "standardise=clients"])
def test_samples_in_another_scale_than_the_training_s_are_refused(
    kind, scaling, run_small, tmp_path, capsys
):
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (60, 1, 8, 8)).astype(np.uint8)
    scales = {"bytes": x, "numbers": x.astype("f8"), "share": (x / 255).astype("f4")}
    for name, inputs in scales.items():
        (tmp_path / name).mkdir()
        np.savez(tmp_path / name / "data.npz", x=inputs, y=np.arange(60) % 2)
    own = ["dataset=npz", f"data_dir={tmp_path / kind}", "partition=iid", "drift=none"]
    more = [f"dataset.{scaling}"] if scaling else []
    run = run_small("strategy=fedavg", *own, *more, "rounds=1", "model=mlp")
    served = tmp_path / "served"
    export(run.folder, served)
    capsys.readouterr()
    for other in scales:
        code = 2 * ({kind, other} == {"bytes", "numbers"})
        assert main([str(served), "--data-dir", str(tmp_path / other)]) == code
        said = capsys.readouterr().err
        assert (
            said.count("\n") == ("save them in its type and scale" in said) == code / 2
        )


@pytest.mark.parametrize("named", ["", ",kind"])
def test_label_shares_are_of_labels_that_are_known(named, run_small, tmp_path, capsys):
    rows = "".join(f"{n % 3},{n},{'ab'[n % 5 > 0]}\n" for n in range(60))
    (tmp_path / "data.csv").write_text(f"u,v,kind\n{rows}")
    own = ["dataset=csv", f"data_dir={tmp_path}", "dataset.label=kind", "drift=none"]
    run = run_small("strategy=fedavg_ls", *own, "partition=iid", "rounds=1")
    export(run.folder, tmp_path / "served")
    asked = [str(tmp_path / "served"), "--data-dir", str(tmp_path / "device.csv")]
    row = "1,7,b\n" if named else "1,7\n"
    (tmp_path / "device.csv").write_text(f"u,v{named}\n" + row * 20)
    assert main([*asked, "--unlabelled"]) == 0
    assert "add to its outputs" not in capsys.readouterr().out
    if named:
        assert main(asked) == 0
        assert "add to its outputs" in capsys.readouterr().out


def test_a_device_finds_its_model_without_ray_and_hydra(run_small, tmp_path):
    run = run_small("strategy=ifca", "rounds=1")
    export(run.folder, tmp_path / "served")
    add_samples(tmp_path / "device", "own", [1], most=40)
    asked = [str(tmp_path / "served"), "--data-dir", str(tmp_path / "device")]
    code = (
        "import sys; sys.modules.update(ray=None, hydra=None, omegaconf=None);"
        f"from simulations.assign import main; sys.exit(main({asked}))"
    )
    done = run_command([sys.executable, "-c", code], cwd=PROJECT)
    assert done.returncode == 0, done.stderr
    assert "loss" in done.stdout
