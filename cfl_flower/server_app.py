"""The ServerApp: config -> strategy -> strategy.start(grid)."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from rich.console import Console

from cfl_flower.callbacks import Checkpointer, Progress, Recorder
from cfl_flower.checkpoint import Checkpoint
from cfl_flower.config import RunConfig, compose_sweep
from cfl_flower.data.stream import Concepts
from cfl_flower.errors import CflError
from cfl_flower.fleet import Fleet
from cfl_flower.results import RunDirectory, read_lines
from cfl_flower.scorecard import score, table
from cfl_flower.settings import locate

app = ServerApp()

ERROR_MARK = "cfl-flower error: "
"""Starts the line that says why a run ended, on every way to the user."""

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
        console.print(f"{ERROR_MARK}{error}", style="red", soft_wrap=True)
        raise


def make_console() -> Console:
    """Return the console of a run; without a terminal, plain lines of any length."""
    console = Console(file=sys.stdout, markup=False)
    return console if console.is_terminal else Console(file=sys.stdout, width=110)


def execute(grid: Grid, config: RunConfig, console: Console) -> None:
    """Run one configuration on a grid, or go on with it from its checkpoint."""
    # Flower's loop logs several lines per round; the progress line says it in one.
    logging.getLogger("flwr").setLevel(logging.WARNING)
    with RunDirectory(config) as directory:
        fleet = Fleet(grid, config)
        fleet.discover()
        checkpoint = Checkpoint(Path(config.output_dir) / "checkpoint", config.resolved)
        strategy_class = locate(config.resolved["strategy"]["_target_"])
        strategy = strategy_class(
            config,
            fleet,
            simulated_concepts(config) if fleet.simulated else None,
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
        directory.write_summary()
        console.print(f"saved in {config.output_dir}", soft_wrap=True)


def simulated_concepts(config: RunConfig) -> Concepts:
    """Return the true concepts that the configuration's drift schedule knows."""
    return Concepts(
        config.partition,
        config.drift,
        config.clients,
        config.dataset.classes,
        config.seed,
    )


def compare(configs: list[RunConfig], console: Console) -> None:
    """Print the scorecard of several runs."""
    scores = {}
    for config in configs:
        name = config.names["strategy"]
        label = name if name not in scores else f"{name} s{config.seed}"
        rounds = read_lines(Path(config.output_dir) / "rounds.jsonl")
        scores[label] = score(rounds, config.drift.rounds)
    first = configs[0]
    title = (
        f"{first.names['dataset']}, {first.clients} clients, drift "
        f"{first.names['drift']} at rounds {list(first.drift.rounds)}, accuracy in %"
    )
    console.print(table(title, scores))
