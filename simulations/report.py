"""One page from saved runs: curves, who moved when, failures, and how to repeat it.

    python -m simulations.report outputs/2026-01-31/12-00-00-sweep/*
    python -m simulations.report /tmp/a-run --output a-run.html --figures a-run-figures

The page needs nothing beside itself: no network, no script. ``--figures`` names a
folder for the pictures, as PDF and SVG. Exit codes as `simulations.run`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from cfl_flower.analysis.comparison import require_one_stream
from cfl_flower.analysis.drift_metrics import Score, make_reference, score
from cfl_flower.analysis.reference import find_reference_runs
from cfl_flower.analysis.tables import (
    ACCURACIES,
    CLUSTERS,
    COSTS,
    LED,
    cell,
    write_leads,
)
from cfl_flower.errors import ConfigError
from cfl_flower.files import write_atomically
from cfl_flower.types import Json
from simulations import figures
from simulations.plotting import to_svg
from simulations.saved import SavedRun, load_run, name_runs
from simulations.terminal import Parser, command, writable

ROUND_COLUMNS = (
    *("round", "accuracy", "accuracy_mean", "loss", "num_clusters", "drifted", "moved"),
    *("reclustered", "participants", "bytes_up", "bytes_down", "seconds"),
    *("virtual_seconds", "heterogeneity", "ari"),
)


@dataclass(frozen=True)
class Picture:
    """A figure of the page, and the name of its file."""

    name: str
    caption: str
    figure: Figure

    @property
    def svg(self) -> Markup:
        """The figure as an element that says what it shows."""
        svg = to_svg(self.figure, self.name)
        label = Markup.escape(self.caption)
        return Markup(svg.replace("<svg", f'<svg role="img" aria-label="{label}"', 1))


MEASURED = {
    "num_clusters": ("clusters", "Clusters with members."),
    "ari": ("adjusted Rand index", "Agreement of the clusters with the true concepts."),
    "heterogeneity": ("mean client distance", "Distance of clients within clusters."),
    "virtual_seconds": ("virtual seconds", "Time of the simulated devices."),
}
"""What has a curve where it was measured: label and caption."""


def common_pictures(runs: figures.Runs) -> list[Picture]:
    """Return the figures that compare all runs; what none measured has none."""
    caption = "Accuracy over all samples. Dashed lines: the data changed."
    found = [
        Picture("accuracy", caption, figures.accuracy(runs)),
        Picture("traffic", "Accuracy over the bytes sent.", figures.traffic(runs)),
    ]
    for key, (label, caption) in MEASURED.items():
        if any(len(run.series(key)[0]) for run in runs.values()):
            found.append(Picture(key, caption, figures.curves(runs, key, label)))
    return found


def own_pictures(name: str, run: SavedRun) -> list[Picture]:
    """Return the figures of one run; what was not measured has none."""
    count = sum(len(row["failures"]) for row in run.rounds)
    wanted = [
        (run.tests, figures.client_accuracy, "accuracy of each client in each round"),
        (run.tests, figures.membership, "the cluster of each client, by colour"),
        (run.rounds, figures.cluster_sizes, "clients in each cluster"),
        (
            run.distances is not None,
            figures.class_distances,
            "distances of the classifiers that were clustered last, class by class; "
            "white where a client has no samples",
        ),
        (count, figures.failures, f"{count} failed results, by reason"),
    ]
    return [
        Picture(f"{_slug(name)}-{_slug(draw.__name__)}", f"{name}: {what}.", draw(run))
        for there, draw, what in wanted
        if there
    ]


COLUMNS = (*ACCURACIES, *COSTS, *CLUSTERS)


def score_runs(runs: figures.Runs) -> tuple[dict[str, Score], dict[str, str | None]]:
    """Return each run's score, and the name of the run that it is compared with."""
    names = list(runs)
    places = find_reference_runs([run.config for run in runs.values()])
    references = dict(zip(names, places, strict=True))
    scores = {}
    for name, run in runs.items():
        place = references[name]
        mark = None if place is None else make_reference(runs[names[place]].rounds)
        scores[name] = score(run.rounds, run.drifts, mark, run.tests)
    return scores, {n: None if i is None else names[i] for n, i in references.items()}


def score_rows(runs: figures.Runs) -> list[list[str]]:
    """Return the lines of the comparison: a name, its numbers, its failures."""
    scores, _ = score_runs(runs)
    return [
        [
            name,
            *(cell([scores[name]], column) for column in COLUMNS),
            str(sum(len(row["failures"]) for row in run.rounds)),
        ]
        for name, run in runs.items()
    ]


def seed_rows(runs: figures.Runs) -> list[list[str]]:
    """Return the lines of methods with several seeds: means, and leads over fedavg.

    Seeds of a method are runs that differ in nothing else; leads are paired by seed.
    """
    scores, references = score_runs(runs)
    groups: dict[str, list[str]] = {}
    for name, run in runs.items():
        same = {k: v for k, v in run.config.items() if k not in ("seed", "output_dir")}
        groups.setdefault(json.dumps(same, sort_keys=True), []).append(name)
    rows = []
    for names in (names for names in groups.values() if len(names) > 1):
        means = [cell([scores[name] for name in names], column) for column in LED]
        others = [(scores[name], references[name]) for name in names]
        pairs = [(one, scores[n]) for one, n in others if n and scores[n] is not one]
        title = f"{runs[names[0]].strategy}: {', '.join(names)}"
        rows.append([title, *means, *write_leads(pairs)])
    return rows


def _cell(value: Json) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _to_yaml(config: Mapping[str, Json]) -> str:
    return yaml.safe_dump(dict(config), sort_keys=False)


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def render(runs: Mapping[str, SavedRun]) -> tuple[str, list[Picture]]:
    """Return the page and its pictures; runs on different data are a `ConfigError`."""
    require_one_stream(
        {name: run.config for name, run in runs.items()},
        {name: run.data for name, run in runs.items()},
    )
    first = next(iter(runs.values())).config
    names = {key: first[key]["name"] for key in ("dataset", "drift", "partition")}
    begun = {name: run for name, run in runs.items() if run.rounds}
    common = common_pictures(begun) if begun else []
    own = [(name, run, own_pictures(name, run)) for name, run in runs.items()]
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {"slug": _slug, "number": _cell, "yaml": _to_yaml}
    page = environment.get_template("report.html").render(
        title=f"{names['dataset']} under drift {names['drift']}: {', '.join(runs)}",
        subtitle=f"{first['clients']} clients, partition {names['partition']}, "
        f"{first['participants']} participants in each of {first['rounds']} rounds.",
        columns=["run", *(heading for heading, *_ in COLUMNS), "failures"],
        table=score_rows(begun),
        seeds=seed_rows(begun),
        figures=common,
        round_columns=ROUND_COLUMNS,
        runs=own,
    )
    return page, common + [picture for *_, pictures in own for picture in pictures]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line, or raise a `ConfigError`."""
    parser = Parser("report", __doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--output", type=Path, default=Path("report.html"))
    parser.add_argument("--figures", type=Path, help="a folder for PDF and SVG files")
    return parser.parse_args(arguments)


def write(
    page: str, pictures: Sequence[Picture], output: Path, folder: Path | None
) -> None:
    """Write the page, and pictures if there is a folder, or raise a `ConfigError`."""
    if output.is_dir():
        raise ConfigError(f"--output={output} is a folder; name a file in it")
    if folder:
        with writable("--figures", folder, "name a folder of your own"):
            folder.mkdir(parents=True, exist_ok=True)
            for picture in pictures:
                for kind in ("pdf", "svg"):
                    picture.figure.savefig(folder / f"{picture.name}.{kind}")
    with writable("--output", output, "name a file in a folder of your own"):
        output.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(output, page.encode())


@command
def main(arguments: Sequence[str]) -> None:
    """Run the command and return the exit code."""
    asked = parse(arguments)
    saved = [load_run(folder) for folder in asked.runs]
    page, pictures = render(dict(zip(name_runs(saved), saved, strict=True)))
    write(page, pictures, asked.output, asked.figures)
    print(f"saved in {asked.output}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
