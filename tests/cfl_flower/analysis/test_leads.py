"""Leads over seeds, against hand-computed standard errors."""

from __future__ import annotations

from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.analysis.leads import Lead, find_lead

shares = st.floats(0, 1)
pairs = st.lists(st.tuples(shares, shares), min_size=2, max_size=6)


def test_lead_is_paired_by_seed() -> None:
    # Seeds differ by ten points, methods by two in each of them.
    lead = find_lead([(0.82, 0.80), (0.92, 0.90), (0.72, 0.70)])
    assert lead == Lead(0.02, 0.0)
    assert lead.holds
    # Differences of 1, 2 and 6 points: deviation sqrt(7), over sqrt(3).
    lead = find_lead([(0.81, 0.80), (0.92, 0.90), (0.76, 0.70)])
    assert lead is not None and lead.error is not None
    assert lead.mean == pytest.approx(0.03)
    assert lead.error == pytest.approx(0.01 * sqrt(7 / 3))
    assert not lead.holds
    assert lead.in_points() == "+3.0 ± 1.5, no lead"


def test_single_seed_carries_no_lead() -> None:
    lead = find_lead([(0.9, 0.1)])
    assert lead == Lead(0.8, None)
    assert not lead.holds


def test_runs_without_tests_have_no_lead() -> None:
    assert find_lead([(None, 0.5), (0.5, None)]) is None
    assert find_lead([]) is None


@given(pairs)
def test_lead_changes_its_sign_with_the_order(pairs: list[tuple[float, float]]) -> None:
    lead, reversed_ = find_lead(pairs), find_lead([(b, a) for a, b in pairs])
    assert lead is not None and reversed_ is not None
    assert lead.mean == -reversed_.mean
    assert lead.holds == reversed_.holds
