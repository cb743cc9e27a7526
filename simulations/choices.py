"""What there is to choose: groups of settings, their options, a method's settings.

    python -m simulations.choices            # the groups
    python -m simulations.choices strategy   # the options of a group, one line each
    python -m simulations.choices fielding   # the settings of a method

Names are those of Hydra's overrides, as in `strategy=fielding`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cfl_flower.config.composition import list_options
from cfl_flower.errors import ConfigError
from cfl_flower.plugins import conf_folders
from cfl_flower.settings import known_names
from simulations.terminal import Parser, command


def list_choices(name: str) -> tuple[list[str], list[Sequence[str]]]:
    """Return the headings and the rows of what there is under a name.

    Raises
    ------
    ConfigError
        If it is neither a group nor a method.
    """
    folders = {path.name for conf in conf_folders() for path in conf.iterdir()}
    groups = sorted(name for name in folders if list_options(name))
    methods = list_options("strategy")
    if not name:
        return ["group", "options"], [[g, " ".join(list_options(g))] for g in groups]
    if name in groups:
        return [name, ""], [[each, title(name, each)] for each in list_options(name)]
    if name in methods:
        # The classes of all groups, with torch.
        from cfl_flower.config.reference import method_settings

        headings = ["strategy.", "default", "allowed", "meaning"]
        return headings, list(method_settings(name))
    known = known_names(name, [*groups, *methods])
    raise ConfigError(f"{name} is neither a group nor a method; {known}")


def title(group: str, option: str) -> str:
    """Return the comment that an option's configuration file opens with, one line."""
    files = (folder / group / f"{option}.yaml" for folder in conf_folders())
    path = next(path for path in files if path.is_file())
    lines = path.read_text(encoding="utf-8").splitlines()
    first = next((line for line in lines if line != "# @package _global_"), "")
    return first.removeprefix("# ") if first.startswith("# ") else ""


@command
def main(arguments: Sequence[str]) -> None:
    """Print the table."""
    parser = Parser("choices", __doc__)
    parser.add_argument("name", nargs="?", default="", help="a group, or a method")
    headings, rows = list_choices(parser.parse_args(arguments).name)
    table = Table()
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
