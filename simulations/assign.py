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

import sys
from collections.abc import Sequence
from pathlib import Path

from cfl_flower.settings import require
from simulations.served import DIRECTORY, assign_from_served
from simulations.terminal import Parser, command


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
    if (asked.source / DIRECTORY).exists():
        assign_from_served(asked)
    else:
        require(bool(asked.client), "--client", "none", "the clients of the run")
        # A device that asks a served folder has neither Ray nor Hydra.
        from simulations.assignment import assign_from_run  # noqa: PLC0415

        assign_from_run(asked)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
