"""What the papers published: tables and figures, and how a run's figure is compared.

The data are in published.yaml, with their sources. What the papers show and no run of
`simulations.reproduce` makes is listed there, too, as ``elsewhere``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import yaml

from cfl_flower.analysis.drift_metrics import make_reference, score
from cfl_flower.models import initial_vector
from cfl_flower.runs.reading import Finished
from cfl_flower.settings import require
from cfl_flower.types import Json

PUBLISHED = Path(__file__).with_name("published.yaml")

ELSEWHERE = "elsewhere"
"""The key of what no run of this door makes."""

SPEEDUP = "speed-up"
"""The kind of measure that is a time, against another run's."""

PLAIN = ("heterogeneity", "discrepancy")
"""Distances, which are no shares of anything."""

MEANS = {"last": lambda known: known[-1], "mean": fmean, "median": median}
"""What is made of the values of all rounds."""


@dataclass(frozen=True)
class Cell:
    """One published figure, and what makes it here.

    Attributes
    ----------
    row, method : str
    published : float or None
        As printed; None if the paper has none.
    overrides : list of str
    folder : str
        Where its runs are kept, below `--output`.
    """

    row: str
    method: str
    published: float | None
    overrides: list[str]
    folder: str = ""


@dataclass(frozen=True)
class Published:
    """A table of a paper.

    Attributes
    ----------
    name, title, source : str
    measure : str
        What is compared: ``best`` or ``final``, whose accuracy is in `summary.json`;
        ``last KEY``, ``mean KEY`` or ``median KEY``, of all rounds that have it in
        `rounds.jsonl`; ``bytes``, both ways, relative to the models of a FedAvg of as
        many rounds; or ``speed-up KEY``, how many times sooner than the run that it is
        compared with it stays at that one's last value.
    tolerance : float
        How far a figure may be that counts as reproduced.
    methods : dict of str to list of str
        The overrides of each method.
    columns : list of str
        The methods in the table's order.
    rows : dict
        The overrides and the values of each row, and what a method has beside in it.
    runs : str, optional
        The table that has the same runs, and looks at something else.
    against : str, optional
        What figures are told relative to, seed by seed: a method, of the same row; or
        a table, whose cell has the same row and method.
    """

    name: str
    title: str
    source: str
    measure: str
    tolerance: float
    methods: Mapping[str, list[str]]
    columns: list[str]
    rows: Mapping[str, Mapping[str, Json]]
    runs: str | None = None
    against: str | None = None

    @property
    def folder(self) -> str:
        """Where its runs are kept."""
        return self.runs or self.name

    @property
    def unit(self) -> str:
        """What the figures are."""
        kind, _, key = self.measure.partition(" ")
        if kind == "bytes":
            return "bytes in % of FedAvg's"
        if kind == SPEEDUP:
            return f"times as fast as {self.against} to its last {key}"
        what = self.measure if key in PLAIN else f"accuracy in %, {self.measure}"
        return f"{what}, less that of {self.against}" if self.against else what

    @property
    def decimals(self) -> int:
        """With how many a figure is printed."""
        kind, _, key = self.measure.partition(" ")
        return 2 if kind == SPEEDUP or key in PLAIN else 1

    def value(self, run: Finished, mark: Finished | None = None) -> float | None:
        """Return what is compared of a run, relative to another one if there is one.

        Returns
        -------
        float or None
            Shares in percent; None if it never became as good as the other one.
        """
        kind, _, key = self.measure.partition(" ")
        if mark is None:
            return self._figure(run)
        if kind == SPEEDUP:
            return score(
                _curve(run, key), (), make_reference(_curve(mark, key))
            ).speedup
        return self._figure(run) - self._figure(mark)

    def _figure(self, run: Finished) -> float:
        """Return what is compared of one run alone."""
        kind, _, key = self.measure.partition(" ")
        if kind == "bytes":
            return _share_of_bytes(run)
        if not key:
            return 100 * float(run.summary[kind]["accuracy"])
        found = float(MEANS[kind](_values(run, key)))
        return found if key in PLAIN else 100 * found

    def cells(self, rows: Sequence[str], methods: Sequence[str]) -> list[Cell]:
        """Return the cells of the methods, and of the rows asked for.

        A row is asked for by its name, or with others by how their names start.

        Raises
        ------
        ConfigError
            If one is not there.
        """
        starts = tuple(each for each in rows if each not in self.rows)
        found = [
            self.cell(name, method)
            for name in self.rows
            for method in self.columns
            if (not rows or name in rows or name.startswith(starts))
            and (not methods or method in methods)
        ]
        known = f"rows {', '.join(self.rows)} and methods {', '.join(self.columns)}"
        unknown = [each for each in methods if each not in self.columns]
        unknown += [
            each
            for each in rows
            if not any(name.startswith(each) for name in self.rows)
        ]
        require(not unknown, "--rows or --methods", unknown, known)
        return found

    def cell(self, row: str, method: str) -> Cell:
        """Return one cell; a method that is no column has no published figure."""
        values = dict(zip(self.columns, self.rows[row]["values"], strict=True))
        overrides = self._overrides(self.rows[row], method)
        return Cell(row, method, values.get(method), overrides, self.folder)

    def mark(self, cell: Cell, tables: Mapping[str, Published]) -> Cell | None:
        """Return the cell that another one is compared with."""
        if self.against is None:
            return None
        if self.against in self.methods:
            return self.cell(cell.row, self.against)
        return tables[self.against].cell(cell.row, cell.method)

    def _overrides(self, row: Mapping[str, Json], method: str) -> list[str]:
        """Return what makes a cell; a row can have its own settings of a method."""
        own = row.get("methods", {}).get(method, [])
        return [*row["overrides"], *self.methods[method], *own]


def _values(run: Finished, key: str) -> list[float]:
    """Return what was measured in the rounds that measured it."""
    return [row[key] for row in run.rounds if row.get(key) is not None]


def _curve(run: Finished, key: str) -> list[dict[str, Json]]:
    """Return the rounds with this as their accuracy."""
    return [{**row, "accuracy": row.get(key)} for row in run.rounds]


def _share_of_bytes(run: Finished) -> float:
    """Return the bytes in percent of a FedAvg's of as many rounds."""
    config, dataset = run.config, run.config.dataset
    own = run.summary["bytes_up"] + run.summary["bytes_down"]
    model = initial_vector(config.model, dataset.shape, dataset.classes, 0)
    exchanges = 2 * config.rounds * config.participants
    return 100 * float(own) / (exchanges * model.nbytes)


def load_published() -> dict[str, Published]:
    """Return all tables by name."""
    found = yaml.safe_load(PUBLISHED.read_text(encoding="utf-8"))
    found.pop(ELSEWHERE, None)
    return {name: Published(name, **table) for name, table in found.items()}


def load_elsewhere() -> dict[str, str]:
    """Return what no run of this door makes, by name, and where it is to be seen."""
    found = yaml.safe_load(PUBLISHED.read_text(encoding="utf-8"))
    return {each["name"]: each["where"] for each in found.get(ELSEWHERE, [])}
