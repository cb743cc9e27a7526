"""The script of the page on SLURM, whose jobs are processes where there is no SLURM."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import cfl_flower as cfl

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_script_carries_out_its_runs_and_continues_them(tmp_path):
    page = (ROOT / "docs" / "how-to" / "slurm.md").read_text()
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
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    found = cfl.load(tmp_path)
    methods = [run.settings["strategy"]["name"] for run in found.runs]
    assert methods == ["fedavg", "fielding"]
    assert [len(run.rounds) for run in found.runs] == [2, 2]
    assert (tmp_path / "report.html").is_file()
