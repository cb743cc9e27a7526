"""How every table and figure of the five papers stands here, on one page.

    python -m simulations.scoreboard

writes docs/results/README.md from published.yaml, which `simulations.reproduce` runs,
and from the papers' pages, which say in short what holds; and the tables of these pages
from recorded.json, which has what runs gave.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from cfl_flower.environment.files import write_atomically
from cfl_flower.environment.plugins import CONF
from simulations.papers.published import (
    RESULTS,
    STATES,
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

HEAD = """# The papers' tables and figures

What was reproduced here, and how far. The counts are of results, one for each measure
of a table or figure: {results} in all. {whole} of the {tables} tables and figures of
accuracies that `reproduce` runs are reproduced in full.

{overview}

{in_short}

| state | what it means |
| --- | --- |
{states}

Below is a line for each result, and for what is none. Its name is what `cfl-flower
reproduce NAME` runs, unless it names another command. The papers' pages have the story.
`make docs` writes this page from
[published.yaml](../../simulations/papers/published.yaml).

```bash
cfl-flower reproduce --list    # all tables; with a table's name, what its rows need
```
"""


def lines() -> Iterator[tuple[str, str, str, str]]:
    """Return the name of every table and figure, what it shows, its state, and why."""
    for name, table in load_tables().items():
        yield name, table.title.partition(", ")[2], table.state, table.evidence
    for name, found in load_elsewhere().items():
        yield name, found.where, found.state, found.evidence


def count(state: str, prefix: str = "") -> int:
    """Return how many lines of a paper, or of all, are in a state."""
    return sum(line[2] == state and line[0].startswith(prefix) for line in lines())


def accuracies() -> tuple[int, int]:
    """Return how many runnable results are of accuracies, and how many are whole."""
    shares = [table for table in load_tables().values() if table.is_share]
    return len(shares), sum(table.state == "reproduced" for table in shares)


def overview() -> str:
    """Return the table of papers by states of results."""
    text = f"| paper | {' | '.join(RESULTS)} |\n| --- |{' ---: |' * len(RESULTS)}\n"
    for prefix, paper in PAPERS.items():
        counts = (str(count(state, f"{prefix}_")) for state in RESULTS)
        text += f"| [{paper}]({prefix}.md) | {' | '.join(counts)} |\n"
    return text + f"| all | {' | '.join(str(count(state)) for state in RESULTS)} |"


def in_short(prefix: str) -> str:
    """Return what a paper's page says in short, in a line."""
    words = PAGE.with_name(f"{prefix}.md").read_text()
    return " ".join(IN_SHORT.findall(words)[0].split())


def page() -> str:
    """Return the page."""
    found = list(lines())
    tables, whole = accuracies()
    text = HEAD.format(
        results=sum(map(count, RESULTS)),
        tables=tables,
        whole=whole,
        overview=overview(),
        in_short="\n".join(
            f"* **{paper}**: {in_short(prefix)}" for prefix, paper in PAPERS.items()
        ),
        states="\n".join(f"| {state} | {what} |" for state, what in STATES.items()),
    )
    for prefix, paper in PAPERS.items():
        text += f"\n## {paper} ([figures]({prefix}.md))\n\n"
        text += "| name | what | state | evidence |\n| --- | --- | --- | --- |\n"
        for name, what, state, evidence in found:
            if name.startswith(f"{prefix}_"):
                text += f"| `{name}` | {what} | {state} | {evidence} |\n"
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
