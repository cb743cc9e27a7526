"""How every table and figure of the five papers stands here, on one page.

    python -m tests.docs.scoreboard

writes docs/results/README.md from published.yaml, which `simulations.reproduce` runs,
and from the papers' pages, which say in short what holds; and the tables of these pages
from recorded.json, which has what runs gave.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from cfl_flower.analysis.leads import TESTED
from cfl_flower.analysis.method_tables import Table
from cfl_flower.environment.files import write_atomically
from cfl_flower.environment.plugins import CONF
from cfl_flower.types import Json
from simulations.papers.measured import HEADER, TEXTS, Outcome, Outcomes, verdict
from simulations.papers.measured import lines as written
from simulations.papers.published import (
    BESIDE,
    Cell,
    PublishedTable,
    load_elsewhere,
    load_tables,
)
from simulations.papers.recorded import figure_name, load

PAGE = CONF.parent / "docs" / "results" / "README.md"

NAMES = ("Fielding", "FlexCFL", "CCFL", "StoCFL", "FedCCFA")
PAPERS = {name.lower(): name for name in NAMES}

RIVALS = ("flux", "feddag")
"""How names of tables of other papers begin, whose figures are on one page."""

MARKED = re.compile("(<!-- recorded -->\n).*?(<!-- end of recorded -->)", re.DOTALL)

IN_SHORT = re.compile(r"\*\*In short:\*\* (.*?)\n\n", re.DOTALL)

RESULTS = {
    "reproduced": "all figures are within the tolerance",
    "in part": "some figures are, or some of what a drawing shows comes out; if the "
    "evidence says so, after a part of the rounds or on other data",
    "order only": "the means are in the paper's order; levels differ, or the data are "
    "others",
    "contradicts": "the paper's order does not come out",
    "not run": "the evidence says why",
}
"""States of a paper's result here, and their meanings."""

STATES = RESULTS | {
    "same runs": "curves of the runs of another line, which is counted",
    "no result": "settings, or sizes and pictures of data",
}
"""The same of every table and figure; the last two do not count."""

HEAD = Path(__file__).with_name("scoreboard.md")
"""The template of what stands above the lines."""


WHOLE = ("row", "methods with all rounds", "reproduced", "pairs in order", "seeds")

SHOWN = 0.05
"""The smallest part of the rounds that is shown: what a test checks is shorter."""

EMPTY = {"-", verdict(None, 0)}
"""What is said where there is nothing to say."""

RECORDED = f"""Written by `make docs` from
[recorded.json](../../simulations/papers/recorded.json), which has the commit, the
figures and, of newer runs, the settings' digest. `reproduce TABLE --record` adds runs.

* `ours`: ±: half the 95% interval of the mean over three or more seeds (Student's t).
* `lead`: {TESTED}

"""


class Line(NamedTuple):
    """A table or figure of a paper, and how it stands here."""

    name: str
    what: str
    state: str
    evidence: str


def of_papers() -> dict[str, PublishedTable]:
    """Return the tables of the five papers by name."""
    tables = load_tables().items()
    return {name: table for name, table in tables if name.partition("_")[0] in PAPERS}


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
    return Table("", ["paper", *RESULTS], rows).markdown()


def whole_rows(tables: Mapping[str, PublishedTable]) -> str:
    """Return the table of rows of which methods were run with all rounds."""
    rows = []
    for table in tables.values():
        for row in table.rows:
            published = [each for each in table.cells([row], []) if each.published]
            all_rounds = recorded(table, published, 1)
            # One that never became as good as its reference has no mean.
            if found := [(cell, o) for cell, o in all_rounds if o.known]:
                lines = written(table, found, 1)
                within = sum(line[-1] == "reproduced" for line in lines)
                both = [(cell.published, fmean(o.known.values())) for cell, o in found]
                gaps = [(a - b, c - d) for (a, c), (b, d) in combinations(both, 2)]
                told = [gap for gap in gaps if abs(gap[0]) > table.tolerance]
                order = f"{sum(a * b > 0 for a, b in told)} of {len(told)}"
                seeds = min(len(outcome.values) for _, outcome in found)
                words = (f"{len(found)} of {len(published)}", within, order, seeds)
                rows.append([f"`{table.name}/{row}`", *map(str, words)])
    return Table("", WHOLE, rows).markdown()


def in_short(prefix: str) -> str:
    """Return what a paper's page says in short, in a line."""
    words = PAGE.with_name(f"{prefix}.md").read_text()
    return " ".join(IN_SHORT.findall(words)[0].split())


def page() -> str:
    """Return the page."""
    tables = of_papers()
    found = lines(tables)
    shares = [table for table in tables.values() if table.is_share]
    text = HEAD.read_text(encoding="utf-8").format(
        results=sum(line.state in RESULTS for line in found),
        tables=len(shares),
        whole=sum(table.state == "reproduced" for table in shares),
        overview=overview(found),
        whole_rows=whole_rows(tables),
        in_short="\n".join(
            f"* **{paper}**: {in_short(prefix)}" for prefix, paper in PAPERS.items()
        ),
        states="\n".join(f"| {state} | {what} |" for state, what in STATES.items()),
    )
    for prefix, paper in PAPERS.items():
        text += f"\n## {paper} ([figures]({prefix}.md))\n\n"
        own = [line for line in found if line.name.startswith(f"{prefix}_")]
        rows = [[f"`{name}`", *others] for name, *others in own]
        text += Table("", Line._fields, rows).markdown(Line._fields) + "\n"
    return text


def with_recorded(paper: str) -> str:
    """Return a paper's page with the tables of its recorded figures."""
    words = PAGE.with_name(f"{paper}.md").read_text()
    prefixes = RIVALS if paper == "rivals" else (paper,)
    return MARKED.sub(lambda found: found[1] + section(prefixes) + found[2], words)


def section(prefixes: Sequence[str]) -> str:
    """Return the tables of some papers' recorded figures, as Markdown."""
    figures = load()["figures"]
    found = RECORDED
    for table in load_tables().values():
        if table.name.partition("_")[0] in prefixes:
            found += "".join(of_table(table, figures))
    return found


def of_table(table: PublishedTable, figures: Mapping[str, Json]) -> Iterator[str]:
    """Yield a table with its heading for each part of the rounds that was run."""
    own = [name for name in figures if name.startswith(f"{table.name}/")]
    scales = {figures[name]["scale"] for name in own}
    for scale in sorted((each for each in scales if each >= SHOWN), reverse=True):
        outcomes = recorded(table, table.cells([], [*table.columns, *BESIDE]), scale)
        part = "" if scale == 1 else f", after {scale:g} of the rounds"
        title = table.title.partition(", ")[2]
        yield f"### {title}{part}\n`{table.name}`: {table.unit}; {table.source}\n\n"
        seeds = [str(len(outcome.values)) for _, outcome in outcomes]
        columns = [
            *zip(HEADER, *written(table, outcomes, scale), strict=True),
            ("seeds", *seeds),
        ]
        kept = [column for column in columns if set(column[1:]) - EMPTY]
        header, *rows = zip(*kept, strict=True)
        yield Table("", header, rows).markdown(TEXTS) + "\n\n"


def recorded(table: PublishedTable, cells: Sequence[Cell], scale: float) -> Outcomes:
    """Return what was recorded of some cells."""
    figures = load()["figures"]
    named = [(cell, figures.get(figure_name(table, cell, scale))) for cell in cells]
    return [(cell, read_outcome(figure)) for cell, figure in named if figure]


def read_outcome(figure: Json) -> Outcome:
    """Return an outcome as it was recorded."""
    values = {int(seed): value for seed, value in figure["values"].items()}
    tail = {int(seed): value for seed, value in figure["last_ten"].items()}
    return Outcome(values, tail)


def main() -> int:
    """Write the pages and return the exit code."""
    write_atomically(PAGE, page().encode())
    for paper in (*PAPERS, "rivals"):
        write_atomically(PAGE.with_name(f"{paper}.md"), with_recorded(paper).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
