"""How every table and figure of the five papers stands here, on one page.

    python -m simulations.scoreboard

writes docs/results/README.md from published.yaml, which `simulations.reproduce` runs,
and from the papers' pages, which say in short what holds; and the tables of these pages
from recorded.json, which has what runs gave.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cfl_flower.analysis.scorecards import markdown
from cfl_flower.environment.files import write_atomically
from cfl_flower.environment.plugins import CONF
from simulations.papers.published import (
    PUBLISHED,
    RESULTS,
    STATES,
    PublishedTable,
    load_elsewhere,
    load_tables,
)
from simulations.papers.recorded import section

PAGE = CONF.parent / "docs" / "results" / "README.md"

PAPERS = {
    "fielding": "Fielding",
    "flexcfl": "FlexCFL",
    "ccfl": "CCFL",
    "stocfl": "StoCFL",
    "fedccfa": "FedCCFA",
}

MARKED = re.compile("(<!-- recorded -->\n).*?(<!-- end of recorded -->)", re.DOTALL)

IN_SHORT = re.compile(r"\*\*In short:\*\* (.*?)\n\n", re.DOTALL)

HEAD = PUBLISHED.with_name("scoreboard.md")
"""The template of what stands above the lines."""


class Line(NamedTuple):
    """A table or figure of a paper, and how it stands here."""

    name: str
    what: str
    state: str
    evidence: str


def lines(tables: Mapping[str, PublishedTable]) -> list[Line]:
    """Return every table and figure: those that are run, and those shown elsewhere."""
    run = [
        Line(name, each.title.partition(", ")[2], each.state, each.evidence)
        for name, each in tables.items()
    ]
    shown = load_elsewhere().items()
    return run + [Line(n, each.where, each.state, each.evidence) for n, each in shown]


def overview(found: Sequence[Line]) -> str:
    """Return the table of papers by states of results."""
    counts = Counter((line.name.partition("_")[0], line.state) for line in found)
    rows = [
        [f"[{paper}]({prefix}.md)", *(str(counts[prefix, each]) for each in RESULTS)]
        for prefix, paper in PAPERS.items()
    ]
    every = Counter(line.state for line in found)
    rows.append(["all", *(str(every[each]) for each in RESULTS)])
    return markdown(["paper", *RESULTS], rows, ["paper"])


def in_short(prefix: str) -> str:
    """Return what a paper's page says in short, in a line."""
    words = PAGE.with_name(f"{prefix}.md").read_text()
    return " ".join(IN_SHORT.findall(words)[0].split())


def page() -> str:
    """Return the page."""
    tables = load_tables()
    found = lines(tables)
    shares = [table for table in tables.values() if table.is_share]
    text = HEAD.read_text(encoding="utf-8").format(
        results=sum(line.state in RESULTS for line in found),
        tables=len(shares),
        whole=sum(table.state == "reproduced" for table in shares),
        overview=overview(found),
        in_short="\n".join(
            f"* **{paper}**: {in_short(prefix)}" for prefix, paper in PAPERS.items()
        ),
        states="\n".join(f"| {state} | {what} |" for state, what in STATES.items()),
    )
    for prefix, paper in PAPERS.items():
        text += f"\n## {paper} ([figures]({prefix}.md))\n\n"
        own = [line for line in found if line.name.startswith(f"{prefix}_")]
        rows = [[f"`{name}`", *others] for name, *others in own]
        text += markdown(Line._fields, rows, Line._fields) + "\n"
    return text


def with_recorded(paper: str) -> str:
    """Return a paper's page with the tables of its recorded figures."""
    words = PAGE.with_name(f"{paper}.md").read_text()
    return MARKED.sub(lambda found: found[1] + section(paper) + found[2], words)


def main() -> int:
    """Write the pages and return the exit code."""
    write_atomically(PAGE, page().encode())
    for paper in PAPERS:
        write_atomically(PAGE.with_name(f"{paper}.md"), with_recorded(paper).encode())
    print(f"saved in {PAGE.parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
