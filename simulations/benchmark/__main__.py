"""What the framework costs, as ratios to a plain loop measured in the same run.

    python -m simulations.benchmark            # everything but the last, an hour
    python -m simulations.benchmark clustering # one part: a module beside this one
    python -m simulations.benchmark equal      # not a cost: false leads among equals
    python -m simulations.benchmark peers      # other libraries, on an idle machine

The reference does the same local training and the same tests with the same code, and
nothing else: no Flower, no records, no files. The other libraries are installed below
the user's cache folder (3 GB), and have a table of their own.
"""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import torch

from cfl_flower.settings import known_names
from simulations.benchmark.measure import print_table
from simulations.benchmark.peers.table import REPEATS, show
from simulations.shell.terminal import Parser, command, count

PARTS = [
    module.name
    for module in iter_modules([str(Path(__file__).parent)])
    if module.name not in ("__main__", "measure", "peers")
]
PEERS = "peers"


@command
def main(arguments: Sequence[str]) -> int:
    """Measure the selected parts; exit code 1 if a limit does not hold."""
    parser = Parser("benchmark", __doc__)
    known = ", ".join([*PARTS, PEERS])
    parser.add_argument("parts", nargs="*", metavar="PART", help=known)
    words = f"of {PEERS}: measurements of each"
    parser.add_argument("--repeats", type=count, default=REPEATS, help=words)
    words = f"of {PEERS}: measure on a busy machine, too"
    parser.add_argument("--any-load", action="store_true", help=words)
    options = parser.parse_args(arguments)
    chosen = options.parts or PARTS
    if chosen == [PEERS]:
        return show(options.repeats, options.any_load)
    for part in chosen:
        if part not in PARTS:
            parser.error(f"{part} is not a part; {known_names(part, PARTS)}")
    found = [
        row
        for part in chosen
        for row in import_module(f"simulations.benchmark.{part}").rows()
    ]
    title = f"{os.cpu_count()} cores, {platform.machine()}, torch {torch.__version__}"
    columns = ("what", "measured", "limit", "holds", "wall / CPU seconds")
    lines = [
        (row.name, row.figure, row.limit, "yes" if row.holds else "NO", row.seconds)
        for row in found
    ]
    print_table(title, columns, lines)
    return int(not all(row.holds for row in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
