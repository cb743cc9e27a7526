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
the clusters, and the nearest one is printed with its distance, its model's file and,
with label shares, what to add to outputs. Exit codes as `simulations.run`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from safetensors.numpy import load_file

from cfl_flower.clustering.representations import (
    Distance,
    distances,
    label_histogram,
    log_label_shares,
)
from cfl_flower.data.datasets.own import Folder
from cfl_flower.data.reading.files import inside, intact
from cfl_flower.errors import ConfigError, one_line, printable
from cfl_flower.runs.reading import refuse_links_out
from cfl_flower.settings import require
from cfl_flower.types import FloatArray, IntArray, Json
from simulations.engines.flower_cli import need
from simulations.shell.terminal import Parser, command

DIRECTORY = "clusters.json"
"""Stands in a served folder, and says what else does."""

CENTRES = "centres.safetensors"
"""One row for each cluster in the directory, in its order; NaN for one without."""

FORMAT = 1
"""Number of the directory's format."""

HISTOGRAM = "label_histogram"
REMEDY = "write it with simulations.export"


def read_served(served: Path) -> tuple[dict[str, Json], FloatArray]:
    """Return the directory and the clusters' centres, shape (K, r).

    A `ConfigError` says that one is not there, damaged, of another version, or of a
    method without representations.
    """
    path = need(served / DIRECTORY, REMEDY)
    refuse_links_out(served)
    with intact(path):
        directory: dict[str, Json] = json.loads(path.read_text(encoding="utf-8"))
        if directory["format"] != FORMAT:
            raise ConfigError(
                f"{path} was written by another version of cfl-flower; write it again "
                "with simulations.export of this one"
            )
        if directory["representation"] is None:
            raise ConfigError(
                f"{directory['strategy']} compares clients by no representation; test "
                "each cluster's model on the device's samples and take the best"
            )
        return directory, _read_centres(served, directory)


def _read_centres(served: Path, directory: dict[str, Json]) -> FloatArray:
    path = need(served / CENTRES, REMEDY)
    with intact(path):
        centres: FloatArray = load_file(path)["centres"]
        clusters, width = centres.shape
        labels = directory["representation"] == HISTOGRAM
        if clusters != len(directory["clusters"]) or (
            labels and width != directory["classes"]
        ):
            raise ValueError(f"it does not fit {DIRECTORY}")
    return centres


def find(
    centres: FloatArray, directory: dict[str, Json], representation: FloatArray
) -> tuple[dict[str, Json], float]:
    """Return the nearest cluster, as the directory has it, and its distance.

    A representation, of shape (r,), that does not fit is a `ConfigError`.
    """
    fits = representation.shape == centres.shape[1:]
    allowed = f"{centres.shape[1]} numbers"
    require(fits, "--representation", representation.shape, allowed)
    require(bool(np.isfinite(representation).all()), "--representation", "NaN", allowed)
    gaps = measure(representation, centres, directory["distance"])
    nearest = int(np.nanargmin(gaps))
    return directory["clusters"][nearest], float(gaps[nearest])


def measure(point: FloatArray, centres: FloatArray, distance: Distance) -> FloatArray:
    """Return the distance to each centre, NaN where there is none.

    Examples
    --------
    >>> measure(np.array([0.0, 2.0]), np.array([[1.0, 0.0], [0.0, 1.0]]), "cosine")
    array([1., 0.])
    """
    gaps: FloatArray = distances(point[None], centres, distance)[0]
    # The distance to no centre is a number in some of them.
    gaps[np.isnan(centres).any(axis=1)] = np.nan
    return gaps


def labels_of(directory: dict[str, Json], data: Path) -> IntArray:
    """Return the labels of a folder's training samples, shape (n,).

    Centres of another kind, and a folder without samples, are a `ConfigError`.
    """
    kind = directory["representation"]
    if kind != HISTOGRAM:
        raise ConfigError(f"centres are of {kind}; give one with --representation FILE")
    shape = tuple(directory["shape"])
    names = tuple(directory["names"])
    classes = int(directory["classes"])
    train, _ = Folder(shape, classes, names).load(str(need(data, "name a folder")))
    return train.labels


def assign_from_served(asked: argparse.Namespace) -> None:
    """Print the cluster and the model of a device, as the command line asks."""
    served = asked.source
    if (asked.data_dir is None) == (asked.representation is None):
        raise ConfigError(
            f"{served} is a served folder; give the device's samples with --data-dir, "
            "or its representation with --representation FILE.npy"
        )
    directory, centres = read_served(served)
    if asked.representation is not None:
        with intact(need(asked.representation, "save one with numpy.save")):
            point = np.asarray(np.load(asked.representation), float)
    added: object = "log((n_y + 1) / (n + L)), by labels of its training samples"
    with intact(served / DIRECTORY):
        if asked.data_dir is not None:
            labels = labels_of(directory, Path(asked.data_dir))
            classes = int(directory["classes"])
            point = label_histogram(labels, classes)
            added = log_label_shares(labels, classes).astype(float).round(3).tolist()
        cluster, gap = find(centres, directory, point)
        model = inside(served, cluster["safetensors"])
    name = printable(str(cluster["cluster"]))
    print(f"cluster {name}, distance {gap:.3f}: {one_line(str(model))}")
    if directory.get("label_shares"):
        print(f"add to its outputs, label by label: {added}")


def assign_from_run(asked: argparse.Namespace) -> None:
    """Print the clusters of a saved run's clients, as the command line asks."""
    # A device that asks a served folder has neither Ray nor Hydra.
    from simulations.assignment import Opened  # noqa: PLC0415

    opened = Opened(asked.source, asked.clients, asked.data_dir)
    method = opened.saved.strategy
    settings = opened.resources.settings
    title = f"clusters of {method} by the smallest loss"
    fit = opened.fits_by
    if fit == "cosine":
        title = f"nearest clusters, tau = {settings['strategy'].threshold:g}"
    allowed = "--unlabelled is for runs of strategy=stocfl"
    require(fit == "cosine" or not asked.unlabelled, "strategy", method, allowed)
    server_round = opened.done if asked.round is None else asked.round
    allowed = f"a round from 1 to {settings['rounds']}"
    require(1 <= server_round <= settings["rounds"], "--round", server_round, allowed)
    table = Table("client", "true concept", "cluster", fit, "", "accuracy", title=title)
    tested = []
    for client in (client for each in asked.client for client in each):
        found = opened.assign(client, server_round, asked.unlabelled)
        accuracy = "-"
        if found.accuracy is not None:
            tested.append(found.accuracy)
            accuracy = f"{100 * found.accuracy:.1f}"
        joins = "joins" if found.joins else "one of its own, from that model"
        where = map(str, (client, found.concept, found.cluster))
        table.add_row(*where, f"{found.fit:.3f}", joins, accuracy)
    console = Console()
    console.print(table)
    if tested:
        mean = 100 * float(np.mean(tested))
        console.print(f"{len(tested)} clients, mean accuracy {mean:.2f} %")


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
    allowed = "the folder of a run, or one that export made"
    require(asked.source.is_dir(), "folder", asked.source, allowed)
    if (asked.source / DIRECTORY).exists():
        assign_from_served(asked)
    else:
        require(bool(asked.client), "--client", "none", "the clients of the run")
        assign_from_run(asked)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
