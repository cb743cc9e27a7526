"""What there is to choose: groups of settings, their options, an option's settings.

    python -m simulations.choices            # the groups
    python -m simulations.choices strategy   # the options of a group, one line each
    python -m simulations.choices fielding   # the settings of a method
    python -m simulations.choices drift=none # of an option, where several have the name

Names are those of Hydra's overrides, as in `strategy=fielding`. Of a method it is said
what it needs and when to use it.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from cfl_flower.config.options import GROUPS, list_options, option_files
from cfl_flower.environment.plugins import CONF
from cfl_flower.errors import ConfigError
from cfl_flower.settings import known_names
from simulations.shell.terminal import Parser, command

NOTES = ("needs", "use")
"""Notes of an option's file below its first line, as ``# needs: labels``."""


def list_choices(name: str) -> tuple[list[str], list[Sequence[str]]]:
    """Return the headings and the rows of what there is under a name.

    Raises
    ------
    ConfigError
        If it is neither a group nor an option, or an option of several groups.
    """
    groups = sorted(path.name for path in CONF.iterdir() if list_options(path.name))
    plurals = {re.sub("y$", "ie", group) + "s": group for group in groups}
    if not name:
        return ["group", "options"], [[g, " ".join(list_options(g))] for g in groups]
    if (group := plurals.get(name, name)) in groups:
        return describe_options(group)
    group, option = find_option(name, groups)
    # The classes of all groups, with torch.
    from cfl_flower.config.reference import option_settings

    headings = [f"{group}.", "default", "allowed", "meaning"]
    return headings, list(option_settings(group, option))


def find_option(name: str, groups: Sequence[str]) -> tuple[str, str]:
    """Return the group and the option of ``fielding`` or ``strategy=fielding``.

    Raises `ConfigError`; a method is meant where other options have its name, too.
    """
    asked, _, option = name.rpartition("=")
    with_it = [group for group in GROUPS if option in list_options(group)]
    found = [group for group in with_it if asked in ("", group)]
    if len(found) == 1 or "strategy" in found:
        return found[0], option
    if found:
        forms = " or ".join(f"{group}={option}" for group in found)
        raise ConfigError(f"{name} is an option of several groups; write {forms}")
    known = known_names(option, [*groups, *list_options("strategy")])
    raise ConfigError(f"{name} is neither a group nor an option; {known}")


def describe_options(group: str) -> tuple[list[str], list[Sequence[str]]]:
    """Return a row for each option of a group, with the notes that any of them has."""
    options = list_options(group)
    about = [describe(group, option) for option in options]
    noted = [note for note in NOTES if any(each.get(note) for each in about)]
    rows: list[Sequence[str]] = [
        [option, each["title"], *(each.get(note, "") for note in noted)]
        for option, each in zip(options, about, strict=True)
    ]
    return [group, "", *noted], rows


def describe(group: str, option: str) -> dict[str, str]:
    """Return the title and the notes of an option, from the head of its file."""
    path = option_files(group, option)[0]
    lines = path.read_text(encoding="utf-8").splitlines()
    above = itertools.takewhile(lambda line: line.startswith("# "), lines)
    head = [line.removeprefix("# ") for line in above if line != "# @package _global_"]
    found = {"title": head[0] if head else ""}
    for line in head[1:]:
        key, colon, text = line.partition(": ")
        if colon and key in NOTES:
            found[key] = text
    return found


@command
def main(arguments: Sequence[str]) -> None:
    """Print the table."""
    parser = Parser("choices", __doc__)
    parser.add_argument("name", nargs="?", default="", help="a group, or an option")
    show(parser.parse_args(arguments).name)


def show(name: str) -> None:
    """Print what there is under a name, or raise a `ConfigError`."""
    headings, rows = list_choices(name)
    if not rows:
        print("it has no settings")
        return
    console = Console()
    table = Table()
    for place, heading in enumerate(headings):
        # Names are to be copied, and sentences to be read.
        least = 30 if heading == headings[-1] else None
        table.add_column(heading, overflow="fold", no_wrap=place == 0, min_width=least)
    for row in rows:
        table.add_row(*map(escape, row))
    # A pipe has no width, and no line of it is to be broken for one.
    (console if console.is_terminal else Console(width=160)).print(table)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
