"""In tables of results bold is what is best, not what is ours."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

RANKED = {
    *("before", "before drift", "just after", "recovered", "final", "last ten"),
    *("best", "mean", "mean over the rounds"),
}
"""Columns of accuracies, of which the largest is the best."""

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]


def tables(page: Path) -> Iterator[tuple[list[str], list[list[str]]]]:
    """Yield the header and the rows of each table of a page."""
    header: list[str] = []
    rows: list[list[str]] = []
    for line in [*page.read_text().splitlines(), ""]:
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if re.match(r"\| ?:?-", line):
            # A rule: the line before it is a header, also within a run of tables.
            last = [rows.pop()] if rows else [[]]
            if header:
                yield header, rows
            (header,), rows = last, []
        elif line.startswith("|"):
            rows.append(cells)
        elif header:
            yield header, rows
            header, rows = [], []
        else:
            rows = []


def number(cell: str) -> float:
    """Return the first number of a cell."""
    found = re.search(r"-?\d+(\.\d+)?", cell)
    return float(found[0]) if found else float("-inf")


RESULTS = [
    pytest.param(header, rows, id=f"{page.relative_to(ROOT)}-{place}")
    for page in PAGES
    for place, (header, rows) in enumerate(tables(page))
    if len(RANKED & set(header)) >= 2
]


def test_tables_of_results_are_found() -> None:
    assert len(RESULTS) >= 20


@pytest.mark.parametrize(("header", "rows"), RESULTS)
def test_bold_is_the_best_of_a_column(header: list[str], rows: list[list[str]]) -> None:
    ranked = [column in RANKED for column in header]
    # A name in bold reads as the best in everything.
    for row in rows:
        for cell, counts in zip(row, ranked, strict=True):
            assert counts or "**" not in cell, row
    if not any("**" in cell for row in rows for cell in row):
        return
    for column, counts in enumerate(ranked):
        if counts:
            values = [number(row[column].strip("*")) for row in rows]
            best = [value == max(values) for value in values]
            assert ["**" in row[column] for row in rows] == best, header[column]
