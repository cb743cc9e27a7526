"""One run, or a Hydra sweep, from the shell.

    python -m simulations.run strategy=fedavg rounds=50 output_dir=/tmp/a-run
    python -m simulations.run strategy=fedavg,fielding seed=0,1,2 --multirun

`simulations.choices` lists all groups, options and settings. ``-q`` says nothing but
what went wrong, ``-v`` more about every round. Exit code 0: every round had valid
results and the files are complete. 2: bad input, found before any training. 1: the run
failed. 130: interrupted by Ctrl-C. One line on stderr says why, or how to go on.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from omegaconf import OmegaConf

from cfl_flower.config.composition import compose_plain
from cfl_flower.config.overrides import (
    expand,
    quoted,
    swept_keys,
    with_folder,
)
from cfl_flower.errors import ConfigError, InterruptedRunError
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.console import VERBOSITY, Verbosity, make_console, verbosity
from cfl_flower.runs.directory import repeat_command
from cfl_flower.runs.output_dir import (
    check_output_dir,
    refuse_other_data,
    refuse_other_run,
)
from cfl_flower.runs.reading import finished
from cfl_flower.settings import require, require_memory
from simulations.engines.choice import engine_of, gpus_of, workers_of
from simulations.engines.superlink import run_on_superlink
from simulations.shell.terminal import Parser, command, program

WORKER = 2**26
"""Bytes of memory that a worker process takes, at least."""


def run(config: RunConfig) -> None:
    """Run one configuration with the engine that it names; raise if it fails."""
    engine = engine_of(config)
    if engine == "inprocess":
        from cfl_flower.server_app import execute
        from simulations.engines.inprocess import InProcessGrid

        execute(InProcessGrid(), config, make_console())
    elif engine == "processes":
        from cfl_flower.server_app import execute
        from simulations.engines.processes import ProcessGrid

        workers = ProcessGrid(workers_of(config), gpus_of(config))
        with closing(workers) as grid:
            execute(grid, config, make_console())
    else:
        if verbosity() is not Verbosity.QUIET:
            words = "starting Flower and Ray: ten seconds, which engine=processes saves"
            make_console().print(words, style="dim")
        line = shlex.join(overrides_elsewhere(config))
        run_on_superlink(line, workers_of(config), gpus_of(config))


def overrides_elsewhere(config: RunConfig) -> list[str]:
    """Return overrides that mean the same in another folder and environment."""
    # Whole paths: the last win.
    whole = [f"output_dir={quoted(config.output_dir)}"]
    if Path(config.data_dir).is_dir():
        whole.append(f"data_dir={quoted(config.data_dir)}")
    return [*config.overrides, *whole]


def check_machine(config: RunConfig) -> None:
    """Require what a run needs here: a folder, its data, and GPUs if it asks for some.

    Raises `ConfigError`. A cluster may have GPUs that this machine does not have.
    """
    import torch

    from cfl_flower.server_app import open_stream

    check_output_dir(config)
    elsewhere = engine_of(config) == "ray" and "RAY_ADDRESS" in os.environ
    gpus = config.gpus_per_worker and not (elsewhere or finished(config))
    ok = not gpus or torch.cuda.is_available()
    allowed = "0: PyTorch finds no CUDA device on this machine"
    require(ok, "gpus_per_worker", config.gpus_per_worker, allowed)
    if not (elsewhere or engine_of(config) == "inprocess"):
        require_memory("workers", config.workers, WORKER * workers_of(config))
    refuse_other_run(config)
    refuse_other_data(config, open_stream(config).samples)


def check(overrides: Sequence[str], multirun: bool = False) -> list[RunConfig]:
    """Compose every run before the first one starts, or raise a `ConfigError`."""
    swept = swept_keys(overrides)
    if swept and not multirun:
        several = f"{', '.join(sorted(swept))}: several values need --multirun"
        raise ConfigError(f"{several}; or use {program('compare')} for one table")
    composed = [compose_plain(job) for job in expand(with_folder(overrides))]
    # torch with the classes of all groups, once the keys are right.
    from cfl_flower.config.compose import check_settings

    configs = [check_settings(each) for each in composed]
    for config in configs:
        check_machine(config)
    return configs


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line, or raise a `ConfigError`."""
    parser = Parser("run", __doc__)
    parser.add_overrides()
    parser.add_verbosity()
    add = parser.add_argument
    add("-m", "--multirun", action="store_true", help="run every combination")
    add("--cfg", choices=["job"], help="print all settings, and run nothing")
    return parser.parse_overrides(arguments)


@command
def main(arguments: Sequence[str]) -> None:
    """Run the command and return the exit code."""
    asked = parse_arguments(arguments)
    if asked.cfg:
        sys.stdout.write(OmegaConf.to_yaml(compose_plain(asked.overrides).settings))
        return
    if asked.verbosity:
        # The run inherits it, wherever it is.
        os.environ[VERBOSITY] = asked.verbosity
    for config in check(asked.overrides, asked.multirun):
        try:
            run(config)
        except KeyboardInterrupt as error:
            again = repeat_command(overrides_elsewhere(config))
            said = f"interrupted; go on by {again} resume=true"
            raise InterruptedRunError(said) from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
