"""The ServerApp: config -> strategy -> strategy.start(grid)."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from rich.console import Console

from cfl_flower.analysis.comparison import compare
from cfl_flower.communication.fleet import Fleet
from cfl_flower.config.compose import RunConfig, compose_sweep
from cfl_flower.config.overrides import OVERRIDES
from cfl_flower.data.stream import Stream
from cfl_flower.errors import ERROR_MARK, CflError, FailedRunsError
from cfl_flower.runs.callbacks import Callback, Checkpointer, Progress
from cfl_flower.runs.checkpoint import Checkpoint
from cfl_flower.runs.console import Verbosity, make_console, verbosity
from cfl_flower.runs.directory import RunDirectory
from cfl_flower.runs.loggers import open_logger
from cfl_flower.settings import locate

app = ServerApp()


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

    Raises `FailedRunsError` if one failed, after all others are done.
    """
    reasons = {}
    for config in configs:
        try:
            execute(grid, config, console)
        except CflError as error:
            reasons[config.output_dir] = str(error)
            console.print(f"{config.output_dir} failed: {error}", style="red")
    compare(configs, console, reasons)
    if reasons:
        first = next(iter(reasons))
        raise FailedRunsError(
            f"{len(reasons)} of {len(configs)} runs failed; {first}: {reasons[first]}"
        )


def execute(grid: Grid, config: RunConfig, console: Console) -> None:
    """Run one configuration on a grid, or go on with it from its checkpoint."""
    # Flower's loop logs several lines per round; the progress line says it in one.
    logging.getLogger("flwr").setLevel(logging.WARNING)
    with RunDirectory(config) as directory:
        fleet = Fleet(grid, config, directory.token)
        fleet.discover()
        stream = open_stream(config) if fleet.simulated else None
        warn = partial(console.print, style="yellow", soft_wrap=True, markup=False)
        for warning in config.warnings() if stream else ():
            warn(warning)
        checkpoint = Checkpoint(Path(config.output_dir) / "checkpoint", config.resolved)
        strategy_class = locate(config.resolved["strategy"]["_target_"])
        done, state = 0, None
        if config.resume and checkpoint.exists():
            done, state = checkpoint.load(strategy_class.State)
            console.print(f"resumed after round {done} from {checkpoint.folder}")
        directory.rewind(done)
        callbacks = make_callbacks(config, directory, checkpoint, console)
        timeline = config.timeline if stream else None
        with open_logger(config, done, warn) as write:
            callbacks.append(write)
            strategy = strategy_class(config, fleet, timeline, callbacks)
            strategy.run(state, done)
        directory.write_summary(stream.fingerprint() if stream else None)
        if verbosity() is not Verbosity.QUIET:
            console.print(f"saved in {config.output_dir}", soft_wrap=True)


def make_callbacks(
    config: RunConfig,
    directory: RunDirectory,
    checkpoint: Checkpoint,
    console: Console,
) -> list[Callback]:
    """Return what happens around every round, in its order."""
    return [
        lambda record, rows, _: directory.append(record, rows),
        Checkpointer(checkpoint, config.system.checkpoint_every, config.rounds),
        Progress(console, config.names["strategy"], config.rounds, verbosity()),
    ]


def open_stream(config: RunConfig) -> Stream:
    """Return the simulated clients' data, after a look at the first of them.

    Raises `ConfigError` if a file cannot be read, or dataset and partition do not fit.
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
