"""The Python interface: run, compare and load, for scripts and notebooks.

    import cfl_flower as cfl

    run = cfl.run(strategy="fielding", rounds=20)
    run.rounds[["round", "accuracy", "num_clusters"]]
    cfl.compare(strategy=["fedavg", "fielding"], seeds=3)

Settings are keyword arguments with two underscores for a dot
(``strategy__threshold=0.5``), or Hydra's overrides as strings
(``"strategy.threshold=0.5"``). Bad input is a `ConfigError` before any training.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import pandas as pd
import yaml
from markupsafe import Markup

from cfl_flower.analysis.baselines import REFERENCE_METHOD
from cfl_flower.analysis.drift_metrics import MEASURED
from cfl_flower.analysis.method_tables import Table
from cfl_flower.analysis.saved import SavedRun, find_runs, load_run
from cfl_flower.analysis.sweeps import sweep_tables
from cfl_flower.building import locate
from cfl_flower.config.composition import compose_plain
from cfl_flower.config.overrides import quoted
from cfl_flower.environment.plugins import conf_folders, targets
from cfl_flower.errors import ConfigError
from cfl_flower.runs.console import Verbosity, at_verbosity, verbosity
from cfl_flower.settings import Count, checked, plain, require
from cfl_flower.types import Json
from simulations import run as run_command
from simulations.batch.jobs import at_once, carry_out
from simulations.compare import plan_jobs
from simulations.report import render
from simulations.reporting.curves import curves
from simulations.reporting.figures import Picture, choose, read_names
from simulations.reporting.sections import Stream, divide, question
from simulations.reporting.written import to_frame

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Comparison", "Run", "compare", "load", "run"]

TURN = RLock()
"""Held by the thread that runs: torch's random numbers, the environment and what new
processes import are those of the whole process. A run has all cores anyway."""


@dataclass(frozen=True, repr=False)
class Run:
    """A run in its folder, finished or not."""

    saved: SavedRun

    def __repr__(self) -> str:
        """Say which run it is, and how far it is."""
        done = len(self.saved.rounds)
        total = self.settings["rounds"]
        return f"Run({str(self.folder)!r}: {self.saved.strategy}, round {done}/{total})"

    @property
    def folder(self) -> Path:
        """Where its files are."""
        return self.saved.folder

    @property
    def settings(self) -> Mapping[str, Json]:
        """The resolved configuration."""
        return self.saved.resolved

    @property
    def drifts(self) -> list[int]:
        """The rounds at whose start the data changed."""
        return self.saved.drifts

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """What was measured, a row per round, as in `rounds.jsonl`."""
        return pd.DataFrame(list(self.saved.rounds))

    @cached_property
    def clients(self) -> pd.DataFrame:
        """The tests of the clients, a row per client and round."""
        return pd.DataFrame(list(self.saved.tests))

    @property
    def summary(self) -> Mapping[str, Json]:
        """What `summary.json` has; nothing for an unfinished run."""
        return self.saved.summary

    def model(self, cluster: int | None = None) -> nn.Module:
        """Return the network of a cluster with its model, in evaluation mode.

        ``cluster`` may be left out if only one has members; `ConfigError` if it does
        not exist, or the method keeps no models of use at the server. What ``export``
        writes is the same.
        """
        # torch is there after a run, but not to read one.
        from simulations.export import load_module  # noqa: PLC0415

        return load_module(self.saved, cluster)

    def plot(self, key: str = "accuracy") -> Picture:
        """Draw a column of `rounds` over the rounds, the drifts shaded."""
        return _plot(self._stream, key)

    def resume(self, *overrides: str, **settings: object) -> Run:
        """Go on with it, for example to more ``rounds``; return it with these.

        A folder decides no import: `ConfigError` if it names a class of a package that
        this process does not allow (`cfl_flower.environment.plugins`).
        """
        composed = compose_plain(self.saved.overrides, own_parts=False)
        for path in targets(composed.settings):
            locate(path)
        place = {"output_dir": self.folder.absolute(), "resume": True}
        asked: dict[str, Any] = {**settings, **place}
        return run(*self.saved.overrides, *overrides, **asked)

    @checked
    def report(self, output: str | Path) -> list[Path]:
        """Write a page on it, with its tables beside it; return the paths."""
        return render([self.saved]).write(Path(output))

    @cached_property
    def _stream(self) -> Stream:
        (stream,) = divide([self.saved])
        return stream

    def _repr_html_(self) -> str:
        """Show its scores in a notebook."""
        return _to_html(question([self._stream]), [self._stream])


@dataclass(frozen=True, repr=False)
class Comparison:
    """Runs of several methods, seeds or streams of data."""

    runs: Sequence[Run]
    failures: Mapping[str, str]
    """Why runs failed, by their folder."""
    reference: str = REFERENCE_METHOD
    """The method that leads are over."""

    def __repr__(self) -> str:
        """Say what is compared, and how many runs failed."""
        asked = question(self.streams)
        failed = len(self.failures)
        return f"Comparison({asked}: {len(self.runs)} runs, {failed} failed)"

    @cached_property
    def streams(self) -> list[Stream]:
        """The methods on each stream of data."""
        return divide([run.saved for run in self.runs], self.reference)

    @cached_property
    def scores(self) -> pd.DataFrame:
        """The scores of the runs, a row each: the glossary has the columns."""
        found = to_frame((each.title, each.runs, each.scores) for each in self.streams)
        return found.infer_objects()

    @property
    def tables(self) -> list[pd.DataFrame]:
        """The tables that `compare` prints, means ± deviations over seeds."""
        found = [table for each in self.streams for table in each.tables]
        lines = [line for each in self.streams for line in each.lines]
        swept = sweep_tables([run for line in lines for run in line.runs])
        return [_shown(table) for table in [*found, *swept]]

    def plot(
        self, key: str = "accuracy", stream: int = 0, methods: Sequence[str] = ()
    ) -> Picture:
        """Draw a column of `rounds`: a line per method, its seeds' mean and spread.

        ``methods`` are those that are shown, by default all; ``"fedavg=FedAvg"`` gives
        one another name.
        """
        return _plot(self.streams[stream], key, methods)

    @checked
    def report(self, output: str | Path) -> list[Path]:
        """Write a page on all runs, with its tables beside it; return the paths."""
        page = render([run.saved for run in self.runs], self.reference)
        return page.write(Path(output))

    def _repr_html_(self) -> str:
        """Show the tables in a notebook."""
        return _to_html(question(self.streams), self.streams)


@checked
def run(*overrides: str, quiet: bool = False, **settings: object) -> Run:
    """Run one configuration and return it; ``quiet`` prints what goes wrong alone.

    Its clients train in processes of this machine, with ``engine="inprocess"`` in this
    one, with ``engine="ray"`` on a SuperLink and Ray of its own. Raises `ConfigError`
    before any training, and another `CflError` if the run fails. Runs in several
    threads take turns.
    """
    check_overrides(overrides)
    with TURN, at_verbosity(Verbosity.QUIET if quiet else verbosity()):
        (config,) = run_command.check([*overrides, *to_overrides(settings)])
        run_command.run(config)
    return Run(load_run(Path(config.output_dir)))


@checked
def compare(
    *overrides: str,
    seeds: int | Sequence[int] = 1,
    marks: bool = True,
    jobs: Count | None = None,
    reference: str = REFERENCE_METHOD,
    quiet: bool = False,
    **settings: object,
) -> Comparison:
    """Run every combination of the settings that are lists, several at a time.

    A setting that is a list itself, such as ``drift__rounds=[6]``, is one value;
    several of it are a list of lists. ``seeds`` are how many, from 0 on, or which;
    ``marks`` adds fedavg, fedavg_ft, fedavg_ls, local and oracle to measure by;
    leads are over the method ``reference``; ``jobs`` is how many runs go on at a time;
    ``quiet`` shows no progress. As the command, it goes on with what an ``output_dir``
    holds. Raises `ConfigError` before any training; runs that fail later are in
    `failures`.
    """
    remedy = "seeds=[3] for one, seeds=[0, 3] for two, in the place of seed"
    require("seed" not in settings, "seed", settings.get("seed"), remedy)
    check_overrides(overrides)
    numbers = list(range(seeds) if isinstance(seeds, int) else seeds)
    require(bool(numbers), "seeds", seeds, "how many, such as 3, or which: [0, 5]")
    swept = {"seed": numbers, **settings}
    asked = [*overrides, *to_overrides(swept, sweep=True)]
    loud = Verbosity.QUIET if quiet else Verbosity.NORMAL
    with TURN:
        made = plan_jobs(asked, marks, reference)
        most = at_once([job.config for job in made], jobs)
        failures = carry_out(made, most, loud, "compare")
    begun = [Run(load_run(job.folder)) for job in made if job.rounds()]
    return Comparison(begun, failures, reference)


@checked
def load(folder: str | Path, reference: str = REFERENCE_METHOD) -> Run | Comparison:
    """Read a run, or all runs below a folder; `ConfigError` if there is none.

    Leads of several are over the method ``reference``.
    """
    root = Path(folder)
    found = [Run(load_run(path)) for path in find_runs(root)]
    if found[0].folder == root:
        return found[0]
    read = {str(r.folder): r.saved.failure for r in found if r.saved.failure}
    return Comparison(found, read, reference)


def check_overrides(overrides: Sequence[object]) -> None:
    """Raise a `ConfigError` for what stands in the place of an override and is none."""
    for each in overrides:
        text = isinstance(each, str)
        require(text, "override", repr(each), "texts as on the shell, or strategy=...")


def to_overrides(settings: Mapping[str, object], sweep: bool = False) -> list[str]:
    """Write settings in Hydra's grammar; with ``sweep``, lists are values to try.

    Examples
    --------
    >>> to_overrides({"strategy__threshold": 0.5, "drift.rounds": [3, 9]})
    ['strategy.threshold=0.5', 'drift.rounds=[3,9]']
    >>> to_overrides({"strategy": ["fedavg", "ifca"], "resume": True}, sweep=True)
    ['strategy=fedavg,ifca', 'resume=true']
    >>> to_overrides({"drift__rounds": [3], "rounds": [9, 12]}, sweep=True)
    ['drift.rounds=[3]', 'rounds=9,12']
    >>> to_overrides({"drift__rounds": [[3], [3, 9]]}, sweep=True)
    ['drift.rounds=[3],[3,9]']
    """
    found = []
    for name, value in plain(settings).items():
        key = name.replace("__", ".")
        many = [value]
        if sweep and isinstance(value, list | tuple | range):
            lists = all(isinstance(each, list | tuple) for each in value)
            many = list(value) if lists or not _is_list(key) else [value]
        words = ",".join(map(_literal, many))
        found.append(f"{key}={words}")
    return found


def _is_list(key: str) -> bool:
    """Return whether a setting has a list as its value in a file of its group."""
    group, _, name = key.rpartition(".")
    files = (path for each in conf_folders() for path in (each / group).glob("*.yaml"))
    nodes = (yaml.safe_load(path.read_text(encoding="utf-8")) for path in files)
    return any(isinstance(n, dict) and isinstance(n.get(name), list) for n in nodes)


def _literal(value: object) -> str:
    """Write a value in Hydra's grammar."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        inner = (f"{key}:{_literal(each)}" for key, each in value.items())
        return f"{{{','.join(inner)}}}"
    if isinstance(value, list | tuple | range):
        return f"[{','.join(map(_literal, value))}]"
    text = str(value)
    return text if re.fullmatch(r"[A-Za-z_][\w./-]*", text) else quoted(text)


def _plot(stream: Stream, key: str, methods: Sequence[str] = ()) -> Picture:
    names = read_names(methods, [line.label for line in stream.begun])
    lines = choose(stream.begun, names) if names else stream.begun
    rows = [row for line in lines for row in line.runs[0].rounds]
    numbers = {k for row in rows for k, v in row.items() if isinstance(v, int | float)}
    columns = sorted(numbers - {"round"})
    known = [line for line in lines if key in columns and len(line.series(key)[0])]
    if not known:
        raise ConfigError(f"key={key!r} was not measured; use {', '.join(columns)}")
    percent = key.startswith("accuracy") or key in MEASURED
    shown = curves(known, key, key, percent=percent)
    return Picture(key, f"{key}, {stream.title}", shown)


def _shown(table: Table) -> pd.DataFrame:
    frame = pd.DataFrame(table.lines, columns=list(table.headings))
    return frame.set_index(table.headings[0])


def _to_html(title: str, streams: Sequence[Stream]) -> str:
    """Return a heading and the tables of streams, as notebooks show them."""
    parts = [Markup("<h4>{}</h4>").format(title)]
    for stream in streams:
        for table in stream.tables:
            shown = Markup(_shown(table).to_html())  # which escapes its cells
            parts.append(Markup("<p>{}</p>{}").format(table.title, shown))
    return Markup("\n").join(parts)
