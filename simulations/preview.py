"""Who holds what, and when it changes, before any training.

    python -m simulations.preview drift=sudden partition=dirichlet

Arguments are Hydra's overrides. Exit codes as `simulations.run`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import numpy as np
from rich.columns import Columns as SideBySide
from rich.console import Console
from rich.table import Table

from cfl_flower.config.composition import compose_plain
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.console import make_console
from cfl_flower.types import FloatArray
from simulations.periods import Period, Preview, preview, shares
from simulations.shell.terminal import Parser, command

FIRST_CLIENTS = 20
"""Clients in the text."""

BLOCKS = "▁▂▃▄▅▆▇█"


def bars(share: FloatArray, largest: float) -> str:
    """Return one block per label, or a dot for one not held.

    A full block stands for the largest share.
    """
    levels = np.ceil(share / (largest or 1.0) * len(BLOCKS)).astype(int)
    return "".join("·" if level == 0 else BLOCKS[level - 1] for level in levels)


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
    left_out = found.total - len(found.periods)
    for period in found.periods:
        if left_out and period is found.periods[-1]:
            table.add_row(f"… {left_out:,} periods left out")
        sizes = (np.min(period.sizes), np.median(period.sizes), np.max(period.sizes))
        table.add_row(
            period.rounds.split()[1],
            f"{period.concepts:,}",
            *("–" if n is None else f"{n:,}" for n in (period.moved, period.changed)),
            *(f"{size:,g}" if size < 1e5 else f"{size:,.0f}" for size in sizes),
        )
    return table


def share_table(period: Period, heading: str, largest: float) -> Table:
    """Return a text picture of the first clients in a period."""
    table = Table(box=None, padding=(0, 1, 0, 0), title_justify="left")
    table.title = period.rounds.capitalize()
    for name in ("client", "samples"):
        table.add_column(name, justify="right")
    table.add_column(heading, no_wrap=True)
    for client, row in enumerate(shares(period.counts[:FIRST_CLIENTS])):
        size = f"{period.sizes[client]:,}"
        table.add_row(str(client), size, bars(row, largest))
    return table


def show(
    found: Preview, title: str, console: Console, warnings: Sequence[str] = ()
) -> None:
    """Print a preview, and what makes the run probably not what was meant."""
    console.print(title, style="bold", highlight=False, soft_wrap=True)
    for line in [*found.notes, *warnings]:
        console.print(line, style="yellow", highlight=False, soft_wrap=True)
    console.print(period_table(found))
    parts = [shares(each.counts[:FIRST_CLIENTS]) for each in found.ends]
    largest = max(float(part.max()) for part in parts)
    console.print(
        f"The first {len(parts[0])} clients' training samples by {found.kind}; "
        f"█ is {largest:.0%} of a client's samples, · none",
        highlight=False,
    )
    heading = f"{found.names[0]} to {found.names[-1]}"
    tables = [share_table(period, heading, largest) for period in found.ends]
    console.print(SideBySide(tables, padding=(0, 4)))


@command
def main(arguments: Sequence[str]) -> None:
    """Print a preview, and return the exit code."""
    parser = Parser("preview", __doc__)
    parser.add_overrides()
    words = "say in what clients differ: labels, inputs or their relation"
    parser.add_argument("--diagnose", action="store_true", help=words)
    asked = parser.parse_overrides(arguments)
    composed = compose_plain(asked.overrides)
    # torch with the classes of all groups, once the keys are right.
    from cfl_flower.analysis.diagnosis import show_diagnosis, sums_of
    from cfl_flower.config.compose import check_settings
    from cfl_flower.config.warnings import find_warnings
    from cfl_flower.engine.hello import scaled_by
    from cfl_flower.server_app import open_stream

    config = check_settings(composed)
    stream = open_stream(config)
    found = preview(stream, config.rounds)
    console = make_console()
    show(found, headline(config), console, find_warnings(config))
    if asked.diagnose:
        if getattr(config.dataset, "lacks_sums", False):
            # As the clients of a run agree on a scale before they are compared.
            views = (stream.view(client, 1) for client in range(config.clients))
            total = sum((each.sums() for each in views), np.zeros(()))
            stream = open_stream(scaled_by(config, total))
        rounds = {each.rounds.capitalize(): each.start for each in found.ends}
        show_diagnosis(sums_of(stream, config.clients, rounds), console)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
