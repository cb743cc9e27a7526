"""The notebooks of the documentation run from top to bottom."""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

DOCS = Path(__file__).resolve().parents[2] / "docs"
NOTEBOOKS = sorted(DOCS.rglob("*.ipynb"))


def show(notebook: nbformat.NotebookNode) -> list[str]:
    """Return the results of a notebook's cells as text, without its progress."""
    return [
        re.sub(r"<.*", "", str(output["data"]["text/plain"]), flags=re.DOTALL)
        for cell in notebook.cells
        for output in cell.get("outputs", ())
        if output["output_type"] == "execute_result"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_shows_on_the_page(path, tmp_path):
    notebook = nbformat.read(path, as_version=4)
    saved = show(notebook)
    assert len(saved) >= 3
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=600, resources=resources).execute()
    assert show(notebook) == saved
