"""Files that somebody else may have made: one line, or they are read."""

import hashlib
import json
import shutil
from argparse import Namespace
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import yaml

from cfl_flower.analysis.saved import load_run
from cfl_flower.config.compose import compose_config
from cfl_flower.config.options import GROUPS
from cfl_flower.errors import CflError, CheckpointError, ConfigError
from cfl_flower.privacy.settings import NoPrivacy
from cfl_flower.run_config import Basics
from cfl_flower.runs.checkpoint import Checkpoint
from cfl_flower.runs.output_dir import check_output_dir
from cfl_flower.server_app import open_stream
from simulations.assign import assign_from_served
from simulations.export import export
from simulations.report import render
from simulations.served import folders_of
from tests.cfl_flower.client.test_node_config import add_samples
from tests.conftest import Runner, sample
from tests.fuzzing import ODD, Mutator

pytestmark = pytest.mark.slow

EACH = 24
"""Forgeries of each file."""

LINES = ("rounds.jsonl", "clients.jsonl")


def forgeries(path: Path, seed: int) -> list[bytes]:
    """Return changed contents of a file, half of them still JSON where it is JSON."""
    data, mutator = path.read_bytes(), Mutator(seed)
    found = [mutator.wire(data) for _ in range(EACH // 2)]
    for _ in range(EACH // 2):
        lines = data.decode("utf-8", "replace").splitlines()
        if path.name in LINES:
            place = mutator.rng.randrange(len(lines))
            lines[place] = mutator.text(lines[place])
            found.append("\n".join(lines).encode())
        elif path.suffix == ".csv":
            place = mutator.rng.randrange(len(lines))
            cells = lines[place].split(",")
            cells[mutator.rng.randrange(len(cells))] = str(mutator.rng.choice(ODD))
            lines[place] = ",".join(cells)
            found.append("\n".join(lines).encode())
        elif path.suffix == ".json":
            found.append(mutator.text("\n".join(lines)).encode())
        else:
            found.append(mutator.wire(data))
    return found


def try_each(path: Path, read: Callable[[], object]) -> tuple[int, int]:
    """Read with each forgery in the place of a file; return how many were refused."""
    kept, refused, contents = path.read_bytes(), 0, forgeries(path, len(path.name))
    try:
        for content in contents:
            path.write_bytes(content)
            try:
                read()
            except CflError as error:
                refused += 1
                assert "\n" not in str(error)
    finally:
        path.write_bytes(kept)
    return len(contents), refused


@pytest.fixture(scope="module")
def folder(undisturbed: Runner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("forged") / "run"
    shutil.copytree(undisturbed("strategy=fielding").folder, copy)
    return copy


@pytest.mark.parametrize(
    "name",
    ["config.yaml", "rounds.jsonl", "clients.jsonl", "summary.json", "concepts.json"],
)
def test_a_page_of_forged_files(name, folder):
    def read() -> None:
        assert "<script>alert" not in render([load_run(folder)]).html

    count, refused = try_each(folder / name, read)
    assert count == EACH
    assert refused > 0


KEYS = [
    *(*GROUPS, *(each.name for each in fields(Basics))),
    *(f"privacy.{each.name}" for each in fields(NoPrivacy)),
]


@pytest.mark.parametrize(
    "place", sample(KEYS, ["strategy", "dataset", "clients", "privacy.secure_sums"])
)
def test_a_config_without_one_of_its_keys_is_one_line_or_read(place, folder, tmp_path):
    path = shutil.copytree(folder, tmp_path / "run") / "config.yaml"
    left = yaml.safe_load(path.read_text())
    above, _, key = place.rpartition(".")
    del (left[above] if above else left)[key]
    path.write_text(yaml.safe_dump(left))
    with suppress(CflError):
        render([load_run(path.parent)])
        export(path.parent, tmp_path / "served")


def test_a_config_that_refers_to_itself_is_one_line(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "run")
    laughs = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12)]
    with (copy / "config.yaml").open("a") as file:
        file.write("\n".join(["l0: &l0 [ha]", *laughs]))
    with pytest.raises(ConfigError, match=r"config\.yaml .*refers to other parts"):
        load_run(copy)


def test_a_forged_checkpoint(folder):
    files = [path for path in (folder / "checkpoint").rglob("*") if path.is_file()]
    assert files
    refused = 0
    for path in files:
        refused += try_each(path, lambda: load_run(folder).load_state())[1]
    assert refused >= len(files) * EACH // 2


FORGED = [
    *(("clients", [0, 1, 2, each]) for each in ("../../../evil", -1, True, None, 2)),
    *(("clients", each) for each in (None, 3, "abc", {"pairs": []})),
    *(("clusters", each) for each in ([0, 1], None, {"bytes": ".clusters"})),
    *(("models", each) for each in (7, {"array": ".clusters"}, ["abc"], [None])),
    *(("typical_count", each) for each in ("many", None, [1])),
    *(("typical_report", each) for each in ("far", None)),
    *(("history", each) for each in (3, [], "abc")),
    *(("empty", each) for each in (None, 5)),
]


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize(("name", "value"), FORGED)
def test_a_state_with_forged_fields(name, value, signed, folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "run")
    path = copy / "checkpoint" / "checkpoint.json"
    header = json.loads(path.read_text())
    header["state"]["fields"][name] = value
    if signed:
        text = json.dumps(header["state"])
        header["state_sha256"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(header))
    with pytest.raises(CheckpointError, match=r"checkpoint\.json: ") as caught:
        load_run(copy).load_state()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("clusters", [[-1], [2**40], [0, 0], [0.5], [[0]], []])
def test_a_checkpoint_whose_clusters_fit_no_clients(clusters, folder, tmp_path):
    run = load_run(shutil.copytree(folder, tmp_path / "run"))
    _, state = run.load_state()
    state.clusters = np.repeat(np.array(clusters), 12, axis=0)
    Checkpoint(run.folder / "checkpoint", run.resolved).save(4, state)
    with pytest.raises(CheckpointError, match=r"checkpoint\.json: .*clusters"):
        run.load_state()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(("rounds", each) for each in (["x"], [], [2, 3], [3, 1], [1, 1], None, 3)),
        *(("concepts", each) for each in (["x"], [], [[0]], None, "abc")),
        *(("next", each) for each in ("x", [1], {"a": 1})),
    ],
)
def test_forged_concepts_name_their_file(key, value, folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "run")
    path = copy / "concepts.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    with pytest.raises(ConfigError, match=r"concepts\.json cannot be read") as caught:
        render([load_run(copy)])
    assert "\n" not in str(caught.value)


X, Y = np.random.default_rng(0).random((60, 4)).astype(np.float32), np.arange(60) % 5
"""Samples of a dataset that is forged."""


@pytest.mark.parametrize("kind", ["npz", "csv"])
def test_a_forged_dataset(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    np.savez(tmp_path / "own.npz", x=X, y=Y)
    rows = [",".join(map(str, [*x, f"class{y}"])) for x, y in zip(X, Y, strict=True)]
    (tmp_path / "own.csv").write_text("\n".join(["a,b,c,d,label", *rows]))
    path = tmp_path / f"own.{kind}"
    options = [f"dataset={kind}", f"data_dir={tmp_path}", f"dataset.file={path.name}"]
    options += ["partition=iid", "drift=none", "clients=4", "participants=2"]
    count, refused = try_each(path, lambda: open_stream(compose_config(options)))
    assert count == EACH
    assert refused > 0


@pytest.fixture(scope="module")
def served(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("forged") / "served"
    export(folder, output)
    return output


@pytest.fixture
def asked(served: Path, tmp_path: Path) -> Namespace:
    """What a device with samples asks of a served folder."""
    device = tmp_path / "device"
    add_samples(device, "first", range(10), most=200)
    return Namespace(
        source=served, data_dir=device, representation=None, unlabelled=False
    )


@pytest.mark.parametrize(
    "name", ["clusters.json", "places.safetensors", "cluster-0/card.json"]
)
def test_a_forged_served_folder(name, served, asked):
    count, refused = try_each(served / name, lambda: assign_from_served(asked))
    assert count == EACH
    assert refused > 0


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("format", 1, "another version of cfl-flower; write it with"),
        ("settings", {"strategy": {"_target_": "os.system"}}, "is not allowed"),
        ("settings", {}, "it lacks 'seed'"),
        ("clusters", [{"cluster": 0, "folder": "../own"}], "no file below"),
    ],
)
def test_a_served_folder_that_is_no_such(key, value, words, asked, tmp_path):
    asked.source = shutil.copytree(asked.source, tmp_path / "served")
    path = asked.source / "clusters.json"
    directory = json.loads(path.read_text())
    if key == "clusters":
        value = value * len(directory["clusters"])
    path.write_text(json.dumps({**directory, key: value}))
    with pytest.raises(ConfigError, match=words):
        assign_from_served(asked)


@pytest.mark.parametrize(
    "name",
    [
        *("rounds.jsonl", "checkpoint/checkpoint.json", "clients", ".probe"),
        *("clients/3/00000001.safetensors", "checkpoint/below/of/it"),
    ],
)
def test_a_run_with_a_link_out_of_it_is_neither_read_nor_resumed(
    name, folder, tmp_path
):
    copy = shutil.copytree(folder, tmp_path / "run")
    own = tmp_path / "own"
    if (copy / name).exists():
        (copy / name).rename(own)
    (copy / name).parent.mkdir(parents=True, exist_ok=True)
    (copy / name).symlink_to(own)
    before = own.read_bytes() if own.is_file() else None
    config = compose_config([f"output_dir={copy}", "resume=true"])
    for read in (lambda: load_run(copy), lambda: check_output_dir(config)):
        with pytest.raises(ConfigError, match="is a link out of its folder"):
            read()
    assert before == (own.read_bytes() if own.is_file() else None)


def test_the_name_of_a_served_folder_is_shown_as_text(asked, tmp_path, capsys):
    asked.source = shutil.copytree(asked.source, tmp_path / "served\x1b]0;owned\x07")
    assign_from_served(asked)
    said = capsys.readouterr().out
    assert "owned" in said
    assert said.removesuffix("\n").isprintable()


def test_a_served_folder_with_a_link_out_of_it_is_refused(served, tmp_path):
    copy = shutil.copytree(served, tmp_path / "served")
    (copy / "places.safetensors").rename(tmp_path / "own")
    (copy / "places.safetensors").symlink_to(tmp_path / "own")
    with pytest.raises(ConfigError, match="is a link out of its folder"):
        folders_of(copy)


def test_names_and_reasons_on_a_page_are_text(folder, tmp_path):
    attack = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    copy = shutil.copytree(folder, tmp_path / "run")
    config = (copy / "config.yaml").read_text()
    named = config.replace("name: fielding", f"name: {json.dumps(attack)}", 1)
    (copy / "config.yaml").write_text(named)
    (copy / "failure.txt").write_text(attack)
    html = render([load_run(copy)]).html
    assert named != config
    assert "<script>alert(1)" not in html
    assert "<img src=x" not in html
