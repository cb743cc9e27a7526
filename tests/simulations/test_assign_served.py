"""Which cluster is the nearest to a device, by the distance that the run used."""

import subprocess
import sys

import numpy as np
import pytest

from simulations.assign import find, measure
from simulations.engines.superlink import PROJECT

# By the sum of differences the first is nearer, by their squares the second.
POINT = np.zeros(4)
CENTRES = np.array([[0.9, 0, 0, 0], [0.25, 0.25, 0.25, 0.25]])


@pytest.mark.parametrize(("distance", "nearest"), [("l1", 0), ("l2", 1)])
def test_the_distance_is_that_of_the_run(distance, nearest, tmp_path):
    directory = {
        "strategy": "fielding",
        "representation": "label_histogram",
        "distance": distance,
        "clusters": [{"cluster": 4}, {"cluster": 7}],
    }
    cluster, gap = find(CENTRES, directory, POINT)
    assert cluster == directory["clusters"][nearest]
    expected = {"l1": 0.9, "l2": 0.25}
    assert gap == pytest.approx(expected[distance])


@pytest.mark.parametrize("distance", ["l1", "l2", "js", "cosine"])
def test_no_centre_is_not_near(distance):
    centres = np.array([[np.nan, np.nan], [0.5, 0.5]])
    gaps = measure(np.array([1.0, 0.0]), centres, distance)  # type: ignore[arg-type]
    assert np.isnan(gaps[0])
    assert gaps[1] > 0


def test_a_device_finds_its_model_without_ray_and_hydra():
    code = (
        "import sys; sys.modules.update(ray=None, hydra=None, omegaconf=None);"
        "import simulations.assign"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
