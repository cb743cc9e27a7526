"""The ServerApp: config -> strategy -> strategy.start(grid)."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from rich.console import Console

from cfl_flower.callbacks import Checkpointer, Progress, Recorder
from cfl_flower.checkpoint import Checkpoint
from cfl_flower.config import RunConfig, compose_sweep
from cfl_flower.data.stream import Stream
from cfl_flower.errors import CflError
from cfl_flower.fleet import Fleet
from cfl_flower.results import RunDirectory, read_lines
from cfl_flower.scorecard import caught_up, score, table
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
        for config in configs:
            execute(grid, config, console)
        if len(configs) > 1:
            compare(configs, console)
    except CflError as error:
        console.print(f"{ERROR_MARK}{error}", style="red", markup=False, soft_wrap=True)
        raise


def make_console() -> Console:
    """Return the console of a run; without a terminal, plain lines."""
    if path := os.environ.get(CONSOLE):
        return Console(file=Path(path).open("a", encoding="utf-8"), width=110)
    console = Console(file=sys.stdout)
    return console if console.is_terminal else Console(file=sys.stdout, width=110)


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
    """Print the scorecard of several runs."""
    runs = {
        label: read_lines(Path(config.output_dir) / "rounds.jsonl")
        for label, config in zip(_labels(configs), configs, strict=True)
    }
    first = configs[0]
    drifts = [round for round in first.timeline.rounds if round > 1]
    scores = {name: score(rounds, drifts) for name, rounds in runs.items()}
    title = (
        f"{first.names['dataset']}, {first.clients} clients, drift "
        f"{first.names['drift']} at rounds {drifts}, accuracy in %"
    )
    console.print(table(title, scores, _catching_up(runs)))


def _labels(configs: list[RunConfig]) -> list[str]:
    """Name runs by strategy, then by seed, then by folder: the first that is unique."""
    choices = [
        [config.names["strategy"] for config in configs],
        [f"{config.names['strategy']} seed {config.seed}" for config in configs],
        [Path(config.output_dir).name for config in configs],
    ]
    return next((c for c in choices if len(set(c)) == len(c)), choices[-1])


def _catching_up(runs: dict[str, list[dict[str, Json]]]) -> str:
    """Say where the single global model catches up with the clustered ones."""
    if "fedavg" not in runs:
        return ""
    lines = []
    for name in runs.keys() - {"fedavg"}:
        since = caught_up(runs["fedavg"], runs[name])
        level = f"level with {name} from round {since} on"
        lines.append(level if since else f"below {name} to the end")
    return "The single global model (fedavg) is " + ", ".join(sorted(lines)) + "."
