"""What `cfl-flower new` writes works as it is, in a folder outside of the project."""

import os
import re
import sys

import pytest

from simulations.engines.flower_cli import COMPLETED, wait_for_end
from simulations.engines.superlink import private_superlink
from simulations.new import APPS, KINDS, main, write_skeleton
from tests.conftest import WHOLE, run_command

TOGETHER = ("method", "model")
"""What `test_own_parts` runs, from their skeletons."""
ALONE = [kind for kind in KINDS if kind not in (*APPS, *TOGETHER)]
FILES = {"project": 6, "dropin": 4}


@pytest.mark.parametrize(
    "kinds",
    [
        ALONE,
        pytest.param([*TOGETHER], marks=WHOLE),
        pytest.param(["project"], marks=WHOLE),
        pytest.param(["dropin"], marks=[*WHOLE, pytest.mark.ray]),
    ],
)
def test_skeletons_pass_their_own_tests(kinds, tmp_path):
    for kind in kinds:
        files = write_skeleton(kind, f"own_{kind}", tmp_path)
        assert len(files) == FILES.get(kind, 3)
        assert all(path.exists() for path in files)
        assert "$" not in "".join(path.read_text() for path in files)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = run_command(
        [*command, *(f"test_own_{kind}.py" for kind in kinds)],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.whole
def test_a_project_is_an_app_that_flower_runs(tmp_path):
    """On a SuperLink that stands elsewhere, and knows nothing of it."""
    app = tmp_path / "own_project"
    write_skeleton("project", "own_project", app)
    (tmp_path / "home").mkdir()
    size = ["--federation-config", "num-supernodes=2 client-resources-num-cpus=1"]
    asked = f'overrides="strategy=own_project rounds=2 output_dir={tmp_path}/run"'
    command = ["flwr", "run", ".", "--stream", *size, "--run-config", asked]
    with private_superlink(tmp_path / "home") as variables:
        done = run_command(command, cwd=app, env=variables)
        assert wait_for_end(variables=variables, patience=60) == COMPLETED, done.stdout
    assert f"saved in {tmp_path}/run\n" in done.stdout
    assert len((tmp_path / "run" / "rounds.jsonl").read_text().splitlines()) == 2


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.whole
def test_a_plain_app_is_one_that_flower_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["dropin", "own-app"]) == 0
    assert re.search(r"try it: .*=1 flwr run . --stream", capsys.readouterr().out)
    (tmp_path / "home").mkdir()
    size = ["--federation-config", "num-supernodes=4 client-resources-num-cpus=1"]
    command = ["flwr", "run", ".", "--stream", *size]
    with private_superlink(tmp_path / "home") as variables:
        done = run_command(command, cwd=tmp_path / "own-app", env=variables)
        assert wait_for_end(variables=variables, patience=60) == COMPLETED, done.stdout
    assert len(re.findall(r"node \d+ is in cluster [01]\n", done.stdout)) == 4
    assert len(re.findall(r"cluster [01] has the accuracy", done.stdout)) == 2


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (["method", "fielding"], "NAME=fielding is not allowed"),
        (["method", "json"], "NAME=json is not allowed"),
        (["method", "My-Method"], "use small letters, digits and _"),
        (["method", "class"], "use small letters, digits and _"),
        (["metod", "mine"], "choose from"),
    ],
)
def test_a_name_that_cannot_be_is_refused(asked, words, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(asked) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_no_file_is_overwritten(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test_mine.py").write_text("mine")
    assert main(["method", "mine"]) == 2
    assert "test_mine.py is there already" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["test_mine.py"]
