"""The tables of a comparison for other programs: LaTeX, and CSV with a line per run."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from dataclasses import asdict

from rich.table import Table

from cfl_flower.analysis.comparison import Rows
from cfl_flower.analysis.drift_metrics import Score

LATEX = {
    **{special: f"\\{special}" for special in "%_&#${}"},
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "±": r"$\pm$",
    "→": r"$\to$",
}
"""What TeX would take for a command of its own, and how it is shown."""

FORMULA = re.compile(r"[=+\-@\t\r]")
"""What a cell begins with that spreadsheets compute."""


def headings(table: Table) -> list[str]:
    """Return the column headings of a table."""
    return [str(column.header) for column in table.columns]


def lines(table: Table) -> list[tuple[str, ...]]:
    """Return the rows of a table; of one that ends early, the rest is empty."""
    columns = [[str(cell) for cell in column.cells] for column in table.columns]
    return list(zip(*columns, strict=True))


def to_latex(tables: Iterable[Table]) -> str:
    """Write tables for the packages booktabs and caption, each with its title."""
    found = []
    for table in tables:
        head, *body = [headings(table), *lines(table)]
        rows = [" & ".join(map(_escape, row)) + r" \\" for row in (head, *body)]
        found += [
            r"\begin{table}",
            rf"\caption{{{_escape(str(table.title))}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}",
            *(r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule"),
            r"\end{tabular}",
            *_notes(table),
            r"\end{table}",
            "",
        ]
    return "\n".join(found)


def _notes(table: Table) -> list[str]:
    """Return what stands below a table, a paragraph for each line of it."""
    lines = str(table.caption).splitlines() if table.caption else []
    return [rf"\par\footnotesize {_escape(line)}" for line in lines]


def _escape(text: str) -> str:
    return "".join(LATEX.get(each, each) for each in text)


def _cell(value: object) -> object:
    """Return a text as one that no spreadsheet computes, by an apostrophe before it."""
    formula = isinstance(value, str) and FORMULA.match(value)
    return f"'{value}" if formula else value


def _numbers(score: Score) -> dict[str, object]:
    """Return the fields of a score, with its measures in the place of their mapping."""
    found = asdict(score)
    measures = found.pop("measures")
    return {**found, **measures}


def to_csv(streams: Iterable[tuple[str, Rows]]) -> str:
    """Write every run's score with its stream of data, its method and its seed.

    Accuracies are shares, bytes are bytes, times seconds; empty is what was not
    measured.
    """
    records = [
        {
            "stream": _cell(stream),
            "method": _cell(label),
            "seed": _cell(each.run.resolved["seed"]),
            **_numbers(each.score),
            "folder": _cell(str(each.run.folder)),
        }
        for stream, rows in streams
        for label, row in rows.items()
        for each in row
    ]
    text = io.StringIO()
    if records:
        # Measures that only some runs chose stand last.
        names = list(dict.fromkeys(name for record in records for name in record))
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
    return text.getvalue()
