"""How every table and figure of the five papers stands here, on one page.

    python -m simulations.scoreboard

writes docs/results/README.md from published.yaml, which `simulations.reproduce` runs,
and the tables of the pages beside it from recorded.json, which has what runs gave.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

from cfl_flower.environment.files import write_atomically
from cfl_flower.environment.plugins import CONF
from simulations.papers.published import STATES, load_elsewhere, load_tables
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

HEAD = """# The papers' tables and figures

What was reproduced here, and how far: one line for each table or figure. Its name is
what `python -m simulations.reproduce NAME` runs, unless the line names another command.
The papers' pages have the numbers. `python -m simulations.scoreboard` writes this page
from [published.yaml](../../simulations/papers/published.yaml), which has the published
figures.

```bash
python -m simulations.reproduce --list    # what each needs, and how long runs took
```

"""


def lines() -> Iterator[tuple[str, str, str, str]]:
    """Return the name of every table and figure, what it shows, its state, and why."""
    for name, table in load_tables().items():
        yield name, table.title.partition(", ")[2], table.state, table.evidence
    for name, found in load_elsewhere().items():
        yield name, found.where, found.state, found.evidence


def page() -> str:
    """Return the page."""
    found = list(lines())
    counts = {state: sum(line[2] == state for line in found) for state in STATES}
    text = (
        HEAD + "| state | what it means | tables and figures |\n| --- | --- | ---: |\n"
    )
    for state, meaning in STATES.items():
        text += f"| {state} | {meaning} | {counts[state]} |\n"
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
