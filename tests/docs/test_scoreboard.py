"""The page of all tables and figures is that of published.yaml."""

from statistics import fmean

import pytest

from simulations.papers.published import load_elsewhere, load_tables
from simulations.papers.recorded import figure_name, load
from tests.docs.scoreboard import (
    PAGE,
    PAPERS,
    RIVALS,
    STATES,
    lines,
    of_papers,
    page,
    read_outcome,
    with_recorded,
)


def test_scoreboard_page_is_up_to_date():
    assert PAGE.read_text() == page(), "run make docs"


@pytest.mark.parametrize("paper", [*PAPERS, "rivals"])
def test_tables_of_a_papers_page_are_what_its_runs_gave(paper):
    words = PAGE.with_name(f"{paper}.md").read_text()
    assert words.count("<!-- recorded -->") == words.count("<!-- end of recorded -->")
    assert words == with_recorded(paper), "run make docs"


def test_every_table_and_figure_has_a_line_with_evidence():
    every = lines(of_papers())
    assert {line.state for line in every} <= STATES.keys()
    found = {line.name: line.evidence for line in every}
    text = page()
    assert found.keys() == of_papers().keys() | load_elsewhere().keys()
    others = load_tables().keys() - of_papers().keys()
    assert {name.partition("_")[0] for name in others} <= {*RIVALS}
    for name, evidence in found.items():
        assert evidence, name
        # The story is on the paper's page.
        assert len(evidence.split()) <= 12, (name, evidence)
        assert text.count(f"`{name}`") == 1
        assert name.partition("_")[0] in PAPERS


def test_a_table_is_reproduced_only_if_all_its_figures_were_run_and_are():
    figures = load()["figures"]
    for table in load_tables().values():
        if table.state == "reproduced":
            for cell in table.cells([], []):
                if cell.published is not None:
                    own = read_outcome(figures[figure_name(table, cell, 1.0)])
                    assert own.known == own.values
                    gap = fmean(own.known.values()) - cell.published
                    assert abs(gap) <= table.tolerance, (table.name, cell)
