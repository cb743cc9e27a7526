"""Who leads, in a sentence and in the charts of a page that compare methods."""

from dataclasses import replace

import pytest

from cfl_flower.analysis.saved import SavedRun
from simulations.reporting.charts import GREY
from simulations.reporting.curves import curves, find_leaders
from simulations.reporting.sections import Stream, divide, question
from tests.simulations.conftest import changed


def test_who_leads_is_said_first(run):
    runs = [changed(run, seed=seed) for seed in range(3)]
    better = enumerate((0.03, 0.01, 0.02))
    runs += [changed(run, by, "fielding", seed=seed) for seed, by in better]
    (stream,) = divide(runs)
    last = 100 * run.rounds[-1]["accuracy"] + 2
    assert stream.finding == (
        f"fielding is the most accurate at the end, with {last:.1f} ± 1.0%, but not "
        "clearly: 2.0 points ahead of fedavg (95% interval -0.5 to 4.5; p = 0.07 with "
        "Holm's correction for all methods)."
    )
    leads = stream.tables[1]
    assert [line[1] for line in leads.lines] == ["+2.0 ± 2.5, no lead"]
    assert question([stream]) == "2 methods under drift regroup on digits, 3 seeds"
    (own,) = divide(runs, "fielding")
    leads = own.tables[1]
    assert leads.title == "lead over fielding, in points"
    assert [line[1] for line in leads.lines] == ["-2.0 ± 2.5, no lead"]


def test_bounds_do_not_lead(run):
    for bound in ("local", "oracle"):
        better = changed(run, 0.05, bound)
        (stream,) = divide([run, better])
        assert stream.finding.startswith(f"{run.strategy} has ")
        (alone,) = divide([better])
        assert alone.finding == ""


@pytest.mark.parametrize(
    ("lost", "best", "said"),
    [
        ([], "fielding", ""),
        ([("fielding", 1), ("fielding", 2)], "fedavg", "fielding: 1 of 3 seeds"),
        ([("fedavg", 1), ("fedavg", 2)], "fedavg", "fedavg: 1 of 3 seeds"),
        ([("fedavg", 0), ("fielding", 1), ("fielding", 2)], "", "fielding: 1 of 3"),
    ],
)
@pytest.mark.parametrize("absent", [True, False])
def test_methods_are_compared_by_the_seeds_that_all_ran_to_the_end(
    run, lost, best, said, absent
):
    ahead = {"fedavg": (0, 0, 0), "fielding": (-0.01, 0.02, 0.04)}
    runs = []
    for name, by in ahead.items():
        for seed in range(3):
            found = changed(run, by[seed] - 0.2 * seed, name, seed=seed)
            if (name, seed) not in lost:
                runs.append(found)
            elif not absent:
                # Killed before the drift, where its accuracy was higher.
                begun = [{**row, "accuracy": 1.0} for row in found.rounds[:1]]
                runs.append(replace(found, rounds=begun))
    (stream,) = divide(runs)
    assert stream.finding.partition(" ")[0] == best
    assert ("with the seeds that all have" in stream.finding) == bool(lost and best)
    assert said in stream.tables[0].caption
    broken = (
        [] if absent else [f"({name}, 1 rounds) is in no table" for name, _ in lost]
    )
    told = zip(sorted(stream.left_out), broken, strict=True)
    assert all(part in line for line, part in told)
    assert sum(map(len, stream.scores.values())) == 6 - len(lost)
    assert " at round 3," in stream.tables[0].title


def test_what_differs_or_is_there_twice_is_told(run):
    other = changed(run, 0.1, "fielding", participants=1)
    again = changed(run, 0.2, system=run.resolved["system"] | {"task_timeout": 9})
    (stream,) = divide([run, other, again])
    count = run.resolved["participants"]
    names = [f"fedavg participants={count}", "fielding participants=1"]
    assert [line.label for line in stream.lines] == names
    assert stream.finding.startswith(names[1])
    (line,) = stream.left_out
    assert line.startswith(f"{run.folder} (fedavg, 4 rounds) is in no table: ")


def stream_of(run: SavedRun, *methods: str) -> Stream:
    """Return three seeds of methods, each a point more accurate than the one before."""
    (stream,) = divide(
        [
            changed(run, 0.01 * place + 0.001 * seed, method, seed=seed)
            for place, method in enumerate(methods)
            for seed in range(3)
        ]
    )
    return stream


def test_references_are_grey_and_the_best_of_many_stand_out(run):
    stream = stream_of(run, "fedavg", "a", "b", "c", "d", "e", "oracle")
    assert find_leaders(stream.begun) == ["e", "d", "c"]
    styles = {line.label: (line.colour, tuple(line.dashes)) for line in stream.begun}
    assert styles["fedavg"] == (GREY, (6, 3))
    assert styles["oracle"][0] == GREY
    assert len({styles[name][0] for name in "abcde"} - {GREY}) == 5
    chart = curves(stream.begun, "accuracy", "accuracy", percent=True)
    tests = {
        each["mark"]["type"]: each["encoding"]["opacity"]["condition"]["test"]
        for each in chart.layers
        if "opacity" in each["encoding"] and each["mark"]["type"] in ("area", "line")
    }
    assert "indexof(['e', 'd', 'c', 'fedavg', 'oracle'], datum.method)" in tests["line"]
    # Bands of many are mud: that of an isolated method is shown.
    assert tests["area"].startswith("isolated === null ? false")
