"""The page of all tables and figures is that of published.yaml."""

from __future__ import annotations

import re

import pytest

from cfl_flower.environment.plugins import CONF
from simulations.papers.published import load_elsewhere, load_tables
from simulations.scoreboard import PAGE, PAPERS, lines, page, with_recorded


def test_scoreboard_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run python -m simulations.scoreboard"


@pytest.mark.parametrize("paper", PAPERS)
def test_tables_of_a_papers_page_are_what_its_runs_gave(paper: str) -> None:
    words = PAGE.with_name(f"{paper}.md").read_text()
    assert words.count("<!-- recorded -->") == words.count("<!-- end of recorded -->")
    assert words == with_recorded(paper), "run python -m simulations.scoreboard"


def test_every_table_and_figure_has_a_line_with_evidence() -> None:
    found = {name: evidence for name, _, _, evidence in lines()}
    text = page()
    assert found.keys() == load_tables().keys() | load_elsewhere().keys()
    for name, evidence in found.items():
        assert evidence, name
        assert text.count(f"`{name}`") == 1
        assert name.partition("_")[0] in PAPERS


def test_pages_that_advertise_reproduction_have_the_scoreboards_counts() -> None:
    states = [state for _, _, state, _ in lines()]
    for name in ("README.md", "docs/peers.md", "docs/how-to/reproduce.md"):
        text = " ".join((CONF.parent / name).read_text().split())
        (whole,) = re.findall(r"(\d+) tables and figures", text)
        (full,) = re.findall(r"(\d+) (?:are )?reproduced", text)
        (part,) = re.findall(r"(\d+) in part", text)
        (rest,) = re.findall(r"(\d+) (?:were )?not run", text)
        found = [int(each) for each in (whole, full, part, rest)]
        known = [states.count(each) for each in ("reproduced", "in part", "not run")]
        assert found == [len(states), *known], name
