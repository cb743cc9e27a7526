"""Leads over seeds: by hand, as SciPy has them, and how often equal methods lead."""

from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cfl_flower.analysis.leads import (
    Lead,
    correct,
    critical_difference,
    find_lead,
    find_leads,
)

shares = st.floats(0, 1)
pairs = st.lists(st.tuples(shares, shares), min_size=2, max_size=6)


def test_lead_is_paired_by_seed():
    # Seeds differ by ten points, methods by two in each of them.
    lead = find_lead([(0.82, 0.80), (0.92, 0.90), (0.72, 0.70)])
    assert lead == Lead(0.02, 0.0, 3, None)
    assert not lead.holds
    # Differences of 1, 2 and 6 points: deviation sqrt(7), over sqrt(3).
    some = [(0.81, 0.80), (0.92, 0.90), (0.76, 0.70)]
    lead = find_lead(some)
    assert lead.mean == pytest.approx(0.03)
    assert lead.error == pytest.approx(0.01 * sqrt(7 / 3))
    known = stats.ttest_rel(*zip(*some, strict=True))
    assert lead.p == pytest.approx(known.pvalue)
    high = known.confidence_interval(0.95).high
    assert lead.half_width == pytest.approx(high - lead.mean)
    assert not lead.holds
    assert lead.in_points() == "+3.0 ± 6.6, no lead"


@pytest.mark.parametrize(
    ("pairs", "mean", "p", "said"),
    [
        # 3.5 standard errors of three seeds.
        ([(0.03, 0), (0.02, 0), (0.01, 0)], 0.02, 0.0742, "+2.0 ± 2.5, no lead"),
        ([(0.9, 0.1)], 0.8, None, "+80.0, one seed"),
        ([(0.9, 0.1), (0.8, 0.0)], 0.8, None, "+80.0, two seeds"),
        ([(0.5, 0.5)] * 4, 0.0, 1.0, "+0.0 ± 0.0, no lead"),
    ],
)
def test_few_seeds_and_equal_runs_carry_no_lead(pairs, mean, p, said):
    lead = find_lead(pairs)
    assert lead is not None and not lead.holds
    assert (lead.mean, lead.seeds) == (mean, len(pairs))
    assert lead.p == (p if p is None else pytest.approx(p, abs=1e-4))
    assert lead.in_points() == said


def test_runs_without_tests_have_no_lead():
    assert find_lead([(None, 0.5), (0.5, None)]) is None
    assert find_leads({"a": [], "b": [(None, 0.5)]}) == {}


def test_every_method_makes_the_others_harder_to_tell_apart():
    one = {"a": [(0.9, 0.8), (0.8, 0.7), (0.71, 0.6)]}
    (alone,) = find_leads(one).values()
    equal = [(0.5, 0.5), (0.6, 0.5), (0.5, 0.6)]
    several = find_leads({**one, "b": equal, "c": equal, "d": [(0.9, 0.1)]})
    assert several["a"].p == pytest.approx(3 * alone.p)  # d was not tested
    assert several["d"].p is None
    assert correct({"a": 0.9, "b": 0.6}) == {"b": 1.0, "a": 1.0}


@pytest.mark.parametrize("seeds", [3, 5])
def test_equal_methods_lead_in_one_table_of_twenty_at_most(seeds):
    rng = np.random.default_rng(seeds)
    tables, methods = 1000, 6
    values = rng.normal(size=(tables, methods + 1, seeds)).tolist()
    alone = together = of_best = 0
    for reference, *others in values:
        each = [list(zip(other, reference, strict=True)) for other in others]
        first = find_lead(each[0])
        alone += first.holds
        leads = find_leads({str(n): some for n, some in enumerate(each)})
        together += any(lead.holds for lead in leads.values())
        best, second, *rest = sorted([reference, *others], key=sum, reverse=True)
        over = [list(zip(best, other, strict=True)) for other in (second, *rest)]
        of_best += find_leads({str(n): some for n, some in enumerate(over)})["0"].holds
    # Three standard errors of a share of 5% are 2.1 points.
    assert 0.029 < alone / tables < 0.071
    assert 0.01 < together / tables < 0.071
    assert of_best / tables < 0.05


@given(pairs)
def test_lead_changes_its_sign_with_the_order(pairs):
    lead, reversed_ = find_lead(pairs), find_lead([(b, a) for a, b in pairs])
    assert lead.mean == -reversed_.mean
    assert lead.holds == reversed_.holds


def test_the_critical_difference_is_that_of_demsars_example():
    # Four classifiers on 14 datasets: q = 2.569.
    assert critical_difference(4, 14) == pytest.approx(1.25, abs=0.005)
