from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from cfl_flower.scorecard import Score, caught_up, score, table


def rounds(*accuracies: float | None) -> list[dict[str, Any]]:
    return [
        {"round": i + 1, "accuracy": value, "bytes_up": 10, "bytes_down": 20}
        for i, value in enumerate(accuracies)
    ]


def test_a_score_by_hand() -> None:
    found = score(rounds(0.8, 0.9, 0.5, 0.7, 0.88, 0.92, 0.6, 0.9), [3, 7])
    assert found.before == pytest.approx((0.9 + 0.92) / 2)
    assert found.just_after == pytest.approx((0.5 + 0.6) / 2)
    assert found.recovered == pytest.approx((0.92 + 0.9) / 2)
    # Within two points of 0.9 in the third round, of 0.92 in the second.
    assert found.rounds_to_recover == pytest.approx((3 + 2) / 2)
    assert found.final == 0.9
    assert found.mean == pytest.approx(0.775)
    assert (found.bytes_up, found.bytes_down) == (80, 160)


def test_who_never_recovers_from_one_drift_has_no_time() -> None:
    found = score(rounds(0.9, 0.9, 0.9, 0.5, 0.6), [3, 4])
    assert found.rounds_to_recover is None


def test_without_a_drift_only_the_curve_is_scored() -> None:
    found = score(rounds(0.5, 0.7), [])
    assert (found.before, found.just_after, found.recovered) == (None, None, None)
    assert found.final == 0.7


def test_rounds_that_were_not_tested_are_left_out() -> None:
    found = score(rounds(None, 0.6, None, 0.8), [])
    assert found.mean == pytest.approx(0.7)
    assert found.final == 0.8


def test_a_drift_after_the_end_is_of_no_interest() -> None:
    assert score(rounds(0.5, 0.7), [13]).before is None


@pytest.mark.parametrize(
    ("single", "other", "since"),
    [
        ([0.5, 0.8, 0.9], [0.8, 0.8, 0.9], 2),
        ([0.9, 0.9], [0.8, 0.8], 1),
        ([0.9, 0.5], [0.8, 0.8], None),
        ([0.5, 0.895], [0.8, 0.9], 2),  # level within a point
    ],
)
def test_catching_up_is_staying_level(
    single: list[float], other: list[float], since: int | None
) -> None:
    assert caught_up(rounds(*single), rounds(*other)) == since


def test_a_table_has_a_row_per_run_and_a_dash_where_nothing_was_measured() -> None:
    text = io.StringIO()
    one = Score(None, None, None, None, 0.912, 0.5, 1500, 2000)
    Console(file=text, width=110).print(table("title", {"fedavg": one}, "said below"))
    row = next(line for line in text.getvalue().splitlines() if "fedavg" in line)
    cells = [cell.strip() for cell in row.strip("│").split("│")]
    assert cells == ["fedavg", "-", "-", "-", "never", "91.2", "50.0", "1.5", "2.0"]
    assert "said below" in text.getvalue()
