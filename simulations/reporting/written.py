"""Tables beside those of a comparison: LaTeX, CSV with a line per run, classes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from cfl_flower.analysis.comparison import Runs
from cfl_flower.analysis.drift_metrics import Score, Scores, mean_of_known
from cfl_flower.analysis.leads import Seeds, leads_over
from cfl_flower.analysis.method_tables import Table
from cfl_flower.analysis.saved import SavedRun
from cfl_flower.types import client_order

LATEX = {
    **{special: f"\\{special}" for special in "%_&#${}"},
    # At the start of a row they would be an option of the command before it.
    **{special: f"{{{special}}}" for special in "[*"},
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "→": r"$\to$",
}
"""Characters that TeX takes for commands, and their replacements."""

LOWER = (
    *("rounds to recover", "calibration error", "forgetting"),
    "clients better alone",
)
"""Columns of which the smallest number is the best."""

FIT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
"""Begins what LaTeX makes as narrow as the page if it is wider."""

LEVEL = "$^=$"
"""Stands behind numbers that are not told apart from the best, in LaTeX."""

LABEL = "tab:comparison"
"""Label of the first table; another one's ends with its number."""

MARKED = (
    "Bold: the best. =: not told apart from it (p above 5% in the t-test paired by "
    "seed, with Holm's correction; three seeds or more)."
)
"""Stands below a table in which any number is."""

MOST_CLIENTS = 12
"""Clients up to which each has lines of its own in the table of classes."""

FORMULA = re.compile(r"[=+\-@\t\r]")
"""Beginning of a cell that spreadsheets would compute."""


def to_latex(tables: Sequence[Table], names: Mapping[str, str]) -> str:
    """Write tables for the packages booktabs and graphicx, the best in bold.

    Those over which it has no lead have a mark. ``names`` are the methods that are
    kept, and what they are called; all if there is none. A table without any is left
    out.
    """
    found: list[str] = []
    label = LABEL
    for table in tables:
        first, *head = table.headings
        cells = {row[0]: dict(zip(head, row[1:], strict=True)) for row in table.lines}
        rows = {each: cells[each] for each in names or cells if each in cells}
        if not rows:
            continue
        notes = table.caption.splitlines()
        called = [_escape(names.get(each, each)) for each in rows]
        grid = [[_escape(first), *called]]
        for name in head:
            column = {each: row[name] for each, row in rows.items()}
            best, level = _best(name, column, table.numbers.get(name, {}))
            notes += [MARKED] if level and MARKED not in notes else []
            shown = {each: _escape(cell) for each, cell in column.items()}
            shown |= {each: rf"\textbf{{{shown[each]}}}" for each in best}
            shown |= {each: f"{shown[each]}{LEVEL}" for each in level}
            grid.append([_escape(name), *shown.values()])
        title, *body = [" & ".join(row) + r" \\" for row in zip(*grid, strict=True)]
        found += [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_escape(table.title)}}}",
            rf"\label{{{label}}}",
            FIT,
            rf"\begin{{tabular}}{{l{'r' * len(head)}}}",
            *(r"\toprule", title, r"\midrule", *body, r"\bottomrule"),
            r"\end{tabular}}",
            *(rf"\par\footnotesize {_escape(line)}" for line in notes),
            r"\end{table}",
            "",
        ]
        label = f"{LABEL}-{found.count('') + 1}"
    return "\n".join(found)


def _best(
    heading: str, cells: Mapping[str, str], numbers: Mapping[str, Seeds]
) -> tuple[set[str], set[str]]:
    """Return the methods with the best mean, and others over which it has no lead.

    Oracle, which knows the clusters, is no rival. None where seeds differ.
    """
    rivals = [
        name
        for name in numbers
        if re.match(r"-?\d", cells.get(name, "")) and not re.match(r"oracle\b", name)
    ]
    if len(rivals) < 2 or len({frozenset(numbers[each]) for each in rivals}) > 1:
        return set(), set()
    sign = -1 if heading in LOWER else 1
    means = {name: mean_of_known(numbers[name].values()) or 0 for name in rivals}
    best = max(rivals, key=lambda name: sign * means[name])
    equal = {name for name in rivals if cells[name] == cells[best]}
    leads = leads_over({name: numbers[name] for name in rivals}, best)
    level = {name for name, lead in leads.items() if lead.p and not lead.holds}
    return equal, level - equal


def _escape(text: str) -> str:
    return "".join(LATEX.get(each, each) for each in text)


def _cell(value: object) -> object:
    """Return a text as one that no spreadsheet computes, by an apostrophe before it."""
    formula = isinstance(value, str) and FORMULA.match(value)
    return f"'{value}" if formula else value


def to_frame(streams: Iterable[tuple[str, Runs, Scores]]) -> pd.DataFrame:
    """Return a row for each run: its stream, method, seed, score and folder.

    Accuracies are shares, bytes are bytes, times seconds. No text is a formula.
    """
    records: list[Score] = [
        {"stream": stream, "method": label, **each, "folder": str(run.folder)}
        for stream, runs, scores in streams
        for label, row in scores.items()
        for run, each in zip(runs[label], row, strict=True)
    ]
    cells = [{key: _cell(each[key]) for key in each} for each in records]
    # Whole numbers stay whole.
    return pd.DataFrame(cells, dtype=object).drop(columns="rival", errors="ignore")


def to_csv(frame: pd.DataFrame) -> str:
    """Write the scores of runs; empty is what was not measured, and what has no run."""
    return "" if frame.empty else frame.to_csv(index=False, lineterminator="\n")


def class_table(run: SavedRun) -> Table | None:
    """Return the results of each class in the last test, by cluster and by client.

    None without `per_class`.
    """
    rows = [row for row in run.tests if row.get("per_class")]
    last = [row for row in rows if row["round"] == rows[-1]["round"]]
    found = run.resolved["dataset"].get("names") or []
    names = found or [*range(len(last[0]["per_class"]) if last else 0)]
    # Files from elsewhere may have anything there.
    counted = {len(row["per_class"]) for row in last}
    if not isinstance(names, list) or counted != {len(names)}:
        return None
    kinds = ["cluster", "client"] if len(last) <= MOST_CLIENTS else ["cluster"]
    parts = [
        pd.DataFrame(row["per_class"]).assign(who=f"{kind} {row[kind]}", label=names)
        for kind in kinds
        for row in sorted(last, key=lambda row: client_order(row[kind]))
    ]
    total = pd.concat(parts).groupby(["who", "label"], sort=False).sum()
    shares = {
        "recall": total.correct / total.support,
        "precision": total.correct / total.predicted,
        "F1": 2 * total.correct / (total.support + total.predicted),
    }
    written = (100 * pd.DataFrame(shares)).map("{:.1f}".format).replace("nan", "-")
    written.insert(0, "test samples", total.support.astype(str))
    title = f"classes in the test of round {last[0]['round']}, in %"
    headings = ["of", "class", *written]
    lines = [list(map(str, each)) for each in written.reset_index().to_numpy()]
    return Table(title, headings, lines)
