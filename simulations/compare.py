"""Several methods on the same stream, one after the other, and a table.

    python -m simulations.compare
    python -m simulations.compare strategy=fedavg,fielding seed=0,1 rounds=50

The main job is the first line: `flwr run .` with the app's default overrides, on a
private SuperLink. Arguments are Hydra's overrides; commas sweep, and seeds share a row.
The marks fedavg, local (below) and oracle (above) are run, too, unless `--bare` is
said. A run that fails does not hide the others; with an output_dir of their own and
resume=true, finished runs are kept and interrupted ones go on. Exit codes as
`simulations.run`.
"""

from __future__ import annotations

import shlex
import sys
import tomllib
from collections.abc import Sequence

from cfl_flower.config import compose_sweep
from cfl_flower.errors import CflError, ConfigError
from cfl_flower.overrides import parse, split, with_folder
from cfl_flower.results import check_output_dir
from cfl_flower.server_app import OVERRIDES, open_stream
from simulations.run import report
from simulations.superlink import PROJECT, run_on_superlink


def default_overrides() -> list[str]:
    """Return the overrides of a plain `flwr run .`, from pyproject.toml."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())
    return split(project["tool"]["flwr"]["app"]["config"][OVERRIDES])


def with_marks(overrides: Sequence[str]) -> list[str]:
    """Add the marks to the strategies that are compared.

    Examples
    --------
    >>> with_marks(["seed=1", "strategy=fielding,local"])
    ['seed=1', 'strategy=fedavg,fielding,local,oracle']
    """
    found = []
    for override in overrides:
        (item,) = parse([override])
        if item.key_or_group != "strategy":
            found.append(override)
            continue
        many = item.is_sweep_override()
        asked = list(item.sweep_string_iterator()) if many else [str(item.value())]
        below = [mark for mark in ("fedavg", "local") if mark not in asked]
        above = [mark for mark in ("oracle",) if mark not in asked]
        found.append("strategy=" + ",".join([*below, *asked, *above]))
    return found


def compare(arguments: Sequence[str]) -> None:
    """Check every run, then submit them all as one.

    Raises
    ------
    CflError
    """
    bare = "--bare" in arguments
    asked = [argument for argument in arguments if argument != "--bare"]
    if not any(item.startswith("strategy=") for item in asked):
        asked = default_overrides() + asked
    asked = with_folder(asked if bare else with_marks(asked), "compare")
    configs = compose_sweep(shlex.join(asked))
    if any(config.engine != "ray" for config in configs):
        raise ConfigError(
            "engine: compare runs on a SuperLink; use simulations.run --multirun for "
            "other engines"
        )
    for config in configs:
        check_output_dir(config)
        open_stream(config)
    first = configs[0]
    run_on_superlink(shlex.join(asked), first.workers, first.gpus_per_worker)


def main(arguments: Sequence[str]) -> int:
    """Run the door and return the exit code."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return 0
    try:
        compare(arguments)
    except CflError as error:
        return report(error)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
