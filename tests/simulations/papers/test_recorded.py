"""What runs of published tables gave: figures have a table, and runs a commit."""

import re

import pytest

from simulations import reproduce
from simulations.papers.published import BESIDE, Cell, load_tables, suffix
from simulations.papers.recorded import load
from tests.docs.scoreboard import SHOWN, read_outcome

KNOWN = load()
TABLES = load_tables()
SHORT = {
    name.partition("_")[0]: name
    for name, figure in KNOWN["figures"].items()
    if figure["scale"] < SHOWN
}
"""A figure of each paper that one round gives."""


def cell_of(name: str) -> Cell:
    """Return the cell of a figure; there is none that is no table's."""
    whole = name.removesuffix(suffix(KNOWN["figures"][name]["scale"]))
    table, row, method = whole.split("/")
    assert method in {*TABLES[table].columns, *BESIDE}
    return TABLES[table].cell(row, method)


def test_every_figure_is_of_a_table_and_every_run_is_described():
    for name in KNOWN["figures"]:
        assert cell_of(name).overrides
    for name, run in KNOWN["runs"].items():
        assert run["rounds"] > 0, name
        assert run["commits"], name
        for commit in run["commits"]:
            assert re.fullmatch("[0-9a-f]{40}(-dirty)?", commit), name


def test_a_seed_that_never_got_there_is_no_value():
    figure = {"values": {"0": None, "1": 1.5}, "last_ten": {}}
    outcome = read_outcome(figure)
    assert (outcome.values, outcome.known) == ({0: None, 1: 1.5}, {1: 1.5})


@pytest.mark.slow
@pytest.mark.parametrize("paper", ["fielding", "flexcfl", "ccfl", "stocfl", "fedccfa"])
def test_a_round_of_each_paper_gives_what_was_recorded(paper, capsys):
    figure = KNOWN["figures"][SHORT[paper]]
    cell = cell_of(SHORT[paper])
    command = [SHORT[paper].partition("/")[0], "--check", "-q", "--jobs", "1"]
    command += ["--rows", cell.row, "--methods", cell.method]
    code = reproduce.main([*command, "--scale", str(figure["scale"])])
    told = capsys.readouterr()
    if "is not in data_dir" in told.err:
        pytest.skip(told.err)
    # Another processor adds up in another order.
    ours = re.findall(r"seed 0: ([\d.]+), recorded", told.out)
    assert code == len(ours)
    assert [*map(float, ours)] == pytest.approx([figure["values"]["0"]] * code, abs=1)
