"""Scripts, notebooks and baselines of the documentation run as they are shown."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from flwr.cli.build import build_fab_from_disk
from nbclient import NotebookClient

import cfl_flower as cfl
from simulations.engines.flower_cli import COMPLETED, wait_for_end
from simulations.engines.superlink import private_superlink

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "how-to" / "own-parts.md").read_text(encoding="utf-8")
NOTEBOOKS = {path.stem: path for path in DOCS.rglob("*.ipynb")}
SHOWN = dict(re.findall(r'^```\w+ title="([^"]*)"\n(.*?)^```$', PAGE, re.M | re.S))


@pytest.mark.parametrize(
    "chosen", ["strategy=calibrated", "drift=cyclic partition=skewed"]
)
def test_the_parts_that_the_page_shows_run(chosen, tmp_path):
    assert len(SHOWN) == 6
    for name, text in SHOWN.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    asked = [*chosen.split(), "rounds=3", "drift.rounds=[2]", "output_dir=run"]
    asked += ["engine=inprocess", "faults.strict=true"]
    command = [sys.executable, "-m", "simulations.run", *asked]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    rounds = (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()
    assert len(rounds) == 3
    assert ("labels_seen" in rounds[-1]) == ("calibrated" in chosen)


@pytest.mark.slow
@pytest.mark.whole
def test_the_script_carries_out_its_runs_and_continues_them(tmp_path):
    page = (DOCS / "how-to" / "slurm.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    small = 'rounds=2, clients=6, participants=3, engine="inprocess"'
    for shown, tried in (
        ("/shared/on-slurm", str(tmp_path)),
        ("rounds=50", small),
        ("(0, 1, 2)", "(0,)"),
    ):
        assert shown in code
        code = code.replace(shown, tried)
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], cwd=DOCS.parent, check=True)
    found = cfl.load(tmp_path)
    methods = [run.settings["strategy"]["name"] for run in found.runs]
    assert methods == ["fedavg", "fielding"]
    assert [len(run.rounds) for run in found.runs] == [2, 2]
    assert (tmp_path / "report.html").is_file()


def show(notebook: nbformat.NotebookNode) -> list[str]:
    """Return the results of a notebook's cells as text, without its progress."""
    return [
        re.sub(r"<.*", "", str(output["data"]["text/plain"]), flags=re.DOTALL)
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if output["output_type"] == "execute_result"
    ]


@pytest.mark.slow
@pytest.mark.whole
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_shows_what_it_shows_on_the_page(name, tmp_path):
    notebook = nbformat.read(NOTEBOOKS[name], as_version=4)
    saved = show(notebook)
    assert len(saved) >= 3
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, resources=resources).execute()
    assert show(notebook) == saved


FILES = ("client_app", "dataset", "model", "server_app", "strategy", "utils")
"""Of `baselines/dev/test-baseline-structure.sh` in Flower's repository."""

LINES = 400
"""Of Python, so that a method is seen in it."""

SECTIONS = [
    *("About this baseline", "Experimental Setup", "Environment Setup"),
    *("Running the Experiments", "Expected Results"),
]
"""Of the README in Flower's template of a baseline."""


@pytest.mark.parametrize(
    "folder", [*DOCS.glob("baselines/*")], ids=lambda path: path.name
)
def test_a_baseline_is_one_that_flower_knows(folder):
    _, front, text = (folder / "README.md").read_text().split("---\n", 2)
    about = yaml.safe_load(front)
    assert about.keys() == {"title", "url", "labels", "dataset"}
    assert 4 <= len(about["labels"]) <= 10
    assert re.findall(r"^## (.+)$", text, re.M) == SECTIONS
    modules = [f"import {folder.name}.{file}" for file in FILES]
    subprocess.run([sys.executable, "-c", "\n".join(modules)], cwd=folder, check=True)
    assert build_fab_from_disk(folder)
    lines = [path.read_text().splitlines() for path in folder.rglob("*.py")]
    assert sum(map(len, lines)) <= LINES


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.whole
def test_the_baseline_runs_elsewhere_and_prints_its_table(tmp_path):
    copy = shutil.copytree(DOCS / "baselines/fielding", tmp_path / "fielding")
    (tmp_path / "home").mkdir()
    names = "FedAvg,IFCA,StoCFL,Fielding"
    asked = f"strategy='{names}' num-clients=6 fraction-train=0.5 num-server-rounds=2"
    size = ["--federation-config", "num-supernodes=6 client-resources-num-cpus=1"]
    command = ["flwr", "run", ".", "--stream", *size, "--run-config"]
    with private_superlink(tmp_path / "home") as variables:
        done = subprocess.run(
            [*command, f"{asked} drift-rounds='2'"],
            cwd=copy,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert wait_for_end(variables=variables, patience=60) == COMPLETED, done.stdout
    rows = re.findall(r"^\| (\w+) \| \d \|(?: [\d.]+ \|){4}$", done.stdout, re.M)
    assert rows == names.split(",")
