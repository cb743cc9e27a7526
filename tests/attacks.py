"""What malicious clients cost the honest ones: every method, attack and rule.

    python -m tests.attacks                        # seed 0, one of 40 clients
    python -m tests.attacks --seeds 0 1 2 --attackers 4
    python -m tests.attacks --methods ifca --attacks none,noise --rules none,median

A cell is the accuracy of the honest clients after the last round, in percent: its mean
over the seeds, and the lowest. Runs are kept in the folder, and read when asked again.
"""

import argparse
import io
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
from rich.console import Console

from cfl_flower.client.faults import Faults
from cfl_flower.config.compose import compose_config
from cfl_flower.errors import ConfigError
from cfl_flower.server_app import execute
from simulations.engines.inprocess import InProcessGrid

COMMON = [
    *("clients=40", "participants=20", "rounds=12", "partition.groups=4"),
    *("drift=none", "strategy.weighting=samples", "engine=inprocess"),
]
METHODS = {
    "fedavg": ["strategy=fedavg"],
    "fielding": ["strategy=fielding"],
    "fielding, gradients": ["strategy=fielding", "strategy/representation=gradient"],
    "ifca": ["strategy=ifca"],
    "fesem": ["strategy=fesem"],
    "flexcfl": ["strategy=flexcfl"],
    "stocfl": ["strategy=stocfl"],
    "fedccfa": ["strategy=fedccfa"],
    "ccfl": ["strategy=ccfl"],
}
ATTACKS = ["none", *get_args(get_type_hints(Faults)["attack"])]
FIRST = 7


def accuracy(method: str, attack: str, rule: str, seed: int, options: Any) -> Any:
    """Return the honest clients' accuracy; None where the method refuses the rule."""
    attackers = list(range(FIRST, FIRST + options.attackers))
    overrides = [*COMMON, *METHODS[method], f"seed={seed}", f"strategy.robust={rule}"]
    overrides += [f"faults.attackers={attackers}".replace(" ", "")]
    if attack != "none":
        overrides.append(f"faults.attack={attack}")
    name = f"{method}-{attack}-{rule}-{options.attackers}-{seed}"
    folder = options.folder / name.replace(", ", "-")
    overrides += [f"output_dir={folder.resolve()}", *options.override]
    lines = folder / "clients.jsonl"
    if not (folder / "summary.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        # With no attack the same clients are left out of the mean, and do nothing.
        overrides += ["faults.attackers=[]"] if attack == "none" else []
        try:
            config = compose_config(overrides)
        except ConfigError:
            return None
        execute(InProcessGrid(), config, Console(file=io.StringIO()))
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    last = max(row["round"] for row in rows)
    honest = [
        row["accuracy"]
        for row in rows
        if row["round"] == last and row["client"] not in attackers
    ]
    return float(np.mean(honest))


def main(arguments: Sequence[str]) -> int:
    """Print a table for each rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", default=";".join(METHODS))
    parser.add_argument("--attacks", default=",".join(ATTACKS))
    parser.add_argument("--rules", default="none,clip,median")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--attackers", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("outputs/attacks"))
    parser.add_argument("--override", action="append", default=[])
    options = parser.parse_args(arguments)
    attacks = options.attacks.split(",")
    for rule in options.rules.split(","):
        print(f"\n| robust={rule} | {' | '.join(attacks)} |")
        print("| --- |" + " ---: |" * len(attacks))
        for method in options.methods.split(";"):
            print(f"| {method} |", end="", flush=True)
            for attack in attacks:
                found = [
                    accuracy(method, attack, rule, seed, options)
                    for seed in options.seeds
                ]
                cell = "-"
                if None not in found:
                    least = f" ({100 * min(found):.1f})" if len(found) > 1 else ""
                    cell = f"{100 * float(np.mean(found)):.1f}{least}"
                print(f" {cell} |", end="", flush=True)
            print()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
