"""The cluster of a client that never took part, by a saved run or a served folder.

    python -m simulations.assign outputs/my-run --client 3 7
    python -m simulations.assign outputs/my-run --clients 500 --client 400-499
    python -m simulations.assign outputs/my-run --client 3 --unlabelled
    python -m simulations.assign outputs/my-run --client 0 --data-dir /data/site-d
    python -m simulations.assign served --data-dir /data/site-d
    python -m simulations.assign served --representation mine.npy

SOURCE is a run's output_dir, or what `simulations.export` wrote. In a run, clients are
compared with its models (`serving.assignment`); clients of a run on real devices have
folders, one of which is asked about at a time. A served folder has the centres of the
clusters, and the nearest one is printed with its distance and its model's file.
Nothing is written. Exit codes as `simulations.run`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from cfl_flower.data.reading.files import inside, intact
from cfl_flower.errors import ConfigError, one_line, printable
from cfl_flower.settings import require
from simulations.engines.flower_cli import need
from simulations.serving.served import DIRECTORY, find, histogram_of, read_served
from simulations.shell.terminal import Parser, command


def assign_from_served(asked: argparse.Namespace) -> None:
    """Print the cluster and the model of a device, as the command line asks."""
    served = asked.source
    if (asked.data_dir is None) == (asked.representation is None):
        raise ConfigError(
            f"{served} is a served folder; give the device's samples with --data-dir, "
            "or its representation with --representation FILE.npy"
        )
    directory, centres = read_served(served)
    if asked.representation is not None:
        with intact(need(asked.representation, "save one with numpy.save")):
            point = np.asarray(np.load(asked.representation), float)
    with intact(served / DIRECTORY):
        if asked.data_dir is not None:
            point = histogram_of(directory, Path(asked.data_dir))
        cluster, gap = find(centres, directory, point)
        model = inside(served, cluster["torchscript"])
    name = printable(str(cluster["cluster"]))
    print(f"cluster {name}, distance {gap:.3f}: {one_line(str(model))}")


def assign_from_run(asked: argparse.Namespace) -> None:
    """Print the clusters of a saved run's clients, as the command line asks."""
    # A device that asks a served folder has neither Ray nor Hydra.
    from simulations.serving.assignment import (  # noqa: PLC0415
        assign,
        by_direction,
        open_run,
    )

    opened = open_run(asked.source, asked.clients, asked.data_dir)
    method = opened.saved.strategy
    settings = opened.resources.settings
    title = f"clusters of {method} by the smallest loss"
    fit = "loss"
    if by_direction(opened):
        title = f"nearest clusters, tau = {settings['strategy'].threshold:g}"
        fit = "cosine"
    allowed = "--unlabelled is for runs of strategy=stocfl"
    require(fit == "cosine" or not asked.unlabelled, "strategy", method, allowed)
    server_round = opened.done if asked.round is None else asked.round
    allowed = f"a round from 1 to {settings['rounds']}"
    require(1 <= server_round <= settings["rounds"], "--round", server_round, allowed)
    table = Table("client", "true concept", "cluster", fit, "", "accuracy", title=title)
    tested = []
    for client in (client for each in asked.client for client in each):
        found = assign(opened, client, server_round, asked.unlabelled)
        accuracy = "-"
        if found.accuracy is not None:
            tested.append(found.accuracy)
            accuracy = f"{100 * found.accuracy:.1f}"
        joins = "joins" if found.joins else "one of its own, from that model"
        where = map(str, (client, found.concept, found.cluster))
        table.add_row(*where, f"{found.fit:.3f}", joins, accuracy)
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
    add("--data-dir", help="the data, or a device's own samples")
    add("--representation", type=Path, metavar="FILE.npy")
    asked = parser.parse_args(arguments)
    allowed = "the folder of a run, or one that export made"
    require(asked.source.is_dir(), "folder", asked.source, allowed)
    if (asked.source / DIRECTORY).exists():
        assign_from_served(asked)
    else:
        require(bool(asked.client), "--client", "none", "the clients of the run")
        assign_from_run(asked)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
