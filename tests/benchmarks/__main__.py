"""What the framework costs, as ratios to a plain loop measured in the same run.

    python -m tests.benchmarks            # everything but the last, half an hour
    python -m tests.benchmarks cores      # one part: a module beside this one
    python -m tests.benchmarks peers      # other libraries, on an idle machine

The other libraries are installed below the user's cache folder (3 GB), and have a table
of their own.
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
from simulations.shell.terminal import Parser, command, count
from tests.benchmarks.measure import print_table
from tests.benchmarks.peers.table import REPEATS, show

PARTS = [
    module.name
    for module in iter_modules([str(Path(__file__).parent)])
    if not module.name.startswith(("__main__", "measure", "peers", "test_"))
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
    options = parser.parse_args(arguments)
    chosen = options.parts or PARTS
    if chosen == [PEERS]:
        return show(options.repeats)
    for part in chosen:
        if part not in PARTS:
            parser.error(f"{part} is not a part; {known_names(part, PARTS)}")
    found = [
        row
        for part in chosen
        for row in import_module(f"tests.benchmarks.{part}").rows()
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
