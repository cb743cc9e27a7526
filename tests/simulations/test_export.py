"""What a saved run is served as, and how a stranger finds its model."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from cfl_flower.analysis.saved import load_run
from cfl_flower.config.compose import compose_config
from cfl_flower.data.datasets.own import Folder
from cfl_flower.errors import ConfigError
from cfl_flower.models import FlatModel, build_model
from cfl_flower.runs.checkpoint import Checkpoint
from simulations import assign
from simulations.export import export, main
from simulations.served import folders_of
from tests.cfl_flower.client.test_node_config import add_samples
from tests.conftest import sample

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "serve.md"


def load_served(served: Path, place: int = 0) -> Any:
    """Return a network of a served folder, as the page on serving loads it."""
    directory = json.loads((served / "clusters.json").read_text())
    folder = served / directory["clusters"][place]["folder"]
    (code,) = re.findall(
        r"```python\n(from pathlib.*?)```", PAGE.read_text(), re.DOTALL
    )
    assert code.count("/tmp/served/cluster-0") == 1
    names: dict[str, Any] = {}
    exec(code.replace("/tmp/served/cluster-0", str(folder)), names)
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
        folder = served / entry["folder"]
        named = load_file(folder / "model.safetensors")
        assert named.keys() == model.state_dict().keys()
        for name, tensor in model.state_dict().items():
            assert np.array_equal(named[name], tensor.numpy())
        program = torch.export.load(folder / "model.pt2").module()
        assert torch.equal(outputs, program(x))
        card = json.loads((folder / "card.json").read_text())
        assert card["trained"]["clients"] == entry["members"]
        assert card["files"]["torch.export"] == "model.pt2"
        assert "cluster" in (folder / "card.md").read_text()
    assert directory["strategy"] == "fielding"


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


def test_a_folder_without_a_run_or_samples_is_named(run_small, tmp_path, capsys):
    assert main([str(tmp_path), "--output", str(tmp_path / "served")]) == 2
    assert "holds no run" in capsys.readouterr().err
    run = run_small("strategy=fedavg", "rounds=1")
    assert main([str(run.folder), "--output", str(tmp_path / "served")]) == 0
    for asked, words in (
        ([], "use the folder or the table"),
        (["--data-dir", str(tmp_path / "none")], "name the folder or the table"),
    ):
        assert assign.main([str(tmp_path / "served"), *asked]) == 2
        assert words in capsys.readouterr().err
    # Whoever asked the run would be answered by what was served.
    assert (
        main([str(run.folder), "--output", f"{run.folder}/../{run.folder.name}"]) == 2
    )
    assert "another folder than the run's" in capsys.readouterr().err


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
    named = load_file(served / "cluster-0" / "model.safetensors")
    expected = FlatModel(network).load(state.models[0]).module.state_dict()
    assert all(np.array_equal(named[name], t.numpy()) for name, t in expected.items())
    first = build_model(config.model, (1, 8, 8), 10, config.seed).to_vector()
    assert not np.array_equal(state.models[0], first)


def test_an_older_export_leaves_no_models(run_small, tmp_path):
    served = tmp_path / "served"
    run = run_small("strategy=fielding", "partition.purity=1")
    assert len(export(run.folder, served)) == 3
    (served / "cluster-2" / "answers.csv").write_text("a user's own")
    single = run_small("strategy=fedavg", "rounds=1", folder="single")
    assert export(single.folder, served) == [0]
    names = {path.name for path in served.iterdir()}
    assert names == {"clusters.json", "cluster-0", "cluster-2"}
    assert [path.name for path in (served / "cluster-2").iterdir()] == ["answers.csv"]

    # Nor if the new one ends early: clients of the old one would find models of both.
    export(run.folder, served)
    shutil.rmtree(served / "cluster-2")
    (served / "cluster-2").touch()
    with pytest.raises(ConfigError, match="served cannot be written"):
        export(run.folder, served)
    with pytest.raises(ConfigError, match=r"clusters\.json is not there"):
        folders_of(served)


OTHERS = [
    *("clusters.json", "places.safetensors", "cluster-0/card.json"),
    *("cluster-0/model.safetensors", "cluster-7/model.onnx", "cluster-1/card.md"),
]


@pytest.mark.parametrize("name", sample(OTHERS, ["clusters.json", OTHERS[4]]))
def test_no_file_is_lost_that_no_export_wrote(name, run_small, tmp_path, capsys):
    run = run_small("strategy=fedavg", "rounds=1")
    served = tmp_path / "served"
    (served / name).parent.mkdir(parents=True)
    (served / name).write_text('{"format": 2}')
    (served / "notes.txt").write_text("a user's own")
    assert main([str(run.folder), "--output", str(served)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"--output={served} is not allowed; use another folder" in line
    there = {path for path in served.rglob("*") if path.is_file()}
    assert there == {served / name, served / "notes.txt"}
    (served / name).unlink()
    for _ in range(2):
        assert export(run.folder, served) == [0]
    assert (served / "notes.txt").exists()


def test_the_best_models_are_those_of_the_best_round(run_small, tmp_path, capsys):
    best = ["partition.validation=0.2", "system.checkpoint_best=validation_accuracy"]
    run = run_small("strategy=fedavg", "drift=none", *best)
    scores = [row["validation_accuracy"] for row in run.rounds]
    served = tmp_path / "served"
    assert main([str(run.folder), "--output", str(served), "--best"]) == 0
    card = json.loads((served / "cluster-0" / "card.json").read_text())
    rounds = card["trained"]["rounds"]
    assert scores[rounds - 1] == max(scores)
    tests = [row["accuracy"] for row in run.clients if row["round"] == rounds]
    assert min(tests) <= card["trained"]["accuracy"] <= max(tests)
    kept = Checkpoint(run.folder / "checkpoint.best", run.config.resolved)
    _, state = kept.load(load_run(run.folder).method.State)
    assert np.array_equal(FlatModel(load_served(served)).to_vector(), state.models[0])
    other = run_small("strategy=fedavg", "rounds=1", folder="other")
    capsys.readouterr()
    assert main([str(other.folder), "--output", str(served), "--best"]) == 2
    assert "a run with system.checkpoint_best" in capsys.readouterr().err


def test_the_card_has_the_privacy_that_the_run_lost(run_small, tmp_path):
    pytest.importorskip("dp_accounting")
    plain = ["strategy.weighting=plain", "system.evaluate_every=3"]
    run = run_small("strategy=fedavg", "privacy=central", *plain)
    export(run.folder, tmp_path / "served")
    folder = tmp_path / "served" / "cluster-0"
    trained = json.loads((folder / "card.json").read_text())["trained"]
    # After the last round, which no test follows.
    tested = [row["epsilon"] for row in run.clients]
    assert trained["epsilon"] == round(run.summary["epsilon"], 4) >= max(tested) > 0
    assert f"epsilon {trained['epsilon']} at delta" in (folder / "card.md").read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [("epochs=3", "3 epochs"), ("steps=5", "5 steps")],
)
def test_the_card_says_how_long_a_client_trains(options, said, run_small, tmp_path):
    run = run_small("strategy=fedavg", "rounds=1", f"strategy.local.{options}")
    export(run.folder, tmp_path / "served")
    text = (tmp_path / "served" / "cluster-0" / "card.md").read_text()
    assert f"| local training | {said} in a round |" in text


@pytest.mark.parametrize(
    ("options", "tested", "known"),
    [
        (["strategy=fielding", "drift=none"], 2, True),
        (["strategy=fielding", "drift=none"], 1, False),
        (["strategy=fielding", "drift.rounds=[3]"], 2, False),
        (["strategy=ditto", "drift=none"], 2, False),
    ],
)
def test_a_card_has_the_accuracy_of_no_other_model(
    options, tested, known, run_small, tmp_path
):
    run = run_small(*options, "rounds=2", "partition.purity=1")
    assert bool(run.rounds[-1].get("moved")) == ("drift.rounds=[3]" in options)
    # A run that was killed may have a later checkpoint than its last test.
    tests = (run.folder / "clients.jsonl").read_text().splitlines(keepends=True)
    kept = [line for line in tests if json.loads(line)["round"] <= tested]
    (run.folder / "clients.jsonl").write_text("".join(kept))
    rows = [
        row if row["round"] <= tested else row | {"accuracy": None}
        for row in run.rounds
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (run.folder / "rounds.jsonl").write_text(lines)
    export(run.folder, tmp_path / "served")
    for path in (tmp_path / "served").glob("*/card.json"):
        trained = json.loads(path.read_text())["trained"]
        assert (trained["accuracy"] is not None) == known
        assert ("| not known: " in path.with_suffix(".md").read_text()) != known
