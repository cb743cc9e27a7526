"""The ServerApp: config -> strategy -> strategy.start(grid)."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from rich.console import Console

from cfl_flower.callbacks import Checkpointer, Progress, Recorder
from cfl_flower.checkpoint import Checkpoint
from cfl_flower.config import RunConfig, compose_sweep
from cfl_flower.data.stream import Stream
from cfl_flower.errors import CflError, FailedRunsError
from cfl_flower.fleet import Fleet
from cfl_flower.results import RunDirectory, read_lines
from cfl_flower.scorecard import COSTS, caught_up, score, table
from cfl_flower.settings import locate
from cfl_flower.types import Json

app = ServerApp()

ERROR_MARK = "cfl-flower error: "
"""Starts the line that says why a run ended, on every way to the user."""

CONSOLE = "CFL_FLOWER_CONSOLE"
"""Environment variable: a file that gets the run's lines instead of stdout, which
Flower mixes with its own."""

OVERRIDES = "overrides"
"""The run-config key that carries Hydra's overrides."""


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run every run that the overrides describe; compare them if they are many."""
    console = make_console()
    try:
        configs = compose_sweep(str(context.run_config[OVERRIDES]))
        if len(configs) == 1:
            execute(grid, configs[0], console)
        else:
            execute_all(grid, configs, console)
    except CflError as error:
        console.print(f"{ERROR_MARK}{error}", style="red", markup=False, soft_wrap=True)
        raise


def execute_all(grid: Grid, configs: list[RunConfig], console: Console) -> None:
    """Run several configurations, and compare those that complete.

    Raises
    ------
    FailedRunsError
        If one failed, after all others are done.
    """
    reasons = {}
    for config in configs:
        try:
            execute(grid, config, console)
        except CflError as error:
            reasons[config.output_dir] = str(error)
            console.print(f"{config.output_dir} failed: {error}", style="red")
    done = [config for config in configs if config.output_dir not in reasons]
    if done:
        compare(done, console)
    if reasons:
        first = next(iter(reasons))
        raise FailedRunsError(
            f"{len(reasons)} of {len(configs)} runs failed; {first}: {reasons[first]}"
        )


def make_console() -> Console:
    """Return the console of a run; without a terminal, plain lines."""
    if path := os.environ.get(CONSOLE):
        return Console(file=Path(path).open("a", encoding="utf-8"), width=125)
    console = Console(file=sys.stdout)
    return console if console.is_terminal else Console(file=sys.stdout, width=125)


def execute(grid: Grid, config: RunConfig, console: Console) -> None:
    """Run one configuration on a grid, or go on with it from its checkpoint."""
    # Flower's loop logs several lines per round; the progress line says it in one.
    logging.getLogger("flwr").setLevel(logging.WARNING)
    with RunDirectory(config) as directory:
        fleet = Fleet(grid, config)
        fleet.discover()
        stream = open_stream(config) if fleet.simulated else None
        changes = config.timeline.rounds
        if stream and changes and changes[0] > config.rounds:
            console.print(
                f"nothing changes in this run: drift {config.names['drift']} starts at "
                f"round {changes[0]}, after the last of {config.rounds}",
                style="yellow",
            )
        checkpoint = Checkpoint(Path(config.output_dir) / "checkpoint", config.resolved)
        strategy_class = locate(config.resolved["strategy"]["_target_"])
        strategy = strategy_class(
            config,
            fleet,
            config.timeline if stream else None,
            [
                Recorder(directory),
                Checkpointer(checkpoint, config.system.checkpoint_every, config.rounds),
                Progress(console, config.names["strategy"], config.rounds),
            ],
        )
        done, state = 0, None
        if config.resume and checkpoint.exists():
            done, state = checkpoint.load(strategy_class.State)
            console.print(f"resumed after round {done} from {checkpoint.folder}")
        directory.rewind(done)
        strategy.run(state, done)
        directory.write_summary(stream.fingerprint() if stream else None)
        console.print(f"saved in {config.output_dir}", soft_wrap=True)


def open_stream(config: RunConfig) -> Stream:
    """Return the simulated clients' data, after a look at the first of them.

    Raises
    ------
    ConfigError
        If a file cannot be read, or dataset and partition do not fit.
    """
    stream = Stream(
        config.dataset,
        config.partition,
        config.drift,
        config.clients,
        config.seed,
        config.rounds,
        config.data_dir,
    )
    stream.view(0, 1)
    return stream


def compare(configs: list[RunConfig], console: Console) -> None:
    """Print the scorecards of several runs; seeds of one method share a row."""
    groups: dict[str, list[RunConfig]] = {}
    for config in configs:
        groups.setdefault(_method(config), []).append(config)
    labels = _labels([group[0] for group in groups.values()])
    runs = {
        label: [
            read_lines(Path(config.output_dir) / "rounds.jsonl") for config in group
        ]
        for label, group in zip(labels, groups.values(), strict=True)
    }
    first = configs[0]
    drifts = [round for round in first.timeline.rounds if round > 1]
    target = _target(runs)
    scores = {
        label: [score(rounds, drifts, target) for rounds in seeds]
        for label, seeds in runs.items()
    }
    title = (
        f"{first.names['dataset']}, {first.clients} clients, drift "
        f"{first.names['drift']} at rounds {_shortened(drifts)}, accuracy in %"
    )
    console.print(table(title, scores, caption=_catching_up(runs)))
    what = "cost and clusters"
    if target is not None:
        what += f"; target: {100 * target:.1f}%, the final accuracy of fedavg"
    console.print(table(what, scores, COSTS))


def _method(config: RunConfig) -> str:
    """Name everything about a run but its seed and folder."""
    same = {k: v for k, v in config.resolved.items() if k not in ("seed", "output_dir")}
    return json.dumps(same, sort_keys=True)


def _labels(configs: list[RunConfig]) -> list[str]:
    """Name methods by strategy, else by their folders, which say what is swept."""
    names = [config.names["strategy"] for config in configs]
    if len(set(names)) == len(names):
        return names
    folders = [Path(config.output_dir).name for config in configs]
    return [re.sub(r"(^|-)seed\d+", "", folder) or folder for folder in folders]


def _shortened(drifts: list[int], most: int = 6) -> str:
    """List a few rounds, and say how many there are if they are more."""
    some = ", ".join(map(str, drifts[:most]))
    return some if len(drifts) <= most else f"{some}, ... ({len(drifts)} in all)"


Lines = list[dict[str, Json]]


def _target(runs: Mapping[str, list[Lines]]) -> float | None:
    """Return the mean final accuracy of the single global model, if it was run."""
    finals = [seed[-1]["accuracy"] for seed in runs.get("fedavg", []) if seed]
    known = [final for final in finals if final is not None]
    return fmean(known) if known else None


def _catching_up(runs: Mapping[str, list[Lines]]) -> str:
    """Say where the single global model catches up with the clustered ones."""
    if "fedavg" not in runs or any(len(seeds) > 1 for seeds in runs.values()):
        return ""
    (single,), lines = runs["fedavg"], []
    for name in runs.keys() - {"fedavg"}:
        since = caught_up(single, runs[name][0])
        level = f"level with {name} from round {since} on"
        lines.append(level if since else f"below {name} to the end")
    return "The single global model (fedavg) is " + ", ".join(sorted(lines)) + "."
