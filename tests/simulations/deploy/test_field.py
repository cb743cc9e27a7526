"""The page from tables of sites to a served model, pasted into a shell."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from simulations.engines.superlink import free_ports
from tests.simulations.deploy.loopback import Deployment

pytestmark = [pytest.mark.slow, pytest.mark.devices]

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "tutorials" / "field.md"
PORTS = ("9092", "9101", "9102", "9103", "9104")
LIMIT = 1800


def blocks(page: Path, kind: str) -> list[str]:
    return re.findall(rf"```{kind}\n(.*?)```", page.read_text(), re.DOTALL)


def test_tables_of_sites_become_a_served_model(tmp_path, monkeypatch):
    here = Deployment(tmp_path)
    monkeypatch.setenv("FLWR_HOME", here.variables["FLWR_HOME"])
    (tables,) = blocks(PAGE, "python")
    subprocess.run([sys.executable, "-c", tables], cwd=tmp_path, check=True)
    script = "".join(blocks(PAGE, "shell"))
    for port, free in zip(PORTS, map(str, free_ports(len(PORTS))), strict=True):
        script = script.replace(port, free)
    port = script.split("127.0.0.1:")[1].split()[0]
    script = script.replace("superlink keys", f"superlink keys --port {port}")
    (tmp_path / "page.sh").write_text(script)
    try:
        with (tmp_path / "page.log").open("w") as log:
            done = subprocess.run(
                ["bash", "page.sh"],
                cwd=tmp_path,
                env=here.variables,
                stdout=log,
                stderr=subprocess.STDOUT,
                timeout=LIMIT,
                check=False,
            )
        said = here.log("page")
        assert done.returncode == 0, said[-3000:]
        run = tmp_path / "runs" / "pumps"
        rounds = [json.loads(row) for row in (run / "rounds.jsonl").open()]
        assert [row["round"] for row in rounds] == list(range(1, 11))
        lost = {failure["client"] for row in rounds for failure in row["failures"]}
        assert "site-c" in lost
        assert json.loads((run / "summary.json").read_text())["final"]["accuracy"] > 0.9
        # The raw rows of each cluster's model, and the site that asks for its own.
        hot, cold = re.findall(r"^1,(\w+),[\d.]+\n2,(\w+),", said, re.M)[0]
        assert (hot, cold) == ("failing", "well")
        assert re.search(r"^cluster \d, ", said, re.M)
    finally:
        here.end()
