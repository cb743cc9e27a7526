"""The cluster of a client that never took part, by a saved run or a served folder.

    python -m simulations.assign outputs/my-run --client 3 7
    python -m simulations.assign outputs/my-run --clients 500 --client 400-499
    python -m simulations.assign outputs/my-run --client 3 --unlabelled
    python -m simulations.assign outputs/my-run --client 0 --data-dir /data/site-d
    python -m simulations.assign served --data-dir /data/site-d
    python -m simulations.assign served --representation mine.npy

SOURCE is a run's output_dir, or what `simulations.export` wrote. In a run, clients are
compared with its models (`simulations.assignment`); clients of a run on real devices
have folders, one of which is asked about at a time. A served folder has the centres of
the clusters, and the nearest one is printed with its distance and its model's file.
Nothing is written. Exit codes as `simulations.run`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cfl_flower.errors import CflError
from cfl_flower.settings import require
from simulations.flower_cli import report
from simulations.served import DIRECTORY, assign_from_served
from simulations.terminal import Parser


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


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = Parser("assign", str(__doc__))
    parser.add_argument("source", type=Path, metavar="SOURCE")
    parser.add_argument(
        "--client", nargs="+", type=numbers, default=[], help="numbers, or 400-499"
    )
    parser.add_argument("--clients", type=int, help="divide the data among as many")
    parser.add_argument("--round", type=int, help="of the data; the run's last")
    parser.add_argument("--unlabelled", action="store_true", help="use no labels")
    parser.add_argument("--data-dir", help="the data, or a device's own samples")
    parser.add_argument("--representation", type=Path, metavar="FILE.npy")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Assign clients and return the exit code."""
    try:
        asked = parse(arguments)
        if (asked.source / DIRECTORY).exists():
            assign_from_served(asked)
        else:
            require(bool(asked.client), "--client", "none", "the clients of the run")
            # A device that asks a served folder has neither Ray nor Hydra.
            from simulations.assignment import assign_from_run  # noqa: PLC0415

            assign_from_run(asked)
    except CflError as error:
        return report(error)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
