"""``--set-file FILE``: overrides kept in a file, for `run`, `compare` and `preview`.

A line is an override as on the command line, without the shell's quotes; what follows
``#`` at the start of a line is a comment. A .yaml file is a list of the same, as Hydra
itself keeps overrides:

    - strategy=fielding
    - drift.rounds=[5,9]

What the command line sets wins, wherever it stands, and of two files the later one.
"""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path

import yaml

from cfl_flower.errors import ConfigError

OPTION = "--set-file"


def add_option(parser: ArgumentParser) -> None:
    """Let a parser read the option, as `set_file`."""
    parser.add_argument(
        OPTION,
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="overrides in a file, one a line; the command line wins",
    )


def with_files(files: Sequence[Path], overrides: Sequence[str]) -> list[str]:
    """Return the overrides of files that later ones do not replace, and those given.

    Raises `ConfigError` if a file cannot be read or holds anything else.
    """
    # With Hydra, which a device that only looks for its model does not have.
    from cfl_flower.config.overrides import parse

    found = list(overrides)
    for path in reversed(files):
        keys = {item.key_or_group for item in parse(found)}
        ours = read_overrides(path)
        pairs = zip(ours, parse(ours), strict=True)
        found = [each for each, item in pairs if item.key_or_group not in keys] + found
    return found


def read_overrides(path: Path) -> list[str]:
    """Return the overrides in a file, or raise a `ConfigError`."""
    try:
        text = path.expanduser().read_text(encoding="utf-8")
        found = yaml.safe_load(text) if path.suffix in (".yaml", ".yml") else text
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise ConfigError(
            f"{OPTION} {path} cannot be read ({reason}); name a file with an override "
            "in each line"
        ) from error
    if isinstance(found, str):
        lines = (line.strip() for line in found.splitlines())
        return [line for line in lines if line and not line.startswith("#")]
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ConfigError(
            f"{OPTION} {path} is no list of overrides; write them as - rounds=20, or "
            "choose nested settings in conf/experiment/NAME.yaml by experiment=NAME"
        )
    return found
