"""Kill, freeze and damage runs at random moments, and see that no number changes.

    make chaos MINUTES=10 SEED=3
    make chaos MINUTES=10 DEVICES=1
    .venv/bin/python -m tests.chaos --minutes 2 --strategies fielding ccfl

Each method's run goes on over a real SuperLink and Ray while faults, drawn from the
seed, meet it: a process is killed with -9 or stopped for seconds, all are killed and
the newest file of the checkpoint torn at a random byte, or the disk of the run's folder
is full (root alone can mount the small one that this needs). After each end the same
command goes on with `resume=true`. In the end the rounds, the clients' rows and the
models must be those of the same run undisturbed, or the run must have said in one line
why not.

With `DEVICES=1` the clients are SuperNodes that call a SuperLink over TLS. They are
killed and started again, stopped for seconds, cut off, made to answer twice or as in an
earlier round; the server is killed, or its whole machine. In the end everything must
be as in a run of which just those results failed that are on record, all of them of
devices that a fault had met. Exit code 1 if anything is not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from rich.console import Console

from cfl_flower.environment.plugins import CONF
from tests.chaos import devices, simulated
from tests.chaos.ledger import Ledger

METHODS = sorted(path.stem for path in (CONF / "strategy").glob("*.yaml"))


def main(arguments: Sequence[str]) -> int:
    """Disturb runs for some minutes; exit code 1 if one ends otherwise than it may."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--minutes", type=float, default=10.0)
    add("--seed", type=int, default=0, help="of the faults")
    add("--strategies", nargs="+", choices=METHODS, help="one after the other")
    add("--devices", action="store_true", help="on SuperNodes")
    asked = parser.parse_args(arguments)
    part = devices if asked.devices else simulated
    console = Console()
    ledger = Ledger()
    strategies = asked.strategies or part.STRATEGIES
    for line in part.disturb_all(strategies, asked.minutes, asked.seed, ledger):
        console.print(f"{line}: {dict(ledger.ends)}")
    ledger.show(part.KINDS, console)
    return int(bool(ledger.problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
