"""The ServerApp: config -> strategy -> strategy.start(grid)."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import cast

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from rich.console import Console

from cfl_flower.analysis.comparison import compare
from cfl_flower.analysis.diagnosis import show_diagnosis
from cfl_flower.building import locate
from cfl_flower.communication.fleet import Fleet
from cfl_flower.communication.grid import SIMULATION
from cfl_flower.config.compose import compose_sweep
from cfl_flower.config.overrides import OVERRIDES
from cfl_flower.config.warnings import find_warnings
from cfl_flower.data.datasets.own import Folder
from cfl_flower.data.reading.inferred import InferredDataset
from cfl_flower.data.worlds.stream import Stream
from cfl_flower.engine.asynchronous import AsynchronousStrategy
from cfl_flower.engine.hello import ask_for_differences, ask_for_words, with_scale
from cfl_flower.environment.machine import keep_free_memory, rare_collections
from cfl_flower.environment.plugins import from_outside
from cfl_flower.errors import CflError, ConfigError, FailedRunsError, one_line
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.callbacks import (
    BestCheckpoint,
    Callback,
    Checkpointer,
    FailureLog,
    Progress,
)
from cfl_flower.runs.checkpoint import Checkpoint
from cfl_flower.runs.console import (
    Verbosity,
    make_console,
    say_done,
    say_why,
    verbosity,
)
from cfl_flower.runs.directory import BEST, RunDirectory
from cfl_flower.runs.lines import read_lines, read_tests
from cfl_flower.runs.loggers import open_logger
from cfl_flower.runs.output_dir import refuse_other_data
from cfl_flower.runs.provenance import record_provenance
from cfl_flower.state import ClusteredState

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run every run that the run-config describes; compare them if they are many."""
    console = make_console()
    try:
        devices = grid.run.primary_task_type != SIMULATION
        ask = partial(ask_for_words, grid) if devices else None
        configs = compose_sweep(str(context.run_config.get(OVERRIDES, "")), ask)
        if len(configs) == 1:
            execute(grid, configs[0], console)
        else:
            execute_all(grid, configs, console)
            root = os.path.commonpath([config.output_dir for config in configs])
            console.print(f"{len(configs)} runs saved in {root}", soft_wrap=True)
    except CflError as error:
        say_why(error)
        raise
    say_done()


def execute_all(grid: Grid, configs: list[RunConfig], console: Console) -> None:
    """Run several configurations in turn, and compare those that complete.

    Raises `FailedRunsError` if one failed, after all others are done.
    """
    reasons: dict[str, str] = {}
    for config in configs:
        try:
            execute(grid, config, console)
        except CflError as error:
            reasons[config.output_dir] = str(error)
            line = f"{config.output_dir} failed: {one_line(str(error))}"
            console.print(line, style="red", markup=False)
    compare(configs, console, reasons)
    if reasons:
        first = next(iter(reasons))
        raise FailedRunsError(
            f"{len(reasons)} of {len(configs)} runs failed; {first}: {reasons[first]}"
        )


def execute(grid: Grid, config: RunConfig, console: Console) -> None:
    """Run one configuration on a grid, or go on with it from its checkpoint."""
    keep_free_memory()
    # Flower's loop logs several lines per round; the progress line says it in one.
    logging.getLogger("flwr").setLevel(logging.WARNING)
    with rare_collections(), RunDirectory(config) as directory:
        warn = partial(console.print, style="yellow", soft_wrap=True, markup=False)
        whole = config.faults.strict or verbosity() is Verbosity.VERBOSE
        failures = FailureLog(Path(config.output_dir), warn, whole)
        fleet = Fleet(grid, config, directory.token, failures)
        fleet.discover(partial(read_tests, directory.path))
        directory.names = fleet.names
        config = agreed(config, fleet, directory)
        stream = open_stream(config) if fleet.simulated else None
        if stream:
            say_data(config, stream, console)
        checkpoint = Checkpoint(Path(config.output_dir) / "checkpoint", config.resolved)
        strategy_class = locate(config.resolved["strategy"]["_target_"])
        if stream and not issubclass(strategy_class, AsynchronousStrategy):
            stream.require_samples()
        done = 0
        state = None
        if config.resume:
            done, state = load_saved(checkpoint, strategy_class.State, console, warn)
        if stream and done:
            refuse_other_data(config, stream.samples)
        elif stream:
            directory.begin(stream.samples())
        directory.rewind(done)
        if config.system.diagnose and not done:
            show_diagnosis(ask_for_differences(config, fleet), console)
        if changed := record_provenance(directory.path, config.resolved, done):
            warn(f"warning: {changed}")
        timeline = config.timeline if stream else None
        named = any(isinstance(client, str) for client in fleet.clients)
        if stream or not (named or isinstance(config.dataset, Folder)):
            directory.write_concepts()
        name = config.names["strategy"]
        callbacks: list[Callback] = [
            lambda record, rows, _: directory.append(record, rows),
            make_checkpointer(config, checkpoint, state),
            Progress(console, name, config.rounds, verbosity(), fleet.simulated),
        ]
        with open_logger(config, done, warn) as write:
            callbacks.append(write)
            strategy = strategy_class(config, fleet, timeline, callbacks)
            strategy.engine.run(state, done)
        directory.write_summary(stream.fingerprint() if stream else None)
        if verbosity() is not Verbosity.QUIET:
            console.print(f"saved in {config.output_dir}", soft_wrap=True)


def load_saved(
    checkpoint: Checkpoint,
    state_class: type[ClusteredState],
    console: Console,
    warn: Callable[[str], None],
) -> tuple[int, ClusteredState | None]:
    """Return the rounds that are done and the state after them, and say how many."""
    folder = checkpoint.folder.parent
    if not checkpoint.exists():
        again = " again" if read_lines(folder / "rounds.jsonl") else ""
        warn(f"warning: nothing to resume in {folder}: begins{again} with round 1")
        return 0, None
    done, state = checkpoint.load(state_class)
    console.print(f"resumed after round {done} from {checkpoint.folder}")
    warn_of_lost_states(checkpoint, warn)
    return done, state


def warn_of_lost_states(checkpoint: Checkpoint, warn: Callable[[str], None]) -> None:
    """Say how many clients lost what they had kept."""
    lost, kept = checkpoint.lost_states()
    if lost:
        warn(
            f"warning: the states of {lost} of {kept} clients are missing in "
            f"{checkpoint.states}: they begin anew, so the numbers are not those of a "
            "whole run; put the files back, and repeat"
        )


def make_checkpointer(
    config: RunConfig, checkpoint: Checkpoint, state: ClusteredState | None
) -> Checkpointer:
    """Return what saves a run's state, and the best one, from a ``state`` on."""
    folder = Path(config.output_dir)
    kept = Checkpoint(folder / BEST, config.resolved)
    done = read_lines(folder / "rounds.jsonl")
    best = BestCheckpoint(kept, config.system.checkpoint_best, done, state)
    return Checkpointer(checkpoint, config.system.checkpoint_every, config.rounds, best)


def agreed(config: RunConfig, fleet: Fleet, directory: RunDirectory) -> RunConfig:
    """Return a run's settings with what its clients agree on, and keep that."""
    dataset = config.dataset
    if not isinstance(dataset, InferredDataset):
        return config
    if dataset.lacks_sums:
        config = with_scale(config, fleet)
        directory.write_settings(config)
        fleet.send_settings(config)
        dataset = cast(InferredDataset, config.dataset)
    directory.write_preprocessing(dataset.preprocessing(config.data_dir))
    return config


def say_data(config: RunConfig, stream: Stream, console: Console) -> None:
    """Say what is special about the clients' data."""
    say = partial(console.print, soft_wrap=True, markup=False)
    for warning in find_warnings(config):
        say(warning, style="yellow")
    if isinstance(config.dataset, InferredDataset):
        say(config.dataset.described)
    for note in stream.notes():
        say(note, style="yellow")


def open_stream(config: RunConfig) -> Stream:
    """Return the simulated clients' data, after a look at the first of them.

    Raises `ConfigError` if a file cannot be read, or dataset and partition do not fit.
    """
    parts = config.dataset, config.partition, config.drift
    sizes = config.clients, config.seed, config.rounds
    stream = Stream(*parts, *sizes, config.data_dir)
    stream.view(0, 1)
    if from_outside(config.dataset):
        require_same_samples(stream, Stream(*parts, *sizes, config.data_dir))
    return stream


def require_same_samples(stream: Stream, again: Stream) -> None:
    """Refuse a dataset of one's own that loads other samples each time."""
    if stream.samples() != again.samples():
        raise ConfigError(
            "dataset: load returns other samples each time, so that every process "
            "would have others; draw from a generator with a fixed seed"
        )
