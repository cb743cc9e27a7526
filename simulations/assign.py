"""The cluster of a client that never took part, by a saved run or a served folder.

    python -m simulations.assign outputs/my-run --client 3 7
    python -m simulations.assign outputs/my-run --clients 500 --client 400-499
    python -m simulations.assign outputs/my-run --client 3 --unlabelled
    python -m simulations.assign outputs/my-run --client 0 --data-dir /data/site-d
    python -m simulations.assign served --data-dir /data/site-d
    python -m simulations.assign served --data-dir site-d.csv

SOURCE is a run's output_dir, or what `simulations.export` wrote. The method's client
compares, by what the method does (`simulations.assignment`): losses, directions, inputs
or representations. Clients of a run on real devices have folders, one of which is asked
about at a time. A served folder takes samples in a folder, or raw rows of a table; it
prints the cluster, how well it fits, its folder and, with label shares, what to add to
outputs. Exit codes as `simulations.run`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from cfl_flower.clustering.representations import log_label_shares
from cfl_flower.errors import one_line
from cfl_flower.settings import require
from simulations.assignment import open_run, open_served
from simulations.engines.flower_cli import need
from simulations.served import CARD, DIRECTORY, folders_of
from simulations.shell.terminal import Parser, command


def assign_from_served(asked: argparse.Namespace) -> None:
    """Print the cluster and the model of a device, as the command line asks."""
    allowed = "the folder or the table of a device's samples"
    require(asked.data_dir is not None, "--data-dir", None, allowed)
    data = need(Path(asked.data_dir), f"name {allowed}")
    opened = open_served(asked.source, data, asked.unlabelled)
    found = opened.assign(0, opened.done, asked.unlabelled).found
    folder = one_line(str(folders_of(asked.source)[found.cluster]))
    print(f"cluster {found.cluster}, {found.by} {found.fit:.3f}: {folder}")
    resources = opened.resources
    if resources.settings["strategy"].label_shares and not asked.unlabelled:
        labels = resources.stream.view(0, opened.done).labels
        shares = log_label_shares(labels, resources.stream.classes)
        added = shares.astype(float).round(3).tolist()
        print(f"add to its outputs, label by label: {added}")


def assign_from_run(asked: argparse.Namespace) -> None:
    """Print the clusters of a saved run's clients, as the command line asks."""
    opened = open_run(asked.source, asked.clients, asked.data_dir)
    last = opened.resources.settings["rounds"]
    server_round = opened.done if asked.round is None else asked.round
    allowed = f"a round from 1 to {last}"
    require(1 <= server_round <= last, "--round", server_round, allowed)
    table = Table("client", "true concept", "cluster", "by", "", "", "accuracy")
    table.title = f"clusters of {opened.method}"
    tested = []
    for client in (client for each in asked.client for client in each):
        concept, found, share = opened.assign(client, server_round, asked.unlabelled)
        accuracy = "-"
        if share is not None:
            tested.append(share)
            accuracy = f"{100 * share:.1f}"
        joins = "joins" if found.joins else "one of its own, from that model"
        where = map(str, (client, concept, found.cluster))
        table.add_row(*where, found.by, f"{found.fit:.3f}", joins, accuracy)
    console = Console()
    console.print(table)
    if tested:
        mean = 100 * float(np.mean(tested))
        console.print(f"{len(tested)} clients, mean accuracy {mean:.2f} %")


def numbers(text: str) -> list[int]:
    """Read a client's number, or a range with both ends.

    Examples
    --------
    >>> numbers("3"), numbers("5-7")
    ([3], [5, 6, 7])
    """
    first, _, last = text.partition("-")
    found = list(range(int(first), int(last or first) + 1))
    if not found:
        raise ValueError(f"{text} is empty")
    return found


@command
def main(arguments: Sequence[str]) -> None:
    """Assign clients and return the exit code."""
    parser = Parser("assign", __doc__)
    add = parser.add_argument
    add("source", type=Path, metavar="SOURCE")
    words = "numbers, or 400-499"
    add("--client", nargs="+", type=numbers, default=[], help=words)
    add("--clients", type=int, help="divide the data among as many")
    add("--round", type=int, help="of the data; the run's last")
    add("--unlabelled", action="store_true", help="use no labels")
    add("--data-dir", help="the data, or a device's own samples, a folder or a table")
    asked = parser.parse_args(arguments)
    allowed = "the folder of a run, or one that export made"
    require(asked.source.is_dir(), "folder", asked.source, allowed)
    above = f"the folder above, with {DIRECTORY}"
    require(not (asked.source / CARD).exists(), "folder", asked.source, above)
    if (asked.source / DIRECTORY).exists():
        for name in ("client", "clients", "round"):
            value = getattr(asked, name)
            require(not value, f"--{name}", value, "a run's folder; this one is served")
        assign_from_served(asked)
    else:
        require(bool(asked.client), "--client", "none", "the clients of the run")
        assign_from_run(asked)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
