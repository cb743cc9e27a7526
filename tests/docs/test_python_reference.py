"""docs/reference/python.md says in one line what public names are."""

import re

import pytest

import cfl_flower
from tests.docs.test_architecture import ROOT, find

PAGE = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `(\S+)` \| (.*) \|$", PAGE, re.MULTILINE))


@pytest.mark.parametrize("name", ROWS)
def test_a_line_is_that_of_the_docstring(name):
    assert ROWS[name] == find(name).__doc__.strip().splitlines()[0]


def test_every_public_name_has_a_line():
    names = {f"cfl_flower.{name}" for name in cfl_flower.__all__}
    assert names - {"cfl_flower.__version__"} <= ROWS.keys()
