"""The tables and figures of the papers, and how a run's figure is compared with them.

The data are in published.yaml, with their sources; tests say that they fit together.
What the papers show and
`simulations.reproduce` does not run is listed there, too, as ``elsewhere``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from statistics import fmean, median
from typing import TYPE_CHECKING, Annotated, Any

import yaml
from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

from cfl_flower.analysis.drift_metrics import score
from cfl_flower.settings import require
from cfl_flower.types import Json

if TYPE_CHECKING:
    from cfl_flower.analysis.saved import SavedRun

PUBLISHED = Path(__file__).with_name("published.yaml")
ELSEWHERE = "elsewhere"
BESIDE = {"fedavg_ft": ["strategy=fedavg_ft"], "fedavg_ls": ["strategy=fedavg_ls"]}
"""References that no paper has, run beside the methods of a table if they are named."""
INHERITED = ("overrides", "methods", "columns", "against")
"""Fields that a table takes from the one that it is ``like``, or whose ``runs`` it
shares."""

SPEEDUP = "speed-up"
CHOSEN = "chosen"
DISTANCES = ("heterogeneity", "discrepancy")
"""Measures that are not shares."""

AVERAGES = {"last": lambda known: known[-1], "mean": fmean, "median": median}
AVERAGES[CHOSEN] = fmean
"""Functions from the values of all rounds, or of the chosen one, to one."""


def _flatten(overrides: Any) -> list[str]:
    """Unpack lists within lists, as YAML's aliases leave them."""
    found: list[str] = []
    for each in overrides:
        found += _flatten(each) if isinstance(each, list) else [each]
    return found


KNOWN_KEYS = ConfigDict(extra="forbid")
Overrides = Annotated[list[str], BeforeValidator(_flatten)]
Measure = Annotated[
    str, Field(pattern=rf"^(final|best|bytes|({'|'.join(AVERAGES)}|{SPEEDUP}) \w+)$")
]


def suffix(scale: float) -> str:
    """Return how names of runs of a part of the rounds end.

    Examples
    --------
    >>> suffix(0.3), suffix(1.0)
    ('-x0.3', '')
    """
    return "" if scale == 1 else f"-x{scale:g}"


@dataclass(frozen=True)
class Cell:
    """One published figure, and what reproduces it."""

    row: str
    method: str
    published: float | None
    """None if the paper has none."""
    overrides: list[str]
    folder: str = ""
    """Folder of its runs, below `--output`."""
    kinds: dict[str, list[str]] = field(default_factory=dict)
    """Further overrides by kind of data, where the figure is a mean over kinds."""

    @property
    def parts(self) -> list[Cell]:
        """The cells whose figures are averaged: one for each kind, or itself."""
        return [
            replace(self, row=f"{self.row}_{kind}", overrides=self.overrides + own)
            for kind, own in self.kinds.items()
        ] or [self]


@dataclass(frozen=True, config=KNOWN_KEYS)
class Row:
    """A row of a table."""

    values: list[float | None]
    """Published values, in the order of the columns."""
    overrides: Overrides = field(default_factory=list)
    methods: dict[str, Overrides] = field(default_factory=dict)
    """Further overrides of some methods."""
    kinds: dict[str, Overrides] = field(default_factory=dict)
    """Overrides by kind of data, if its figures are means over kinds."""


@dataclass(frozen=True, config=KNOWN_KEYS)
class PublishedTable:
    """A table of a paper."""

    name: str
    title: str
    source: str
    measure: Measure
    """Compared measure: ``final``, the accuracy in `summary.json`; ``best``, that of
    the best round after as many as everyone needs to take part once, as the code of
    FlexCFL has it, which counts no round before all clients were included; ``last
    KEY``, ``mean KEY`` or ``median KEY``, of all rounds that have it in `rounds.jsonl`;
    ``chosen KEY``, that of the round with the best validation accuracy;
    ``bytes``, both ways, relative to the models of a FedAvg of as many rounds; or
    ``speed-up KEY``, how many times sooner than the reference run it stays at the
    reference's last value."""
    tolerance: Annotated[float, Field(gt=0)]
    """The largest difference that counts as reproduced."""
    methods: dict[str, Overrides]
    """The overrides of each method."""
    columns: list[str]
    """The methods that have figures; others only serve as references."""
    rows: dict[str, Row]
    """Rows by name."""
    overrides: Overrides = field(default_factory=list)
    """Those of all rows."""
    runs: str | None = None
    """The table whose runs these are, measured in another way."""
    against: str | None = None
    """The reference runs: a method of this table, or another table."""
    state: str = "not run"
    """State of the result here; docs/results/README.md says what each means."""
    evidence: str = ""
    """Evidence of the state."""

    @property
    def folder(self) -> str:
        """Where its runs are kept."""
        return self.runs or self.name

    @cached_property
    def kind(self) -> str:
        """What is done with the values of a run."""
        return self.measure.partition(" ")[0]

    @cached_property
    def key(self) -> str:
        """Which values these are, if not a summary's."""
        return self.measure.partition(" ")[2]

    @property
    def unit(self) -> str:
        """What the figures are."""
        if self.kind == "bytes":
            return "bytes in % of FedAvg's"
        if self.kind == SPEEDUP:
            return f"times as fast as {self.against} to its last {self.key}"
        what = "" if self.key in DISTANCES else "accuracy in %, "
        less = f", less that of {self.against}" if self.against else ""
        return f"{what}{self.measure}{less}"

    @property
    def is_share(self) -> bool:
        """Whether the figures are accuracies, or, `against` others, differences."""
        return self.kind not in ("bytes", SPEEDUP) and self.key not in DISTANCES

    @property
    def decimals(self) -> int:
        """With how many a figure is printed."""
        return 2 if self.kind == SPEEDUP or self.key in DISTANCES else 1

    def value(self, *runs: SavedRun) -> float | None:
        """Return the figure of runs, relative to their reference if they have one.

        Shares are in percent; None if it never became as good as the reference.
        """
        if self.against is None:
            return fmean(map(self._figure, runs))
        run, reference = runs
        if self.kind == SPEEDUP:
            return score(self._curve(run), (), self._curve(reference))["speedup"]
        return self._figure(run) - self._figure(reference)

    def _figure(self, run: SavedRun) -> float:
        if self.kind == "bytes":
            return _share_of_bytes(run)
        if self.kind == "best":
            return 100 * _best(run)
        if not self.key:
            return 100 * float(run.summary[self.kind]["accuracy"])
        rows = self.measured(run)
        if self.kind == CHOSEN:
            rows = [max(rows, key=itemgetter("validation_accuracy"))]
        known = [row[self.key] for row in rows]
        found = float(AVERAGES[self.kind](known))
        return found if self.key in DISTANCES else 100 * found

    def measured(self, run: SavedRun) -> list[Mapping[str, Json]]:
        """Return the rounds that have what the figure is of: all, if it is of a run."""
        return [r for r in run.rounds if not self.key or r.get(self.key) is not None]

    def _curve(self, run: SavedRun) -> list[dict[str, Json]]:
        """Return the rounds with the values as their accuracy."""
        return [{**row, "accuracy": row.get(self.key)} for row in run.rounds]

    def cells(self, rows: Sequence[str], methods: Sequence[str]) -> list[Cell]:
        """Return the cells of some methods and rows, of all if none are named.

        A row is selected by its name, or several by the beginning of their names. One
        that is unknown is a `ConfigError`.
        """

        def selected(name: str, begin: str) -> bool:
            return name == begin if begin in self.rows else name.startswith(begin)

        columns = [*self.columns, *(each for each in BESIDE if each in methods)]
        unknown = [each for each in methods if each not in columns]
        unknown += [
            each for each in rows if not any(selected(name, each) for name in self.rows)
        ]
        names = ", ".join([*self.columns, *BESIDE])
        known = f"rows {', '.join(self.rows)} and methods {names}"
        require(not unknown, "--rows or --methods", unknown, known)
        return [
            self.cell(name, method)
            for name in self.rows
            if not rows or any(selected(name, each) for each in rows)
            for method in columns
            if not methods or method in methods
        ]

    def cell(self, row: str, method: str) -> Cell:
        """Return one cell; a method that is no column has no published figure."""
        own = self.rows[row]
        values = dict(zip(self.columns, own.values, strict=True))
        overrides = [
            *self.overrides,
            *own.overrides,
            *(BESIDE | self.methods)[method],
            *own.methods.get(method, []),
        ]
        published = values.get(method)
        return Cell(row, method, published, overrides, self.folder, own.kinds)

    def reference(
        self, cell: Cell, tables: Mapping[str, PublishedTable]
    ) -> Cell | None:
        """Return the cell that another one is compared with."""
        if self.against is None:
            return None
        if self.against in self.methods:
            return self.cell(cell.row, self.against)
        return tables[self.against].cell(cell.row, cell.method)


def _share_of_bytes(run: SavedRun) -> float:
    """Return the bytes in percent of a FedAvg's of as many rounds."""
    # With torch, of which the list has no need.
    from cfl_flower.models import build_model

    dataset, kind = run.build("dataset", "model")
    own = run.summary["bytes_up"] + run.summary["bytes_down"]
    model = build_model(kind, dataset.shape, dataset.classes, 0).vector
    exchanges: int = 2 * run.resolved["rounds"] * run.resolved["participants"]
    return 100 * float(own) / (exchanges * model.nbytes)


def _best(run: SavedRun) -> float:
    """Return the best accuracy after the rounds that everyone needs to take part once.

    Of a run that has no more rounds, that of the last.
    """
    curve = {r["round"]: r["accuracy"] for r in run.rounds if r["accuracy"] is not None}
    first = math.ceil(run.resolved["clients"] / run.resolved["participants"])
    later = [accuracy for t, accuracy in curve.items() if t > first]
    return float(max(later, default=curve[max(curve)]))


def load_tables() -> dict[str, PublishedTable]:
    """Return all tables by name."""
    found: dict[str, dict[str, Json]] = {}
    read = _read()
    read.pop(ELSEWHERE, None)
    for name, own in read.items():
        base = found.get(own.pop("like", own.get("runs")), {})
        rows = {
            row: {
                **base.get("rows", {}).get(row, {}),
                **(entry if isinstance(entry, dict) else {"values": entry}),
            }
            for row, entry in own["rows"].items()
        }
        inherited = {key: base[key] for key in INHERITED if key in base}
        found[name] = {**inherited, **own, "rows": rows}
    return {name: PublishedTable(name, **table) for name, table in found.items()}


@dataclass(frozen=True, config=KNOWN_KEYS)
class Elsewhere:
    """What is not reproduced by a run: where to see it, and how it stands here."""

    name: str
    where: str
    state: str = "not run"
    evidence: str = ""


def load_elsewhere() -> dict[str, Elsewhere]:
    """Return what is not reproduced by a run, by name."""
    return {each["name"]: Elsewhere(**each) for each in _read().get(ELSEWHERE, [])}


def _read() -> dict[str, Any]:
    # The loader in C, where there is one, takes a tenth of the time.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return dict(yaml.load(PUBLISHED.read_text(encoding="utf-8"), loader))
