"""Whether a run may begin, or go on, in a folder: what else is there is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cfl_flower.building import locate
from cfl_flower.environment.files import make_folder
from cfl_flower.errors import ConfigError
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.checkpoint import Checkpoint
from cfl_flower.runs.lines import read_lines, unbroken
from cfl_flower.runs.reading import (
    read_settings,
    refuse_links_out,
    refuse_other_settings,
)

DATA = ".data"
"""File with what names the samples that a run began with."""


def check_output_dir(config: RunConfig) -> None:
    """Create the output folder, or raise a `ConfigError` if it cannot be used."""
    path = Path(config.output_dir)
    refuse_links_out(path)
    make_folder("output_dir", path)
    if not config.resume and read_lines(path / "rounds.jsonl"):
        fault = f"output_dir={path} already holds a run"
        remedy = "add resume=true to continue it, or use another folder"
        raise ConfigError(f"{fault}; {remedy}")


def refuse_other_run(config: RunConfig) -> None:
    """Raise the error of a run of another version, or with other settings."""
    checkpoint = Checkpoint(Path(config.output_dir, "checkpoint"), {})
    resumed = config.resume and checkpoint.exists()
    if resumed:
        # First: another version's settings differ, too.
        checkpoint.read_header()
    refuse_other_settings(config)
    if resumed:
        method = locate(config.resolved["strategy"]["_target_"])
        checkpoint.check_state(method.State)
    elif config.resume:
        refuse_lost_checkpoint(Path(config.output_dir))


def refuse_lost_checkpoint(path: Path) -> None:
    """Raise the `ConfigError` of rounds whose checkpoint was saved, and is gone."""
    done = len(read_lines(path / "rounds.jsonl"))
    if not done:
        return
    with unbroken(path / "config.yaml"):
        every = read_settings(path / "config.yaml")["system"]["checkpoint_every"]
        # A run may be killed between a round's lines and its checkpoint.
        saved = (path / "summary.json").exists() or done > every
    if saved:
        raise ConfigError(
            f"output_dir={path} has the lines of {done} rounds and no checkpoint; "
            "restore checkpoint/, or use another folder"
        )


def refuse_other_data(config: RunConfig, samples: Callable[[], str]) -> None:
    """Raise `ConfigError` if ``samples`` are not those that the run began with."""
    path = Path(config.output_dir)
    begun = (path / DATA).exists() and read_lines(path / "rounds.jsonl")
    if begun and (path / DATA).read_text() != samples():
        raise ConfigError(
            f"output_dir={path} holds a run on other data: the files of dataset="
            f"{config.names['dataset']} have changed since it began, or a dataset of "
            "yours draws without a seed; put them back, or use another output_dir"
        )
