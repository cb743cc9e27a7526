"""The ServerApp: runs each strategy on the same data, drifts and seed."""

from __future__ import annotations

import sys

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fielding.strategy import first_arrays, make_strategy
from fielding.utils import HEAD, row

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run the strategies that were named, one after the other, and print a table."""
    config = context.run_config
    drifts = [int(each) for each in str(config["drift-rounds"]).split(",") if each]
    rows = []
    for name in str(config["strategy"]).split(","):
        result = make_strategy(name, context).start(
            grid=grid,
            initial_arrays=first_arrays(int(config["seed"])),
            num_rounds=int(config["num-server-rounds"]),
        )
        rows.append(row(name, result, drifts))
    sys.stdout.write("\n".join([HEAD, *rows, ""]))
