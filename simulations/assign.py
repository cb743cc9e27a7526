"""Which cluster of a saved StoCFL run a client belongs to, whether it ever trained.

    python -m simulations.assign outputs/my-run --client 3 7
    python -m simulations.assign outputs/my-run --clients 500 --client 400-499
    python -m simulations.assign outputs/my-run --client 3 --unlabelled

The client takes the direction of its loss at the run's anchor and goes to the nearest
cluster; below tau the server would give it one of its own, which starts from that one's
model (StoCFL, section 4.4). With `--unlabelled` it has samples and no labels: each
cluster's model labels them, and the cluster fits whose direction that gives. Nothing is
written. Exit codes as `simulations.run`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import yaml
from rich.console import Console
from rich.table import Table

from cfl_flower.checkpoint import Checkpoint
from cfl_flower.client_app import Workshop, open_workshop
from cfl_flower.client_state import ClientState
from cfl_flower.directions import nearest_direction
from cfl_flower.errors import CflError, ConfigError
from cfl_flower.evaluation import Evaluator
from cfl_flower.settings import require
from cfl_flower.types import Json
from clients.base import Surroundings
from clients.stocfl import StoCFLClient
from simulations.run import report
from strategies.stocfl import StoCFLState


@dataclass(frozen=True)
class Assignment:
    """Where a client belongs.

    Attributes
    ----------
    client : int
    concept : int
        Its true one.
    cluster : int
        The nearest.
    cosine : float
    joins : bool
        Whether that is at least tau.
    accuracy : float or None
        Of the cluster's model on its test samples; None without any.
    """

    client: int
    concept: int
    cluster: int
    cosine: float
    joins: bool
    accuracy: float | None


def open_run(
    folder: Path, clients: int | None = None, data_dir: str | None = None
) -> tuple[Workshop, StoCFLState, int]:
    """Return what clients of a saved run need, its state, and its last round.

    Parameters
    ----------
    folder : Path
        The run's output_dir.
    clients : int, optional
        Deals the data to as many instead.
    data_dir : str, optional
        Where the data are, if not where the run found them.

    Raises
    ------
    ConfigError
        If it is no run of StoCFL.
    CheckpointError
        If its checkpoint is torn.
    """
    try:
        resolved: dict[str, Json] = yaml.safe_load((folder / "config.yaml").read_text())
        method = resolved["strategy"]["_target_"]
    except (OSError, TypeError, KeyError, yaml.YAMLError) as error:
        raise ConfigError(
            f"{folder} holds no run ({type(error).__name__}); name its output_dir"
        ) from error
    ok = method == "strategies.stocfl.StoCFL"
    require(ok, "strategy", method, "the output_dir of a run of strategy=stocfl")
    done, state = Checkpoint(folder / "checkpoint", resolved).load(StoCFLState)
    require(len(state.models) > 1, "RUN", folder, "a run in which clients took part")
    if clients is not None:
        require(clients >= 1, "--clients", clients, "at least 1")
        resolved["clients"] = clients
    if data_dir is not None:
        resolved["data_dir"] = data_dir
    return open_workshop(json.dumps(resolved)), state, done


def assign(
    workshop: Workshop,
    state: StoCFLState,
    client: int,
    round: int,
    unlabelled: bool = False,
) -> Assignment:
    """Find the cluster of a client by its data of a round: section 4.4.

    Raises
    ------
    ConfigError
        If there is no such client, or it has no samples.
    """
    settings = workshop.settings
    allowed = f"a client from 0 to {settings['clients'] - 1}, or more with --clients"
    require(0 <= client < settings["clients"], "--client", client, allowed)
    view = workshop.stream.view(client, round)
    require(len(view.labels) > 0, "--client", client, "a client with samples")
    device = StoCFLClient(
        Surroundings(
            client,
            round,
            settings["seed"],
            workshop.stream,
            workshop.model,
            Evaluator(workshop.model, {}),
            settings["strategy"],
            ClientState(workshop.state_root, client),
            workshop.copy_initial,
        )
    )
    models, sums = state.models[1:], state.sums[1:]
    if unlabelled:
        samples, _ = view.train()
        cosines = device.likeness(workshop.initial, models, sums, samples, round)
        found, cosine = int(np.argmax(cosines)), max(cosines)
    else:
        direction = device.direction(workshop.initial, round)
        found, cosine = nearest_direction(direction, sums)
    accuracy = None
    if count := len(view.test_indices):
        evaluator = Evaluator(workshop.model, {})
        accuracy = evaluator.evaluate(models[found], view)[1] / count
    concept = int(workshop.stream.timeline.concepts(round)[client])
    joins = cosine >= settings["strategy"].threshold
    return Assignment(client, concept, found + 1, cosine, joins, accuracy)


def numbers(text: str) -> list[int]:
    """Read a client's number, or a range with both ends.

    Examples
    --------
    >>> numbers("3"), numbers("5-7")
    ([3], [5, 6, 7])
    """
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's output_dir")
    parser.add_argument(
        "--client", nargs="+", type=numbers, required=True, help="numbers, or 400-499"
    )
    parser.add_argument("--clients", type=int, help="deal the data to as many")
    parser.add_argument("--round", type=int, help="of the data; the run's last")
    parser.add_argument("--unlabelled", action="store_true", help="use no labels")
    parser.add_argument("--data-dir", help="where the data are, if not there any more")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Run the door and return the exit code."""
    asked = parse(arguments)
    try:
        workshop, state, done = open_run(asked.run, asked.clients, asked.data_dir)
        round = done if asked.round is None else asked.round
        allowed = f"a round from 1 to {workshop.settings['rounds']}"
        require(1 <= round <= workshop.settings["rounds"], "--round", round, allowed)
        clients = [client for each in asked.client for client in each]
        found = [
            assign(workshop, state, client, round, asked.unlabelled)
            for client in clients
        ]
    except CflError as error:
        return report(error)
    console = Console()
    console.print(draw(found, workshop.settings["strategy"].threshold))
    tested = [each.accuracy for each in found if each.accuracy is not None]
    if tested:
        mean = 100 * float(np.mean(tested))
        console.print(f"{len(tested)} clients, mean accuracy {mean:.2f} %")
    return 0


def draw(found: Sequence[Assignment], threshold: float) -> Table:
    """Return the table of a few clients."""
    table = Table(title=f"nearest clusters, tau = {threshold:g}")
    for name in ("client", "true concept", "cluster", "cosine", "", "accuracy"):
        table.add_column(name)
    for each in found:
        accuracy = "-" if each.accuracy is None else f"{100 * each.accuracy:.1f}"
        table.add_row(
            str(each.client),
            str(each.concept),
            str(each.cluster),
            f"{each.cosine:.3f}",
            "joins" if each.joins else "one of its own, from that model",
            accuracy,
        )
    return table


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
