"""A served folder: the models of a run's clusters, and who finds which.

A device reads one without Ray and Hydra.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from cfl_flower.clustering.representations import Distance, distances, label_histogram
from cfl_flower.data.datasets.own import Folder
from cfl_flower.data.reading.files import intact
from cfl_flower.errors import ConfigError
from cfl_flower.runs.reading import refuse_links_out
from cfl_flower.settings import require
from cfl_flower.types import FloatArray, Json
from simulations.engines.flower_cli import need

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
        if directory.get("format", 1) != FORMAT:
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


def histogram_of(directory: dict[str, Json], data: Path) -> FloatArray:
    """Return the label histogram of a folder's training samples, shape (L,).

    Centres of another kind, and a folder without samples, are a `ConfigError`.
    """
    kind = directory["representation"]
    if kind != HISTOGRAM:
        raise ConfigError(f"centres are of {kind}; give one with --representation FILE")
    shape = tuple(directory["shape"])
    names = tuple(directory["names"])
    classes = int(directory["classes"])
    train, _ = Folder(shape, classes, names).load(str(need(data, "name a folder")))
    return label_histogram(train.labels, classes)
