"""The files that docs/how-to/own-parts.md shows work as they are."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how-to" / "own-parts.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r'^```\w+ title="([^"]*)"\n(.*?)^```$', PAGE, re.M | re.S))


@pytest.mark.parametrize(
    "chosen", ["strategy=calibrated", "drift=cyclic partition=skewed"]
)
def test_the_parts_that_the_page_shows_run(chosen, tmp_path):
    assert len(FILES) == 6
    for name, text in FILES.items():
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
