"""Saved runs divided into streams of data, with what a page shows of each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter

from cfl_flower.analysis.baselines import (
    BOUND,
    REFERENCE_METHOD,
    REFERENCES,
    require_reference,
)
from cfl_flower.analysis.comparison import (
    by_stream,
    describe,
    find_failures,
    group_seeds,
    make_tables,
    score_runs,
)
from cfl_flower.analysis.drift_metrics import MEASURED as CHOSEN
from cfl_flower.analysis.drift_metrics import Scores
from cfl_flower.analysis.method_tables import Table
from cfl_flower.analysis.saved import SavedRun
from cfl_flower.analysis.sweeps import name_settings
from cfl_flower.types import Json
from simulations.reporting.charts import PAPER, Chart, slug
from simulations.reporting.curves import curves
from simulations.reporting.figures import Line, Picture
from simulations.reporting.findings import finding
from simulations.reporting.rivers import (
    match_clusters,
    river,
    shares_clusters,
    true_groups,
)


@dataclass(frozen=True)
class Stream:
    """The methods that were run on one stream of data."""

    number: int
    lines: Sequence[Line]
    difference: str = ""
    """Difference from the other streams, in a few words, if there are others."""
    reference: str = REFERENCE_METHOD
    """The method that leads are over."""
    every: Sequence[SavedRun] = ()
    """All runs that there are, some of which do not compare."""

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
        drift = _drift(self.first["drift"]["name"])
        partition = self.first["partition"]["name"]
        return f"{_dataset(self.first)}, {partition}, under {drift}"

    @property
    def subtitle(self) -> str:
        """The sizes of its runs, and whether they end before their data change."""
        sizes = (self.first[key] for key in ("clients", "participants", "rounds"))
        words = "{} clients, {} participants in each of {} rounds".format(*sizes)
        if self.reference and len(self.lines) > 1:
            words += f"; compared with {self.reference}"
        changes = self.lines[0].runs[0].changes
        if changes and changes[0] > self.first["rounds"]:
            words += f"; the drift starts after the last, in round {changes[0]}"
        return words

    @cached_property
    def begun(self) -> list[Line]:
        """The methods with finished rounds, and their runs, whole ones if there are."""
        found = []
        for line in self.lines:
            begun = [run for run in line.runs if run.rounds]
            runs = [run for run in begun if run.complete] or begun
            found += [Line(line.label, runs, line.number)] if runs else []
        return found

    @cached_property
    def runs(self) -> dict[str, Sequence[SavedRun]]:
        """The runs that are as far as any, by their method: the others do not compare.

        A run that was broken off before a drift has its accuracy of before it.
        """
        most = max(1, *(len(run.rounds) for run in self.every))
        found = {
            line.label: [run for run in line.runs if len(run.rounds) == most]
            for line in self.lines
        }
        return {label: runs for label, runs in found.items() if runs}

    @property
    def left_out(self) -> list[str]:
        """Which runs are in no table, and why."""
        kept = [id(run) for runs in self.runs.values() for run in runs]
        return [
            f"{run.folder} ({run.strategy}, {len(run.rounds)} rounds) is in no table: "
            "others have more rounds, or its settings and seed"
            for run in self.every
            if id(run) not in kept
        ]

    @cached_property
    def scores(self) -> Scores:
        """The scores of these runs."""
        return score_runs(self.runs, self.reference)

    @cached_property
    def tables(self) -> list[Table]:
        """The scores, leads and costs of its methods."""
        if not self.begun:
            return []
        data = describe(self.begun[0].runs[0])
        return make_tables(data, self.runs, self.scores, self.reference, self.left_out)

    @cached_property
    def pictures(self) -> list[Picture]:
        """The figures of files that compare its methods, as far as they measured."""
        main = [self.main] if self.begun else []
        return [*main, *self.curves, *self.rivers]

    def _picture(
        self, name: str, caption: str, figure: Chart, title: str = ""
    ) -> Picture:
        where = f"{self.difference} " if self.difference else ""
        return Picture(slug(where + name), caption, figure, title)

    @cached_property
    def main(self) -> Picture:
        """The accuracy of all methods over the rounds."""
        title = "accuracy over all samples"
        chart = curves(self.begun, "accuracy", title, True, 360, PAPER)
        caption = "Accuracy over all samples"
        if self.seeds > 1:
            caption += ", the mean over the seeds"
        if chart.layers[0]["data"]["values"]:
            caption += "; grey lines: the data changed"
        return self._picture("accuracy", f"{caption}.", chart)

    @cached_property
    def rivers(self) -> list[Picture]:
        """The true concepts, and the clusters of each method, of one of its seeds."""
        runs = {line.label: line.runs[0] for line in self.begun if line.runs[0].tests}
        first = next(iter(runs.values()), None)
        if first is None:
            return []
        truth = None if first.on_own_data else true_groups(first)
        found = {
            label: (run, match_clusters(run))
            for label, run in runs.items()
            # One cluster of all, or one for each client, are better said than drawn.
            if shares_clusters(run)
        }
        if not found:
            return []
        if truth is not None and truth.any():
            # The oracle's clusters are these.
            others = [pair for pair in found.items() if pair[1][0].strategy != BOUND]
            found = {"true concepts": (first, truth), **dict(others)}
        return [
            self._picture(
                f"{label} river", f"Clusters: {label}.", river(run, groups), label
            )
            for label, (run, groups) in found.items()
        ]

    @cached_property
    def curves(self) -> list[Picture]:
        """What else was measured, over the rounds."""
        found = []
        for key, (title, caption) in MEASURED.items():
            known = [line for line in self.begun if len(line.series(key)[0])]
            if key == "num_clusters":
                # One for each client is more than the others can be seen beside.
                own = ("local", "local_rounds")
                known = [each for each in known if each.runs[0].strategy not in own]
            if known:
                chart = curves(known, key, title, key in CHOSEN)
                found.append(self._picture(key, caption, chart))
        return found

    @property
    def seeds(self) -> int:
        """The seeds of the method with the most."""
        return max(len(line.runs) for line in self.begun)

    @property
    def failures(self) -> list[str]:
        """How much of each method failed, and which runs are left out."""
        return [*find_failures(self.scores), *self.left_out]

    @cached_property
    def finding(self) -> str:
        """Who leads, and by how much."""
        return finding(self.scores)


MEASURED = {
    "num_clusters": ("clusters", "Clusters with members."),
    "ari": ("adjusted Rand index", "Agreement of the clusters with the true concepts."),
    "heterogeneity": ("mean client distance", "Distance of clients within clusters."),
    "virtual_seconds": ("virtual seconds", "Time of the simulated devices."),
    **{key: (label, f"Chosen: {label}.") for key, label in CHOSEN.items()},
}
"""Measures that have a curve, each with its label and caption."""


def _dataset(resolved: Mapping[str, Json]) -> str:
    """Return the name of a dataset: that of its file, if it is one of a user's own."""
    dataset = resolved["dataset"]
    return str(dataset.get("file") or dataset["name"])


def _drift(name: str) -> str:
    return "no drift" if name == "none" else f"drift {name}"


def divide(runs: Sequence[SavedRun], reference: str = REFERENCE_METHOD) -> list[Stream]:
    """Divide runs into streams of data, and each of them into methods.

    Leads are over the method ``reference``. Raises `ConfigError` if runs of one seed of
    a stream saw different data, or if no run can be compared with the reference.
    """
    require_reference([run.resolved for run in runs], reference)
    # In an order that does not depend on that of the runs.
    found = [some for _, some in sorted(by_stream(runs).items())]
    words = name_settings([some[0] for some in found])
    if len(set(words)) < len(words):
        words = [f"{each} stream {n}".strip() for n, each in enumerate(words, 1)]
    streams = []
    for number, (some, difference) in enumerate(zip(found, words, strict=True), 1):
        groups = group_seeds(some)
        labels = sorted(groups, key=lambda label: _place(groups[label][0], label))
        lines = [Line(label, groups[label], 0) for label in labels]
        streams.append(Stream(number, lines, difference, reference, some))
    return _numbered(streams)


def _place(run: SavedRun, label: str) -> tuple[int, list[tuple[int, str]]]:
    """Return what methods are ordered by on all pages.

    The references come first, oracle last; numbers in labels count as such.
    """
    order = [*REFERENCES, "", BOUND]
    rank = order.index(run.strategy if run.strategy in order else "")
    words = re.split(r"(\d+)", label)
    numbers = [(int(word) if word.isdigit() else 0, word) for word in words]
    return rank, numbers


def _numbered(streams: Sequence[Stream]) -> list[Stream]:
    """Give a method the same number on all streams, whichever of them comes first.

    Methods that others are measured by have the last ones: their lines are grey.
    """
    longest = sorted(streams, key=lambda each: (-len(each.lines), each.title))
    lines = [line for each in longest for line in each.lines]
    lines.sort(key=attrgetter("is_reference"))
    labels = dict.fromkeys(line.label for line in lines)
    numbers = {label: number for number, label in enumerate(labels)}
    found = []
    for each in streams:
        numbered = [replace(line, number=numbers[line.label]) for line in each.lines]
        found.append(replace(each, lines=numbered))
    return found


def question(streams: Sequence[Stream]) -> str:
    """Return what the runs ask, as a title.

    For example ``4 methods under drift regroup on digits, 2 seeds``.
    """
    methods = list(dict.fromkeys(each.label for s in streams for each in s.lines))
    runs = [run for stream in streams for line in stream.lines for run in line.runs]
    drifts = dict.fromkeys(run.resolved["drift"]["name"] for run in runs)
    datasets = dict.fromkeys(_dataset(run.resolved) for run in runs)
    seeds = len({run.resolved["seed"] for run in runs})
    who = methods[0] if len(methods) == 1 else f"{len(methods)} methods"
    often = f", {seeds} seeds" if seeds > 1 else ""
    under = " and ".join(map(_drift, drifts))
    return f"{who} under {under} on {' and '.join(datasets)}{often}"
