from collections.abc import Sequence
from typing import Any

import pytest

from cfl_flower.analysis.drift_metrics import (
    Score,
    churn,
    count_moved,
    forgetting,
    score,
)
from cfl_flower.analysis.scorecards import ACCURACIES, COSTS, Column, cell, score_table


def rounds(*accuracies: float | None) -> list[dict[str, Any]]:
    return [
        {"round": i + 1, "accuracy": value, "bytes_up": 10, "bytes_down": 20}
        for i, value in enumerate(accuracies)
    ]


def test_a_score_equals_the_values_computed_by_hand():
    found = score(rounds(0.8, 0.9, 0.5, 0.7, 0.88, 0.92, 0.6, 0.9), [3, 7])
    assert found["before"] == pytest.approx((0.9 + 0.92) / 2)
    assert found["just_after"] == pytest.approx((0.5 + 0.6) / 2)
    assert found["recovered"] == pytest.approx((0.92 + 0.9) / 2)
    # Within two points of 0.9 in the third round, of 0.92 in the second.
    assert found["rounds_to_recover"] == pytest.approx((3 + 2) / 2)
    assert found["final"] == 0.9
    assert found["mean"] == pytest.approx(0.775)
    assert (found["bytes_up"], found["bytes_down"]) == (80, 160)


def test_a_run_has_recovered_within_two_points():
    assert score(rounds(0.9, 0.885), [2])["rounds_to_recover"] == 1
    assert score(rounds(0.9, 0.875), [2])["rounds_to_recover"] is None


@pytest.mark.parametrize(("just_after", "spent"), [(0.8, 1), (0.9, 0)])
def test_a_prequential_test_comes_before_anything_is_spent(just_after, spent):
    # Round 2 trains on the old data, and is tested on those of round 3.
    found = score(rounds(0.9, just_after, 0.9), [2], ahead=1)
    assert found["rounds_to_recover"] == spent
    assert found["bytes_to_recover"] == spent * 30


@pytest.mark.parametrize("later", [[4], [4, 9], [4, 4]])
def test_a_test_on_data_after_the_run_s_tells_of_no_recovery(later):
    """The test of round 4 is on data of round 5, on which nobody trains."""
    found = score(rounds(0.9, 0.5, 0.6, 0.95), [2, *later], ahead=1)
    assert (found["just_after"], found["recovered"]) == (0.5, 0.6)
    assert found["never_recovered"]
    assert found["rounds_to_recover"] is None
    assert found["final"] == 0.95
    alone = score(rounds(0.9, 0.8, 0.7, 0.6), later, ahead=1)
    assert (alone["just_after"], alone["never_recovered"]) == (None, False)


def test_failures_are_counted_by_task_and_a_refused_report_is_no_failed_test():
    lines = rounds(0.5, 0.6)
    failed = [("train", 3), ("train", 3), ("evaluate", 3), ("evaluate", 4)]
    failures = [{"phase": phase, "client": client} for phase, client in failed]
    # Client 3 uploads as it likes; client 4 was tested, and its report refused.
    lines[0] |= {"participants": 8, "failures": failures}
    lines[1] |= {"participants": 2, "failures": [{"phase": "query", "client": 5}]}
    tests = [
        {"round": t, "client": client, "cluster": 0, "accuracy": 0.5}
        for t, client in [(1, 4), (1, 5), (2, 3), (2, 4), (2, 5)]
    ]
    found = score(lines, [], tests=tests)
    assert (found["failed_trainings"], found["trainings"]) == (2, 10)
    assert (found["failed_tests"], found["tested"]) == (1, 6)


@pytest.mark.parametrize(("reached", "said"), [(7, "7"), (1136, "1136"), (2.5, "2.5")])
def test_rounds_are_written_as_numbers(reached, said):
    (column,) = (each for each in COSTS if each.key == "reached")
    assert cell([{"reached": reached, "target": 0.5}], column) == said


def test_class_agreement_counts_where_a_class_has_several_meanings():
    lines = rounds(0.8, 0.9, 0.7, 0.6)
    lines[0] |= {"class_ari": [0.5, 0.5], "class_meanings": [1, 1]}
    lines[1] |= {"class_ari": [0.2, 0.8, None], "class_meanings": [1, 2, 2]}
    lines[3] |= {"class_ari": [0.0, 0.4, 0.2], "class_meanings": [1, 2, 3]}
    # The second round has 0.8, the fourth 0.3; the others say nothing.
    assert score(lines, [])["class_ari"] == pytest.approx((0.8 + 0.3) / 2)
    assert score(rounds(0.8), [])["class_ari"] is None


def test_sparse_tests_are_scored_from_the_tested_rounds():
    # Tested every third round: before the drifts in 3 and 6, after them in 6 and 9.
    lines = rounds(None, None, 0.9, None, None, 0.7, None, None, 0.8, 0.7)
    found = score(lines, [5, 8])
    assert found["before"] == pytest.approx((0.9 + 0.7) / 2)
    assert found["just_after"] is None
    assert found["recovered"] == pytest.approx((0.7 + 0.7) / 2)
    assert found["never_recovered"]  # 0.7 in the only test of rounds 5 to 7
    # From round 8 to the first test that shows it, in round 9.
    second = score(lines, [8])
    assert (second["before"], second["recovered"]) == (0.7, 0.7)
    assert (second["rounds_to_recover"], second["bytes_to_recover"]) == (2, 2 * 30)


def test_a_mean_over_drifts_needs_all_of_them():
    found = score(rounds(0.8, None, 0.6, 0.8), [2, 3])
    assert found["just_after"] is None
    assert found["recovered"] is None
    assert found["before"] is None
    # One drift without a test, and one that was not recovered from: never.
    lost = score(rounds(0.8, None, 0.8, 0.5), [2, 4])
    assert lost["never_recovered"]
    assert cell([lost], ACCURACIES[3]) == "never"


def test_a_target_is_reached_where_the_accuracy_stays_above_it():
    reference = rounds(0.9, 0.7, 0.95, 0.7, 0.8)
    found = score(rounds(0.5, 0.9, 0.7, 0.8, 0.9), [], reference)
    assert (found["target"], found["reached"]) == (0.8, 4)
    assert found["speedup"] == pytest.approx(5 / 4)
    never = score(rounds(0.5, 0.9, 0.7), [], reference)
    assert (never["reached"], never["speedup"]) == (None, None)
    assert score(rounds(0.5, 0.9), [])["reached"] is None
    assert score(rounds(0.5), [], rounds(None))["target"] is None


def test_costs_and_clusters_equal_the_values_computed_by_hand():
    lines = rounds(0.8, 0.9, 0.5, 0.7, 0.88)
    for line, clusters, ari in zip(
        lines, [1, 2, 2, 3, 2], [0.0, 1, 1, 0.5, 1], strict=True
    ):
        line |= {"num_clusters": clusters, "ari": ari}
    tests = [
        {"round": round, "client": client, "cluster": int(client < round)}
        for round in range(1, 6)
        for client in range(10)
    ]
    found = score(lines, [3], tests=tests)
    assert found["best"] == 0.9
    # Three rounds of 10 up and 20 down.
    assert (found["rounds_to_recover"], found["bytes_to_recover"]) == (3, 90)
    assert (found["clusters"], found["ari"]) == (2, pytest.approx(0.7))
    # In each of four rounds one of ten clients moves.
    assert found["churn"] == pytest.approx(1 / 10)
    assert score(lines, [3])["churn"] is None


def seeded(scores: dict[str, list[Score]]) -> dict[str, list[Score]]:
    """Return scores with their seeds."""
    return {
        name: [{"seed": seed, **each} for seed, each in enumerate(entries)]
        for name, entries in scores.items()
    }


def cells(scores: dict[str, list[Score]], columns: Sequence[Column]) -> list[list[str]]:
    """Return the cells of a printed table, row by row."""
    made = score_table("title", seeded(scores), columns, "a caption")
    assert "a caption" in made.caption
    return [list(line) for line in made.lines]


def test_a_column_without_any_number_is_left_out_and_a_lone_gap_is_a_dash():
    one, two = score(rounds(None, 0.912), []), score(rounds(0.4, 0.8), [2])
    (row,) = cells({"fedavg": [one]}, ACCURACIES)
    assert row == ["fedavg", *["91.2"] * 4]
    first, second = cells({"fedavg": [one], "local": [two]}, ACCURACIES)
    assert first == ["fedavg", *["-"] * 4, *["91.2"] * 4]
    recovery = ["40.0", "80.0", "80.0", "1"]
    assert second == ["local", *recovery, "80.0", "60.0", "80.0", "60.0"]
    (row,) = cells({"fedavg": [one]}, COSTS)
    assert row == ["fedavg", "0.0", "0.0"]


def test_seeds_share_a_row_with_mean_and_deviation():
    one, two = (score(rounds(0.5, final), [2]) for final in (0.8, 0.9))
    ((_, before, after, *_, mean),) = cells({"a": [one, two]}, ACCURACIES)
    assert before == "50.0 ± 0.0"
    assert after == "85.0 ± 7.1"
    assert mean == "67.5 ± 3.5"
    # A seed that never recovers has no time, and no mean with the others.
    slow = score(rounds(0.9, 0.5), [2])
    pairs = {"a": [one, slow], "b": [one, one]}
    ((*_, recover, _, _, _, _), _) = cells(pairs, ACCURACIES)
    assert recover == "never"


def test_time_to_accuracy_ends_with_the_round_from_which_it_stays():
    timed, reference, better = (
        [{**row, "virtual_seconds": 10.0 * row["round"]} for row in rounds(*accuracies)]
        for accuracies in ([0.5, 0.8, 0.7, 0.8, 0.9], [0.5] * 4 + [0.75], [0.95])
    )
    found = score(timed, [], reference)
    assert (found["reached"], found["seconds_to_reach"]) == (4, 10 + 20 + 30 + 40)
    assert found["speedup"] == pytest.approx(1.5)
    assert score(timed, [], better)["seconds_to_reach"] is None
    # From the drift up to the round that is as good as the one before.
    assert score(timed, [3])["seconds_to_recover"] == 30 + 40
    # Real devices have no virtual time: rounds are compared.
    untimed = score(rounds(0.5, 0.8), [], reference)
    assert (untimed["seconds_to_reach"], untimed["speedup"]) == (None, 2.5)


def test_missed_targets_are_never_and_untimed_ones_a_dash():
    reference = rounds(0.9)
    slow = score(rounds(0.9, 0.5, 0.6), [2], reference)
    fast = score(rounds(0.9, 0.5, 0.9), [2], reference)
    for column in COSTS[:5]:
        assert cell([slow], column) == "never", column
    assert cell([fast], COSTS[1]) == cell([fast], COSTS[3]) == "-"


def rows(**rounds: list[int | None]) -> list[dict[str, Any]]:
    """Return tests of clients 0, 1, ... in rounds r1, r2, ..., None if not tested."""
    return [
        {"round": int(name[1:]), "client": client, "cluster": cluster}
        for name, clusters in rounds.items()
        for client, cluster in enumerate(clusters)
        if cluster is not None
    ]


@pytest.mark.parametrize(
    ("before", "after", "moved"),
    [
        ([0, 0, 1, 1], [0, 0, 1, 1], 0),
        ([0, 0, 1, 1], [7, 7, 3, 3], 0),  # other numbers
        ([0, 0, 0, 1, 1], [1, 1, 0, 0, 0], 1),  # exchanged, and one moves
        ([0, 0, 0, 1, 1], [0, 0, 0, 0, 0], 2),  # merged: the smaller one moves
        ([0, 0, 0, 0], [0, 0, 0, 1], 1),  # split: the smaller part moves
        ([0, 1, 2], [0, 0, 0], 2),
    ],
)
def test_a_cluster_is_identified_by_its_members(before, after, moved):
    assert count_moved(before, after) == moved


@pytest.mark.parametrize(
    ("tests", "expected"),
    [
        # None of four, then two of four, then one of four.
        (
            rows(r1=[0, 0, 1, 1], r2=[0, 0, 1, 1], r3=[0, 0, 0, 2], r4=[0] * 4),
            (0 + 1 / 4 + 1 / 4) / 3,
        ),
        # Who is in one of two tests is left out.
        (rows(r1=[0, 0, 1, 1], r2=[0, 1, 1, None]), 1 / 3),
        # One of four in the five rounds from 5 to 10, and nobody in the next one.
        (rows(r5=[0, 0, 1, 1], r10=[0, 1, 1, 1], r11=[0, 1, 1, 1]), 1 / 4 / 6),
    ],
)
def test_churn_is_the_mean_over_the_rounds_between_tests(tests, expected):
    assert churn(tests) == pytest.approx(expected)


def line(client: int, accuracies: Sequence[float | None]) -> list[dict[str, Any]]:
    return [
        {"round": t, "client": client, "accuracy": each}
        for t, each in enumerate(accuracies, 1)
        if each is not None
    ]


def test_forgetting_is_of_the_first_concept_when_it_returns():
    tests = [
        *line(0, [0.8, 0.9, 0.2, 0.3, 0.5, 0.9]),
        # It was not tested just before, and just after.
        *line(1, [0.7, None, 0.2, 0.3, None, 0.6]),
        # These never leave, never return, or return before they are tested again.
        *line(2, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]),
        *line(3, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]),
        *line(4, [0.1, 0.2, 0.3, None, 0.5, 0.6]),
    ]
    back = [0, 0, 1, 1, 0, 0]
    concepts = {0: back, 1: back, 2: [3] * 6, 3: [0, 0, 1, 1, 2, 2]}
    concepts[4] = [0, 0, 1, 0, 1, 0]
    assert forgetting(tests, concepts) == pytest.approx((0.4 + 0.1) / 2)
    assert forgetting(tests, dict.fromkeys(range(5), [0] * 6)) is None
    # Of a concept that returns twice, the first time counts.
    twice = {0: [0, 1, 0, 1, 0, 0]}
    assert forgetting(line(0, [0.8, 0.1, 0.6, 0.1, 0.2]), twice) == pytest.approx(0.2)


def test_epsilon_has_a_column_where_it_was_measured():
    common = {"accuracy": 0.5, "bytes_up": 1, "bytes_down": 1}
    lines = [{"round": t, **common} for t in (1, 2)]
    plain = score(lines, [])
    measured = [row | {"epsilon": 2.0 * row["round"]} for row in lines]
    private = score(measured, [])
    assert plain["epsilon"] is None
    headings = [
        score_table("cost", seeded({"fedavg": [each]}), COSTS).headings
        for each in (plain, private)
    ]
    assert "epsilon" not in headings[0]
    assert headings[1][-1] == "epsilon"
    # Of the last round, by which all that was sent has been counted.
    assert cell([private, private], COSTS[-1]) == "4 ± 0"
