"""Methods of clusters whose clusters never did anything are named."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cfl_flower.analysis.idle import WITHOUT_CLUSTERS, find_idle, say_idle
from cfl_flower.analysis.saved import SavedRun, load_run

ONE = "all clients were in one cluster in every round"
ALONE = "each client was a cluster of its own in every round"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["strategy=fielding", "partition.groups=1", "drift=none"], ONE),
        (["strategy=cfl"], ONE),
        (["strategy=auxo"], ONE),
        (["strategy=flux", "strategy.latest=1", "strategy.gain=1e-9"], ONE),
        (["strategy=stocfl", "strategy.threshold=1", "participants=12"], ALONE),
        (["strategy=fielding"], ""),
        # Nothing changed, and nothing had to.
        (["strategy=fielding", "drift=none"], ""),
        # Of these nobody expects clusters.
        (["strategy=fedavg"], ""),
        (["strategy=local"], ""),
        (["strategy=static"], ""),
    ],
)
def test_what_clusters_did_not_do_is_said(options, said, undisturbed):
    run = load_run(undisturbed(*options).folder)
    found = find_idle({"ours": [run]})
    assert found == ([f"ours: {said}"] if said else [])


def with_clusters(run: SavedRun, clusters: Sequence[Sequence[int]]) -> SavedRun:
    """Return a run of four clients in clusters of its own in each round."""
    sizes = [[own.count(number) for number in range(5)] for own in clusters]
    pairs = zip(run.rounds, sizes, strict=True)
    tests = [
        {**run.tests[0], "round": number, "client": client, "cluster": cluster}
        for number, own in enumerate(clusters, 1)
        for client, cluster in enumerate(own)
    ]
    rounds = [{**row, "cluster_sizes": own} for row, own in pairs]
    return replace(run, rounds=rounds, tests=tests)


@pytest.mark.parametrize(
    ("clusters", "said"),
    [
        # Empty clusters are none, whichever they are.
        ([[0, 0, 0, 0], [3, 3, 3, 3], [0, 0, 0, 0], [2, 2, 2, 2]], ONE),
        ([[0, 1, 2, 3], [3, 2, 1, 0], [0, 1, 2, 3], [4, 1, 2, 3]], ALONE),
        ([[0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 1, 1], [0, 0, 0, 1]], ""),
    ],
)
def test_clusters_are_who_is_with_whom(clusters, said, undisturbed):
    run = load_run(undisturbed("strategy=fielding").folder)
    assert run.drifts == [3]
    assert say_idle(with_clusters(run, clusters)) == said


def test_seeds_are_counted(undisturbed):
    run = load_run(undisturbed("strategy=fielding").folder)
    idle = with_clusters(run, [[0, 0, 0, 0]] * 4)
    assert find_idle({"a": [run, idle, idle]}) == [f"a: {ONE} (with 2 of 3 seeds)"]


def test_every_method_either_has_clusters_or_is_named():
    folder = Path(__file__).parents[3] / "conf" / "strategy"
    methods = {file.stem for file in folder.glob("*.yaml")}
    clustered = "fielding flexcfl fedgroup ifca fesem stocfl cfl auxo feddrift flux"
    more = "feroma ccfl fedsoft oracle pacfl feddag"
    assert methods - {*WITHOUT_CLUSTERS} == {*clustered.split(), *more.split()}
    assert methods >= {*WITHOUT_CLUSTERS}
