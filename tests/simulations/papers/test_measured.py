"""What a run measures for a table, and how a row of it is printed."""

from dataclasses import replace

import pytest

from cfl_flower.analysis.saved import SavedRun
from cfl_flower.config.compose import compose_config
from simulations.papers.measured import Outcome, find_row_leads
from simulations.papers.published import Cell, PublishedTable, load_tables

TABLES = load_tables()


def test_an_outcome_prints_the_published_figure_and_the_difference():
    table = PublishedTable("", "", "", "best", 1.5, {"a": []}, ["a"], {})
    cell = Cell("row", "a", 90.0, [])
    ours = Outcome({0: 91.0, 1: 92.0}, {0: 90.0, 1: 91.0})
    assert ours.line(table, cell, "+2.5") == [
        *("row", "a", "91.5", "90.5", "+2.5", "90.0", "+1.5"),
        "reproduced",
    ]
    # Half the 95% interval of three is 2.48 times their deviation, 4 here.
    three = Outcome({0: 96.0, 1: 100.0, 2: 104.0}).line(table, cell)
    assert three[2:] == [*("100.0 ± 9.9", "-", "-", "90.0", "+10.0"), "above"]
    wide = Outcome({0: 95.0, 1: 100.0, 2: 104.0}).line(table, cell)
    assert wide[2:] == [*("99.7 ± 11.2", "-", "-", "90.0", "+9.7"), "reproduced"]
    failed = Outcome(reasons=["why"]).line(table, cell)
    assert failed[2:] == ["failed", "-", "-", "90.0", "-", ""]
    diverged = ["round 3: none of 4 clients; client 0: non-finite: arrays with NaN"]
    assert Outcome(reasons=diverged).line(table, cell)[2] == "collapsed"
    assert Outcome(reasons=[*diverged, "why"]).line(table, cell)[2] == "failed"
    part = Outcome({0: 80.0}, {}, ["why"]).line(table, cell)
    assert part[2:] == [*("80.0", "-", "-", "90.0", "-10.0"), "below, without 1 failed"]
    scaled = Outcome({0: 90.0}).line(table, cell, scale=0.5)
    assert scaled[-2:] == ["-", "not comparable"]
    unknown = Outcome({0: 80.0}).line(table, replace(cell, published=None))
    assert unknown[2:] == ["80.0", "-", "-", "-", "-", "no published figure"]
    faster = replace(table, measure="speed-up accuracy", against="b", tolerance=0.2)
    some = Outcome({0: 1.3, 1: None}).line(faster, replace(cell, published=1.27))
    assert some[2:] == [
        *("1.30", "-", "-", "1.27", "+0.03"),
        "reproduced, without 1 never",
    ]
    never = Outcome({0: None, 1: None}).line(faster, cell)
    assert never[2:] == ["never", "-", "-", "90.00", "-", ""]


def test_the_methods_of_a_row_are_tested_together():
    table = PublishedTable("", "", "", "final", 1.5, {"a": []}, ["a"], {})
    values = {
        ("mnist", "fedavg"): {0: 90.0, 1: 90.0, 2: 90.0},
        ("mnist", "a"): {0: 93.0, 1: 94.0, 2: 93.5},
        ("mnist", "b"): {0: 91.0, 1: 92.0, 2: 91.2, 3: 70.0},
        ("mnist", "c"): {0: 80.0, 1: 92.0, 2: 91.2},
        ("other", "a"): {0: 93.0},
    }
    outcomes = [(Cell(*at, None, []), Outcome(some)) for at, some in values.items()]
    assert find_row_leads(table, outcomes) == {
        ("mnist", "a"): "+3.5 ± 1.2",
        ("mnist", "b"): "+1.4 ± 1.3, no lead",  # it is one beside fewer methods
        ("mnist", "c"): "-2.3 ± 16.7, no lead",
    }
    # A difference is relative already.
    relative = replace(table, against="other table")
    (_, _, other, _, _) = outcomes
    assert find_row_leads(relative, [other])["mnist", "b"].startswith("+86.")


def test_the_best_round_is_one_after_everyone_could_take_part(tmp_path):
    asked = ["clients=6", "participants=3", "partition.groups=3", "rounds=4"]
    config = compose_config([*asked, f"output_dir={tmp_path}"])
    row = {"cluster_sizes": [6], "failures": [], "bytes_up": 1, "bytes_down": 1}
    accuracies = (0.9, 0.8, 0.6, None)
    lines = [{"round": t, "accuracy": a, **row} for t, a in enumerate(accuracies, 1)]
    run = SavedRun(tmp_path, [], config.resolved, lines, [])
    table = TABLES["flexcfl_table4"]
    assert table.value(run) == pytest.approx(60.0)
    few = replace(run, resolved={**config.resolved, "participants": 1})
    assert table.value(few) == pytest.approx(60.0)
    # A run that lacks a result of a client may be another one next time.
    lacking = replace(run, rounds=[{**lines[0], "failures": [{}]}])
    outcome = Outcome({0: 60.0, 1: None}, saved=[run, lacking])
    told = outcome.line(table, table.cell("mnist_mclr_swap_all", "fedavg"))[-1]
    assert told.endswith(", without 1 never, without 1 client results")


def test_a_figure_is_a_mean_over_kinds_of_the_rounds_that_validation_chose(tmp_path):
    table = TABLES["flux_grid"]
    first, *others = table.cell("mnist_8", "fedavg").parts
    assert first.row == "mnist_8_px"
    assert [each.row[-3:] for each in others] == ["_py", "pyx", "pxy"]
    assert "dataset.colour=true" in first.overrides
    names = ("round", "validation_accuracy", "accuracy_mean")
    curves = [[(1, 0.5, 0.6), (2, 0.7, 0.4), (3, 0.6, 0.9)], [(1, 0.5, 0.8)]]
    lines = [[dict(zip(names, of, strict=True)) for of in curve] for curve in curves]
    runs = [SavedRun(tmp_path, [], {}, each, []) for each in lines]
    assert table.value(*runs) == pytest.approx(60.0)


def test_bytes_are_compared_with_the_models_of_fedavg(tmp_path):
    figure = TABLES["flexcfl_figure6"]
    config = compose_config(["model=mclr", "rounds=4", "participants=5"])
    # 650 parameters, to and from five clients in four rounds.
    equal = {"bytes_up": 52_000, "bytes_down": 52_000}
    run = SavedRun(tmp_path, [], config.resolved, [], [], equal)
    assert figure.value(run) == 100
    more = replace(run, summary={"bytes_up": 52_000, "bytes_down": 78_000})
    assert figure.value(more) == 125
    assert figure.unit == "bytes in % of FedAvg's"
    assert TABLES["flexcfl_table4"].unit == "accuracy in %, best"
