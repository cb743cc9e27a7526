"""One run, or a Hydra sweep, from the shell.

    python -m simulations.run strategy=fedavg rounds=50 output_dir=/tmp/a-run
    python -m simulations.run strategy=fedavg,fielding seed=0,1,2 --multirun

``--help`` lists all groups and, with ``strategy=NAME``, the method's settings. ``-q``
says nothing but what went wrong, ``-v`` more about every round. Exit code 0:
every round had valid results and the files are complete. 2: bad input,
found before any training. 1: the run failed. One line on stderr says why.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig
from rich.markup import escape
from rich.table import Table

from cfl_flower.config.compose import RunConfig, compose_config, compose_plain
from cfl_flower.config.overrides import (
    CONF,
    expand,
    first_line,
    own_folder,
    parse,
    quoted,
    swept_keys,
    with_folder,
)
from cfl_flower.config.reference import method_settings
from cfl_flower.errors import CflError, ConfigError
from cfl_flower.runs.directory import check_output_dir
from cfl_flower.server_app import VERBOSITY, execute, make_console, open_stream
from simulations.inprocess import InProcessGrid
from simulations.superlink import run_on_superlink
from simulations.terminal import FLAGS, command, report


def run(config: RunConfig) -> None:
    """Run one configuration with the engine that it names.

    Raises
    ------
    CflError
        If it does not complete.
    """
    if config.engine == "inprocess":
        execute(InProcessGrid(), config, make_console())
        return
    # The SuperLink works elsewhere, in another environment: whole paths, the last win.
    overrides = [*config.overrides, f"output_dir={quoted(config.output_dir)}"]
    if Path(config.data_dir).is_dir():
        overrides.append(f"data_dir={quoted(config.data_dir)}")
    run_on_superlink(shlex.join(overrides), config.workers, config.gpus_per_worker)


@hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")
def _job(node: DictConfig) -> None:
    """Run one job of Hydra's; its overrides are composed again, typed and checked."""
    del node
    job = list(HydraConfig.get().overrides.task)
    asked = [argument for argument in sys.argv[1:] if not argument.startswith("-")]
    outer = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        run(compose_config(own_folder(job, swept_keys(asked))))
    except CflError as error:
        # SystemExit, unlike an error, passes through Hydra without a traceback.
        sys.exit(report(error))
    finally:
        GlobalHydra.instance().hydra = outer


def refuse_nothing(overrides: Sequence[str]) -> None:
    """Refuse a sweep over no value: `glob` may match none.

    Raises
    ------
    ConfigError
    """
    for override, item in zip(overrides, parse(overrides), strict=True):
        try:
            empty = item.is_sweep_override() and not list(item.sweep_string_iterator())
        except HydraException as error:
            raise ConfigError(f"{override}: {first_line(error)}") from error
        if empty:
            raise ConfigError(
                f"{override} matches nothing; see conf/{item.key_or_group} for what "
                "there is, or name values"
            )


def check(arguments: Sequence[str]) -> list[str]:
    """Compose and check every job before the first one starts.

    Returns
    -------
    list of str
        The arguments, with a common output_dir for a sweep that names none.

    Raises
    ------
    ConfigError
    """
    flags = [argument for argument in arguments if argument.startswith("-")]
    overrides = [argument for argument in arguments if not argument.startswith("-")]
    known = get_args_parser()._option_string_actions
    for flag in flags:
        if flag.partition("=")[0] not in known:
            raise ConfigError(f"{flag} is no option; see --help")
    swept = swept_keys(overrides)
    if swept and not {"-m", "--multirun"}.intersection(flags):
        raise ConfigError(
            f"{', '.join(sorted(swept))}: several values need --multirun; or use "
            "simulations.compare for one table"
        )
    refuse_nothing(overrides)
    overrides = with_folder(overrides)
    for job in expand(overrides):
        config = compose_config(job)
        check_output_dir(config)
        open_stream(config)
    return flags + overrides


def take_talk(arguments: Sequence[str]) -> list[str]:
    """Take ``-q`` and ``-v`` out, which Hydra does not know; the run inherits them."""
    names = {name: verbosity for *both, verbosity, _ in FLAGS for name in both}
    for argument in arguments:
        if argument in names:
            os.environ[VERBOSITY] = names[argument]
    return [argument for argument in arguments if argument not in names]


@command
def main(arguments: Sequence[str]) -> None:
    """Run the command and return the exit code."""
    arguments = take_talk(arguments)
    sys.argv[1:] = arguments
    informs = {"--help", "--hydra-help", "--version", "--cfg", "-c", "--info", "-h"}
    if not informs.intersection(arguments):
        sys.argv[1:] = check(arguments)
    try:
        _job()
    finally:  # Hydra leaves by SystemExit after its help.
        if {"--help", "-h"}.intersection(arguments):
            explain_settings(arguments)


def explain_settings(arguments: Sequence[str]) -> None:
    """Print the settings of the chosen method, as their declarations have them."""
    chosen = [each for each in arguments if each.startswith("strategy=")]
    method = compose_plain(chosen)[1]["strategy"]
    table = Table(title=f"strategy={method}", title_justify="left")
    for heading in ("strategy.", "default", "allowed", "meaning"):
        table.add_column(heading, overflow="fold")
    for row in method_settings(method):
        table.add_row(*map(escape, row))
    make_console().print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
