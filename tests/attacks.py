"""What malicious clients cost the honest ones: every method, attack and rule.

    python -m tests.attacks --rules none,clip --seeds 0 1 2
    python -m tests.attacks --rules none,clip --attackers 4

A cell is the accuracy of the honest clients after the last round, in percent: its mean
over the seeds, and the lowest. Of 40 clients one is malicious, or as many as asked for.
"""

import argparse
import io
import sys
import tempfile
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
from rich.console import Console

from cfl_flower.analysis.saved import load_run
from cfl_flower.client.faults import Faults
from cfl_flower.config.compose import compose_config
from cfl_flower.errors import ConfigError
from cfl_flower.server_app import execute
from simulations.engines.inprocess import InProcessGrid

COMMON = (
    "clients=40 participants=20 rounds=12 partition.groups=4 drift=none "
    "strategy.weighting=samples engine=inprocess"
)
METHODS = {
    **{name: [] for name in ("fedavg", "fielding")},
    "fielding, gradients": ["strategy/representation=gradient"],
    **{name: [] for name in ("ifca", "fesem", "flexcfl", "stocfl", "fedccfa", "ccfl")},
}
ATTACKS = ["none", *get_args(get_type_hints(Faults)["attack"])]
FIRST = 7


def accuracy(method: str, attack: str, rule: str, seed: int, count: int) -> float:
    """Return the honest clients' accuracy; NaN where the method refuses the rule."""
    attackers = list(range(FIRST, FIRST + count))
    faults = [f"faults.attack={attack}", f"faults.attackers={attackers}"]
    with tempfile.TemporaryDirectory() as folder:
        own = [f"strategy={method.partition(',')[0]}", *METHODS[method]]
        own += [f"seed={seed}", f"strategy.robust={rule}", f"output_dir={folder}"]
        # With no attack the same clients are left out of the mean, and do nothing.
        own += faults if attack != "none" else []
        try:
            config = compose_config([*COMMON.split(), *own])
        except ConfigError:
            return float("nan")
        execute(InProcessGrid(), config, Console(file=io.StringIO()))
        last = load_run(Path(folder)).table("accuracy")[:, -1]
    return float(np.delete(last, attackers).mean())


def main() -> None:
    """Print a table for each rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rules", default="none,clip,median")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--attackers", type=int, default=1)
    asked = parser.parse_args()
    for rule in asked.rules.split(","):
        print(f"\n| robust={rule} | {' | '.join(ATTACKS)} |")
        print("| --- |" + " ---: |" * len(ATTACKS))
        for method in METHODS:
            print(f"| {method} |", end="", flush=True)
            for attack in ATTACKS:
                one = (method, attack, rule)
                found = [accuracy(*one, s, asked.attackers) for s in asked.seeds]
                least = f" ({100 * min(found):.1f})" if len(found) > 1 else ""
                print(f" {100 * np.mean(found):.1f}{least} |", end="", flush=True)
            print()


if __name__ == "__main__":
    sys.exit(main())
