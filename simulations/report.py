"""One page from saved runs: who leads, curves, who moved when, and how to repeat it.

    python -m simulations.report outputs/2026-01-31/12-00-00-compare
    python -m simulations.report /tmp/a-run --output a-run.html --figures a-run-figures

A folder is that of a run, or has runs below it. Seeds of a method share a colour and a
line; different streams of data are tabs. The page needs nothing beside itself, not even
for its charts to tell values. Next to it are its tables for other programs, as CSV with
a line for each run, and as LaTeX; ``--figures`` names a folder for the pictures, as
PDF, SVG and PNG; ``--reference`` the method that leads are over. ``--methods`` and the
options below it are for papers: they say what the pictures and the LaTeX have. Exit
codes as `simulations.run`.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import vl_convert
import yaml
from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from cfl_flower.analysis.baselines import REFERENCE_METHOD
from cfl_flower.analysis.saved import SavedRun, find_runs, load_run
from cfl_flower.analysis.sweeps import sweep_tables
from cfl_flower.environment.files import write_atomically
from cfl_flower.errors import ConfigError
from cfl_flower.settings import require
from simulations.reporting.charts import DARK, INK, slug
from simulations.reporting.figures import (
    COLUMNS,
    Line,
    Picture,
    choose,
    inches_of,
    read_names,
)
from simulations.reporting.sections import Stream, divide, question
from simulations.reporting.written import class_table, to_csv, to_frame, to_latex
from simulations.shell.terminal import Parser, command, writable

PARTS = Path(__file__).parent / "reporting"
"""Folder of the page's template and script."""

BEGINNINGS = (b"\n<!doctype html>", b"stream,method,", rb"\begin{table}")
"""How the page begins, its .csv and its .tex."""


@dataclass(frozen=True)
class Page:
    """A report in its forms."""

    html: str
    csv: str
    latex: str
    pictures: Sequence[Picture]

    def write(
        self, output: Path, figures: Path | None = None, width: str = "double"
    ) -> list[Path]:
        """Write the page with its tables beside it, and its pictures into a folder.

        Returns what was written. Raises `ConfigError` where that is impossible.
        """
        if output.is_dir():
            raise ConfigError(f"--output={output} is a folder; name a file in it")
        ok = output.suffix not in (".csv", ".tex")
        require(ok, "--output", output, "a name that ends in .html")
        paths = [output, output.with_suffix(".csv"), output.with_suffix(".tex")]
        with writable("--output", output, "name a file in a folder of your own"):
            refuse_others(paths)
        if figures:
            with writable("--figures", figures, "name a folder of your own"):
                figures.mkdir(parents=True, exist_ok=True)
                for picture in self.pictures:
                    picture.save(figures, width)
        with writable("--output", output, "name a file in a folder of your own"):
            output.parent.mkdir(parents=True, exist_ok=True)
            texts = (self.html, self.csv, self.latex)
            for path, text in zip(paths, texts, strict=True):
                write_atomically(path, text.encode())
        return paths


def refuse_others(paths: Sequence[Path]) -> None:
    """Raise `ConfigError` if one of a report's paths has a file of something else."""
    for path, begin in zip(paths, BEGINNINGS, strict=True):
        found = path.read_bytes()[: len(begin)] if path.exists() else b""
        allowed = f"another name: {path} is no report's, and would be lost"
        require(found in (b"", begin), "--output", paths[0], allowed)


def render(
    runs: Sequence[SavedRun],
    reference: str = REFERENCE_METHOD,
    methods: Sequence[str] = (),
) -> Page:
    """Return the page of runs; leads are over the method ``reference``.

    Files of pictures and LaTeX are of some ``methods`` (`read_names`), or of all.
    `ConfigError` if the data of runs contradict each other, or nothing can be compared
    with the reference.
    """
    streams = divide(runs, reference)
    environment = Environment(autoescape=True, undefined=StrictUndefined)
    to_yaml = partial(yaml.safe_dump, sort_keys=False)
    environment.filters |= {"slug": slug, "yaml": to_yaml}
    lines = [line for stream in streams for line in stream.lines]
    swept = sweep_tables([run for line in lines for run in line.runs])
    tables = [table for stream in streams for table in stream.tables]
    rows = [name for table in swept for name, *_ in table.lines]
    chosen = read_names(methods, [*(line.label for line in lines), *rows])
    compared = (replace(each, lines=choose(each.lines, chosen)) for each in streams)
    html = environment.from_string(part("report.html")).render(
        title=question(streams),
        streams=streams,
        names=names,
        swept=swept,
        class_table=class_table,
        dark={INK[each]: DARK.get(each, each) for each in INK} | DARK,
        script=script(),
    )
    return Page(
        html,
        to_csv(to_frame((s.title, s.runs, s.scores) for s in streams)),
        to_latex([*tables, *swept], chosen),
        [picture for each in compared for picture in each.pictures],
    )


@cache
def script() -> Markup:
    """Return what a page does in a browser: Vega-Lite with all it needs, and ours."""
    return Markup(vl_convert.javascript_bundle(part("report.js")))


def part(name: str) -> str:
    """Return a part of the page, from a file of a kind that Flower's hub accepts."""
    text = tomllib.loads((PARTS / f"{name}.toml").read_text(encoding="utf-8"))["text"]
    return str(text)


def names(stream: Stream, line: Line) -> Iterator[tuple[str, SavedRun]]:
    """Yield the runs of a method with names that no other run of the page has."""
    place = f", {stream.difference}" if stream.difference else ""
    for run in line.runs:
        seed = f" seed {run.resolved['seed']}" if len(line.runs) > 1 else ""
        yield f"{line.label}{seed}{place}", run


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line, or raise a `ConfigError`."""
    parser = Parser("report", __doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--output", type=Path, default=Path("report.html"))
    parser.add_argument("--figures", type=Path, help="a folder for their files")
    parser.add_argument("--reference", metavar="METHOD", default=REFERENCE_METHOD)
    add = parser.add_argument_group("figures and LaTeX").add_argument
    words = "those that are shown, and what they are called"
    add("--methods", nargs="+", default=[], metavar="METHOD[=NAME]", help=words)
    words = f"of figures: {', '.join(COLUMNS)} (columns) or inches"
    add("--width", default="double", help=words)
    return parser.parse_args(arguments)


@command
def main(arguments: Sequence[str]) -> None:
    """Run the command and return the exit code."""
    asked = parse(arguments)
    inches_of(asked.width)
    folders = [found for folder in asked.runs for found in find_runs(folder)]
    runs = [load_run(folder) for folder in folders]
    if not any(run.rounds for run in runs):
        why = f"{runs[0].folder} has no finished round: {runs[0].failure}"
        raise ConfigError(f"{why}; fix it, and repeat its command")
    page = render(runs, asked.reference, asked.methods)
    paths = page.write(asked.output, asked.figures, asked.width)
    print(f"saved in {', '.join(map(str, paths))}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
