"""Files that somebody else may have made: one line, or they are read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cfl_flower.config.compose import compose_config
from cfl_flower.errors import CflError
from cfl_flower.server_app import open_stream
from simulations.report import render
from simulations.saved import load_run
from tests.conftest import Runner
from tests.fuzzing import Mutator

pytestmark = pytest.mark.slow

EACH = 60
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
        elif path.suffix == ".json":
            found.append(mutator.text("\n".join(lines)).encode())
        else:
            found.append(mutator.wire(data))
    return found


def try_each(path: Path, read: Callable[[], object]) -> tuple[int, int]:
    """Read with each forgery in the place of a file; return how many were refused."""
    kept, refused, contents = path.read_bytes(), 0, forgeries(path, len(path.name))
    for content in contents:
        path.write_bytes(content)
        try:
            read()
        except CflError as error:
            refused += 1
            assert "\n" not in str(error)
    path.write_bytes(kept)
    return len(contents), refused


@pytest.fixture(scope="module")
def folder(undisturbed: Runner, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of a finished run."""
    copy = tmp_path_factory.mktemp("forged") / "run"
    shutil.copytree(undisturbed("strategy=fielding").folder, copy)
    return copy


@pytest.mark.parametrize(
    "name",
    ["config.yaml", "rounds.jsonl", "clients.jsonl", "summary.json", "concepts.json"],
)
def test_a_page_of_forged_files(name: str, folder: Path) -> None:
    def read() -> None:
        page = render([load_run(folder)])
        assert "<script>alert" not in page.html

    count, refused = try_each(folder / name, read)
    assert count == EACH
    assert refused > 0


def test_a_forged_checkpoint(folder: Path) -> None:
    files = [path for path in (folder / "checkpoint").rglob("*") if path.is_file()]
    assert files
    refused = 0
    for path in files:
        refused += try_each(path, lambda: load_run(folder).load_state())[1]
    assert refused >= len(files) * EACH // 2


@pytest.mark.parametrize("kind", ["npz", "csv"])
def test_a_forged_dataset(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    x, y = rng.random((60, 4)).astype(np.float32), np.arange(60) % 5
    path = tmp_path / f"own.{kind}"
    if kind == "npz":
        np.savez(path, x=x, y=y)
    else:
        rows = [
            ",".join(map(str, [*row, f"class{label}"]))
            for row, label in zip(x, y, strict=True)
        ]
        path.write_text("\n".join(["a,b,c,d,label", *rows]))
    options = [f"dataset={kind}", f"dataset.file={path.name}", f"data_dir={tmp_path}"]
    options += ["partition=iid", "drift=none", "clients=4", "participants=2"]
    count, refused = try_each(path, lambda: open_stream(compose_config(options)))
    assert count == EACH
    assert refused > 0


def test_names_and_reasons_on_a_page_are_text(folder: Path) -> None:
    attack = "<script>alert(1)</script><img src=x onerror=alert(2)>"
    config = (folder / "config.yaml").read_text()
    named = config.replace("name: fielding", f"name: {json.dumps(attack)}", 1)
    (folder / "config.yaml").write_text(named)
    (folder / "failure.txt").write_text(attack)
    html = render([load_run(folder)]).html
    (folder / "config.yaml").write_text(config)
    (folder / "failure.txt").unlink()
    assert named != config
    assert "<script>alert(1)" not in html
    assert "<img src=x" not in html
