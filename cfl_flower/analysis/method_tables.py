"""Tables of written numbers, a row per method: for a terminal or a document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.markup import escape
from rich.table import Table as DrawnTable

from cfl_flower.analysis.leads import Seeds

FAILED = "failed"
"""Stands in the row of a method of which no run completed."""


@dataclass(frozen=True)
class Table:
    """Written numbers of methods, with the numbers themselves where seeds have any."""

    title: str
    headings: Sequence[str]
    """The first is that of the methods."""
    lines: Sequence[Sequence[str]]
    """The cells of each method, its name first."""
    caption: str = ""
    numbers: Mapping[str, Mapping[str, Seeds]] = field(default_factory=dict)
    """The values that a column has means of, by its heading and by method."""

    def markdown(self, left: Sequence[str] = ()) -> str:
        """Write it for a document, with columns as `draw` lays them out."""
        known = (self.headings[0], *left)
        rule = ["---" if heading in known else "---:" for heading in self.headings]
        lines = [self.headings, rule, *self.lines]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def draw(self, left: Sequence[str] = ()) -> DrawnTable:
        """Lay it out for the terminal.

        Columns are right but for the first, and those that are ``left``.
        """
        drawn = DrawnTable(
            # Names and reasons are no markup.
            title=escape(self.title),
            title_justify="left",
            caption=escape(self.caption) or None,
            caption_justify="left",
        )
        for heading in self.headings:
            # Folded: names that are cut might look alike.
            if heading in (self.headings[0], *left):
                drawn.add_column(heading, overflow="fold")
            else:
                drawn.add_column(heading, justify="right")
        for line in self.lines:
            drawn.add_row(*line)
        return drawn


def new_table(
    title: str,
    headings: Iterable[str],
    rows: Mapping[str, Sequence[str]],
    caption: str = "",
) -> Table:
    """Return a table with a row of texts per method; one of nothing says `FAILED`."""
    names = ["strategy", *headings]
    lines = []
    for name, row in rows.items():
        line = [name, *(row or [FAILED])]
        lines.append(line + [""] * (len(names) - len(line)))
    return Table(title, names, lines, caption)
