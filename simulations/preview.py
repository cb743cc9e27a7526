"""Who holds what, and when it changes, before any training: as text or as a picture.

    python -m simulations.preview drift=sudden partition=dirichlet
    python -m simulations.preview drift=swap_all clients=1000 --output /tmp/swaps.svg

Arguments are Hydra's overrides; ``--output`` also draws a picture: .png, .svg or .pdf.
Exit codes as `simulations.run`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.columns import Columns as SideBySide
from rich.console import Console
from rich.table import Table

from cfl_flower.config.composition import compose_plain
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.console import make_console
from cfl_flower.settings import require
from cfl_flower.types import FloatArray
from simulations.previewing.data_summary import CLIENTS, Preview, preview, shares, span
from simulations.shell.terminal import Parser, command, writable

FIRST_CLIENTS = 20
"""Clients in the text."""

MOST_NAMES = 10
LONGEST_NAME = 8
"""Classes whose names stand above their columns, and characters of them."""

BLOCKS = "▁▂▃▄▅▆▇█"


def bars(share: FloatArray, largest: float, width: int) -> str:
    """Return one block per label, so many characters wide; a dot for one not held.

    A full block stands for the largest share.
    """
    levels = np.ceil(share / (largest or 1.0) * len(BLOCKS)).astype(int)
    marks = ("·" if level == 0 else BLOCKS[level - 1] for level in levels)
    return "".join(mark.ljust(width) for mark in marks)


def ruler(names: Sequence[str], width: int) -> str:
    """Return the names above their columns, as far as they have room.

    Examples
    --------
    >>> ruler([str(label) for label in range(11)], 2)
    '0         5         10'
    """
    step = 1
    if len(names) > 10:
        step = 5 if width > 1 else 10
    return "".join(name.ljust(step * width) for name in names[::step]).rstrip()


def with_names(found: Preview, names: Sequence[str]) -> Preview:
    """Return a preview with the names of its labels, if they have room."""
    if not names or found.columns.what != "label" or len(names) > MOST_NAMES:
        return found
    short = [name[:LONGEST_NAME] for name in names]
    return found._replace(columns=found.columns._replace(names=short))


def headline(config: RunConfig) -> str:
    """Say in one line what it is."""
    names = config.names
    # One of the user's own files says what was found in it.
    data = getattr(config.dataset, "described", names["dataset"])
    return (
        f"{data}, {config.clients:,} clients, partition "
        f"{names['partition']}, drift {names['drift']}, seed {config.seed}, "
        f"{config.rounds:,} rounds"
    )


def period_table(found: Preview) -> Table:
    """Return the table of periods."""
    table = Table(title="When it changes, and for how many clients", title_style="bold")
    table.add_column("rounds", justify="right")
    table.add_column("true\nconcepts", justify="right")
    for what in ("concept", "data"):
        table.add_column(f"clients whose\n{what} changed", justify="right")
    for which in ("smallest", "median", "largest"):
        table.add_column(f"{which}\nclient", justify="right")
    left_out = len(found.starts) - len(found.periods)
    for period in found.periods:
        if left_out and period is found.periods[-1]:
            table.add_row(f"… {left_out:,} periods left out")
        sizes = (np.min(period.sizes), np.median(period.sizes), np.max(period.sizes))
        table.add_row(
            span(period.start, period.end).split()[1],
            f"{period.concepts:,}",
            *("–" if n is None else f"{n:,}" for n in (period.moved, period.changed)),
            *(f"{size:,g}" if size < 1e5 else f"{size:,.0f}" for size in sizes),
        )
    return table


def share_tables(
    found: Preview, parts: Sequence[FloatArray], largest: float
) -> list[Table]:
    """Return text pictures of the first clients: at first, and after a change."""
    names = found.columns.names
    width = 1 if len(names) > FIRST_CLIENTS else 1 + max(map(len, names[:10]))
    tables = []
    for period, part in zip(found.periods, parts, strict=False):
        table = Table(box=None, padding=(0, 1, 0, 0), title_justify="left")
        table.title = span(period.start, period.end).capitalize()
        table.add_column("client", justify="right")
        table.add_column("samples", justify="right")
        table.add_column(ruler(names, width), no_wrap=True)
        for client, row in enumerate(part):
            size = f"{period.sizes[client]:,}"
            table.add_row(str(client), size, bars(row, largest, width))
        tables.append(table)
    return tables


def show(
    found: Preview, title: str, console: Console, warnings: Sequence[str] = ()
) -> None:
    """Print a preview, and what makes the run probably not what was meant."""
    console.print(title, style="bold", highlight=False, soft_wrap=True)
    for line in [*notes(found), *warnings]:
        console.print(line, style="yellow", highlight=False, soft_wrap=True)
    console.print(period_table(found))
    parts = [shares(counts[:FIRST_CLIENTS]) for counts in found.counts[:2]]
    largest = max(float(part.max()) for part in parts)
    clients = min(FIRST_CLIENTS, len(found.history))
    console.print(
        f"The first {clients} clients' training samples by {found.columns.what}; "
        f"█ is {largest:.0%} of a client's samples, · none",
        highlight=False,
    )
    console.print(SideBySide(share_tables(found, parts, largest), padding=(0, 4)))


def notes(found: Preview) -> list[str]:
    """Return what a user should know, a line each."""
    lines = []
    if found.late:
        rounds = ", ".join(map(str, found.late[:5]))
        if len(found.late) > 5:
            rounds += ", …"
        lines.append(f"After the last round, so without effect: changes at {rounds}")
    if len(found.starts) == 1:
        lines.append("Nothing changes in this run")
    if found.arriving is not None:
        # Here and not above: torch, which it needs, is there with the first stream.
        from cfl_flower.data.worlds.stream import say_share

        lines.append(say_share(found.arriving, found.total))
    if found.idle:
        lines.append(found.idle)
    sizes = found.periods[0].sizes
    if not sizes.all():
        from cfl_flower.data.worlds.stream import say_empty

        lines.append(say_empty(int((sizes == 0).sum()), len(sizes)))
    return lines


def parse_arguments(arguments: Sequence[str]) -> tuple[list[str], Path | None]:
    """Return the overrides, and the picture's path if there is to be one.

    Raises `ConfigError`.
    """
    parser = Parser("preview", __doc__)
    parser.add_overrides()
    parser.add_argument("--output", type=Path, help="a picture")
    found = parser.parse_overrides(arguments)
    if found.output is None:
        return found.overrides, None
    from simulations.reporting.charts import check_format

    output: Path = found.output.expanduser()
    check_format(output)
    ok = output.parent.is_dir() and not output.is_dir()
    require(ok, "--output", output, "a file in an existing folder")
    return found.overrides, output


@command
def main(arguments: Sequence[str]) -> None:
    """Print and draw a preview, and return the exit code."""
    overrides, output = parse_arguments(arguments)
    composed = compose_plain(overrides)
    # torch with the classes of all groups, once the keys are right.
    from cfl_flower.config.compose import check_settings
    from cfl_flower.config.warnings import find_warnings
    from cfl_flower.server_app import open_stream

    config = check_settings(composed)
    found = preview(open_stream(config), config.rounds)
    title = headline(config)
    found = with_names(found, getattr(config.dataset, "names", ()))
    console = make_console()
    show(found, title, console, find_warnings(config))
    if output:
        from simulations.previewing.picture import draw
        from simulations.reporting.charts import save

        with writable("--output", output, "name another file"):
            save(draw(found, title), output)
        many = config.clients > CLIENTS
        some = f" ({CLIENTS} of {config.clients:,} clients)" if many else ""
        console.print(f"saved in {output}{some}", soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
