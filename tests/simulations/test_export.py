"""What a saved run is served as, and how a stranger finds its model."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from cfl_flower.analysis.saved import load_run
from cfl_flower.config.compose import compose_config
from cfl_flower.data.datasets.own import Folder
from cfl_flower.models import FlatModel, initial_vector
from simulations import assign
from simulations.assign import find
from simulations.export import export, main
from tests.cfl_flower.client.test_node_config import add_samples

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "serve.md"


def load_served(served: Path, place: int = 0) -> Any:
    """Return a network of a served folder, as the page on serving loads it."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for shown, tried in (("/tmp/served", str(served)), ("[0]", f"[{place}]")):
        assert code.count(shown) == 1
        code = code.replace(shown, tried)
    names: dict[str, Any] = {}
    exec(code, names)
    return names["network"]


def test_each_clusters_model_comes_out_as_it_is(run_small, tmp_path):
    run, served = run_small("strategy=fielding"), tmp_path / "served"
    clusters = export(run.folder, served)
    done, state = load_run(run.folder).load_state()
    directory = json.loads((served / "clusters.json").read_text())
    assert done == directory["round"] == 4
    expected = dict(zip(map(str, state.clients), state.clusters.tolist(), strict=True))
    assert directory["clients"] == expected
    assert [entry["cluster"] for entry in directory["clusters"]] == clusters
    assert sum(entry["members"] for entry in directory["clusters"]) == 12
    config = compose_config([])
    x = torch.rand(5, 1, 8, 8)
    for place, entry in enumerate(directory["clusters"]):
        network = config.model.build((1, 8, 8), 10)
        model = FlatModel(network).load(state.models[entry["cluster"]]).module.eval()
        with torch.no_grad():
            outputs = model(x)
            assert torch.equal(outputs, load_served(served, place)(x))
        named = load_file(served / entry["safetensors"])
        assert named.keys() == model.state_dict().keys()
        for name, tensor in model.state_dict().items():
            assert np.array_equal(named[name], tensor.numpy())
    assert directory["strategy"] == "fielding"


@pytest.mark.parametrize("strategy", ["fielding", "stocfl"])
def test_a_representation_alone_leads_to_the_nearest_cluster(
    strategy, run_small, tmp_path
):
    """The centre of a cluster is nearest to itself."""
    run = run_small(f"strategy={strategy}")
    served = tmp_path / "served"
    export(run.folder, served)
    centres = load_file(served / "centres.safetensors")["centres"]
    directory = json.loads((served / "clusters.json").read_text())
    pairs = zip(directory["clusters"], centres, strict=True)
    for entry, centre in pairs:
        if np.isnan(centre).any():
            assert entry["cluster"] == 0, "those of StoCFL that never took part"
            continue
        found, gap = find(centres, directory, centre)
        assert found == entry
        assert gap == pytest.approx(0, abs=1e-6)


def test_a_stranger_finds_its_model_by_its_folder(run_small, tmp_path, capsys):
    shares = "strategy.label_shares=true"
    run = run_small("strategy=fielding", shares, "partition.purity=1")
    served = tmp_path / "served"
    export(run.folder, served)
    _, state = load_run(run.folder).load_state()
    cluster = int(state.clusters[0])
    labels = np.flatnonzero(state.centres[cluster] > 0.05)
    add_samples(tmp_path / "site", "first", labels, most=100)
    assert assign.main([str(served), "--data-dir", str(tmp_path / "site")]) == 0
    said = capsys.readouterr().out
    assert f"cluster {cluster}, distance" in said
    train, _ = Folder((1, 8, 8), 10).load(str(tmp_path / "site"))
    counts = np.bincount(train.labels, minlength=10)
    expected = np.log((counts + 1) / (len(train.labels) + 10))
    found = json.loads(said.split("label by label: ")[1])
    np.testing.assert_allclose(found, expected, atol=6e-4)
    np.save(tmp_path / "mine.npy", state.centres[cluster])
    mine = str(tmp_path / "mine.npy")
    assert assign.main([str(served), "--representation", mine]) == 0
    assert f"cluster {cluster}, distance 0.000" in capsys.readouterr().out
    np.save(tmp_path / "mine.npy", np.ones(3))
    assert assign.main([str(served), "--representation", mine]) == 2


def test_export_names_a_folder_without_a_run_or_centres(run_small, tmp_path, capsys):
    assert main([str(tmp_path), "--output", str(tmp_path / "served")]) == 2
    assert "holds no run" in capsys.readouterr().err
    run = run_small("strategy=fedavg", "rounds=1")
    assert main([str(run.folder), "--output", str(tmp_path / "served")]) == 0
    asked = [str(tmp_path / "served"), "--data-dir", str(tmp_path)]
    assert assign.main(asked) == 2
    assert "by no representation" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (("strategy=local",), "never left it"),
        (("strategy=fedem",), "mixture of them never left it"),
        (("strategy=fedrep", "model=mlp"), "classifier is its own"),
        (("strategy=fedbabu", "model=mlp"), "fine-tunes"),
        (("strategy=fedpac", "model=mlp"), "classifier is its own"),
        (("strategy=fedccfa", "model=mlp"), "classifier is its own"),
        (("strategy=local_async", "drift=none"), "the common ones are the first"),
    ],
)
def test_a_method_without_a_sound_common_model_is_refused_in_a_line(
    overrides, reason, run_small, tmp_path, capsys
):
    run, served = run_small(*overrides, "rounds=1"), tmp_path / "served"
    capsys.readouterr()
    assert main([str(run.folder), "--output", str(served)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    name = overrides[0]
    assert f"a run of {name} has no common model that can be served: " in line
    assert reason in line
    assert "name a run with common models" in line
    assert not served.exists()


@pytest.mark.parametrize(
    ("strategy", "serves"),
    [
        ("ditto", "the global model, not the clients' own ones"),
        ("pfedme", "the global model, not the clients' own ones"),
        ("apfl", "the global model, not the clients' own ones"),
        ("fedavg", "each cluster's model"),
        ("fedavg_ft", "each cluster's model, which each client fine-tunes"),
        (
            "fedavg_ls",
            "each cluster's model, to whose outputs each client adds its label shares",
        ),
    ],
)
def test_export_says_what_is_served(strategy, serves, run_small, tmp_path, capsys):
    run, served = run_small(f"strategy={strategy}", "rounds=2"), tmp_path / "served"
    capsys.readouterr()
    assert main([str(run.folder), "--output", str(served)]) == 0
    assert f"1 clusters in {served} ({serves}); see" in capsys.readouterr().out
    assert json.loads((served / "clusters.json").read_text())["serves"] == serves
    # It is the trained one.
    _, state = load_run(run.folder).load_state()
    config = compose_config([])
    network = config.model.build((1, 8, 8), 10)
    named = load_file(served / "cluster-0.safetensors")
    expected = FlatModel(network).load(state.models[0]).module.state_dict()
    assert all(np.array_equal(named[name], t.numpy()) for name, t in expected.items())
    first = initial_vector(config.model, (1, 8, 8), 10, config.seed)
    assert not np.array_equal(state.models[0], first)


def test_an_older_export_leaves_no_models(run_small, tmp_path):
    served = tmp_path / "served"
    run = run_small("strategy=fielding", "partition.purity=1")
    assert len(export(run.folder, served)) == 3
    single = run_small("strategy=fedavg", "rounds=1", folder="single")
    assert export(single.folder, served) == [0]
    names = {path.name for path in served.iterdir()}
    assert names == {"clusters.json", "cluster-0.safetensors"}
