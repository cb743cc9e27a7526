"""Saved runs divided into streams of data, with what a page shows of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from markupsafe import Markup
from matplotlib.figure import Figure
from rich.table import Table

from cfl_flower.analysis.comparison import (
    Compared,
    make_tables,
    require_same_data,
    stream_of,
    with_references,
)
from cfl_flower.analysis.leads import find_lead
from cfl_flower.analysis.tables import mean_and_deviation
from cfl_flower.types import Json
from simulations import figures
from simulations.figures import Line
from simulations.plotting import to_svg
from simulations.saved import SavedRun, group_seeds

BOUNDS = ("local", "oracle")
"""Methods that others are measured by: they cannot lead."""


@dataclass(frozen=True)
class Picture:
    """A figure of the page, and the name of its file."""

    name: str
    caption: str
    figure: Figure

    @cached_property
    def svg(self) -> Markup:
        """The figure as an element that says what it shows."""
        svg = to_svg(self.figure, self.name)
        label = Markup.escape(self.caption)
        return Markup(svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1))

    def _repr_svg_(self) -> str:
        """Show it in a notebook."""
        return self.svg


@dataclass(frozen=True)
class Stream:
    """The methods that were run on one stream of data."""

    number: int
    lines: Sequence[Line]

    @property
    def name(self) -> str:
        """The word that its pictures and anchors begin with."""
        return f"stream-{self.number}"

    @cached_property
    def first(self) -> Mapping[str, Json]:
        """The settings of one of its runs."""
        return self.lines[0].runs[0].resolved

    @property
    def title(self) -> str:
        """The data, in a few words."""
        keys = ("dataset", "partition", "drift")
        dataset, partition, drift = (self.first[key]["name"] for key in keys)
        return f"{dataset}, {partition}, {_under(drift)}"

    @property
    def subtitle(self) -> str:
        """The sizes of its runs."""
        sizes = (self.first[key] for key in ("clients", "participants", "rounds"))
        return "{} clients, {} participants in each of {} rounds".format(*sizes)

    @cached_property
    def begun(self) -> list[Line]:
        """The methods with finished rounds, and their runs with some."""
        kept = [(line, [run for run in line.runs if run.rounds]) for line in self.lines]
        return [Line(line.label, runs, line.number) for line, runs in kept if runs]

    @cached_property
    def rows(self) -> dict[str, list[Compared[SavedRun]]]:
        """The runs with finished rounds, each beside its reference."""
        return with_references({line.label: line.runs for line in self.begun})

    @cached_property
    def tables(self) -> list[Table]:
        """The scores, leads and costs of its methods."""
        return make_tables(self.title, self.rows) if self.rows else []

    @cached_property
    def pictures(self) -> list[Picture]:
        """The figures that compare its methods; what none measured has none."""
        suffix = f"-{self.number}" if self.number > 1 else ""
        return [
            Picture(f"{name}{suffix}", caption, figure)
            for name, caption, figure in _common_figures(self.begun)
        ]

    def findings(self) -> Iterator[str]:
        """Yield who leads, by how much, and at what cost, a sentence each."""
        scores = {
            line.label: self.rows[line.label]
            for line in self.begun
            if line.runs[0].strategy not in BOUNDS
        }
        for key, when in (("final", "At the end"), ("mean", "Over all rounds")):
            yield from _who_leads(scores, key, when)
        sent = {name: _megabytes(row) for name, row in self.rows.items()}
        ranked = [
            (name, f"{sent[name]:.1f} MB")
            for name in sorted(sent, key=sent.__getitem__)
            if sent[name]
        ]
        if len({size for _, size in ranked}) > 1:
            (least, less), *_, (most, more) = ranked
            yield (
                f"Of the methods that send models, {least} sent least, {less}; "
                f"{most} sent most, {more}."
            )


def _megabytes(row: Sequence[Compared[SavedRun]]) -> float:
    """Return what a method sent, both ways, the mean over seeds."""
    return fmean(each.score.bytes_up + each.score.bytes_down for each in row) / 1e6


def _who_leads(
    rows: Mapping[str, Sequence[Compared[SavedRun]]], key: str, when: str
) -> Iterator[str]:
    """Yield a sentence on the two best methods by an accuracy that all have."""
    values = {
        name: {each.run.resolved["seed"]: getattr(each.score, key) for each in row}
        for name, row in rows.items()
    }
    if not rows or any(None in each.values() for each in values.values()):
        return
    best, *others = sorted(values, key=lambda name: -fmean(values[name].values()))
    percent = mean_and_deviation(list(values[best].values()), 100, ".1f")
    words = f"{when}, {best} has {percent}% accuracy"
    if others:
        words += ", the most"
        following = values[others[0]]
        pairs = ((one, following.get(seed)) for seed, one in values[best].items())
        if lead := find_lead(pairs):
            words += f"; its lead over {others[0]}, in points: {lead.in_points()}"
    yield f"{words}."


MEASURED = {
    "num_clusters": ("clusters", "Clusters with members."),
    "ari": ("adjusted Rand index", "Agreement of the clusters with the true concepts."),
    "heterogeneity": ("mean client distance", "Distance of clients within clusters."),
    "virtual_seconds": ("virtual seconds", "Time of the simulated devices."),
}
"""What has a curve where it was measured: label and caption."""


def _common_figures(lines: figures.Lines) -> Iterator[tuple[str, str, Figure]]:
    if not lines:
        return
    several = any(len(line.runs) > 1 for line in lines)
    band = " The band is a standard deviation over the seeds." if several else ""
    caption = "Accuracy over all samples; shaded: the data changed."
    yield "accuracy", caption + band, figures.accuracy(lines)
    if senders := [
        line for line in lines if any(line.sent(line.series("accuracy")[0]))
    ]:
        caption = "Accuracy over the bytes sent." + band
        yield "traffic", caption, figures.traffic(senders)
    for key, (label, caption) in MEASURED.items():
        known = [line for line in lines if len(line.series(key)[0])]
        if known:
            yield key, caption + band, figures.curves(known, key, label)


def _under(*drifts: str) -> str:
    words = ["no drift" if each == "none" else f"drift {each}" for each in drifts]
    return f"under {' and '.join(words)}"


def divide(runs: Iterable[SavedRun]) -> list[Stream]:
    """Divide runs into streams of data, and each of them into methods.

    Raises `ConfigError` if runs of one seed of a stream saw different data.
    """
    found: dict[str, list[SavedRun]] = {}
    for run in runs:
        found.setdefault(stream_of(run.resolved), []).append(run)
    numbers: dict[str, int] = {}
    streams = []
    for number, some in enumerate(found.values(), 1):
        seeds = {str(run.folder): int(run.resolved["seed"]) for run in some}
        data = {str(run.folder): run.data for run in some}
        require_same_data({name: (seeds[name], data[name]) for name in seeds})
        lines = [
            Line(label, group, numbers.setdefault(label, len(numbers)))
            for label, group in group_seeds(some).items()
        ]
        streams.append(Stream(number, lines))
    return streams


def question(streams: Sequence[Stream]) -> str:
    """Return what the runs ask, as a title.

    For example ``4 methods under drift regroup on digits, 2 seeds``.
    """
    methods = list(dict.fromkeys(each.label for s in streams for each in s.lines))
    runs = [run for stream in streams for line in stream.lines for run in line.runs]
    named = {
        key: list(dict.fromkeys(str(run.resolved[key]["name"]) for run in runs))
        for key in ("drift", "dataset")
    }
    seeds = len({run.resolved["seed"] for run in runs})
    who = methods[0] if len(methods) == 1 else f"{len(methods)} methods"
    often = f", {seeds} seeds" if seeds > 1 else ""
    return f"{who} {_under(*named['drift'])} on {' and '.join(named['dataset'])}{often}"
