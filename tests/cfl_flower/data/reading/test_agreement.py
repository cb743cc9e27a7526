"""What clients agree on, put to their data; the scale of inputs by sums."""

from typing import Any

import numpy as np
import pytest

from cfl_flower.data.reading.agreement import (
    UNITS,
    are_possible,
    carried,
    from_digits,
    in_agreed_order,
    rescaled,
    sums_of,
    to_digits,
    with_sums,
)
from cfl_flower.data.reading.scaling import Input, noted
from cfl_flower.errors import ConfigError

AGE = Input(column="age")


def parts_of(x: Any, inputs: list[Input]) -> Any:
    of = {"x": np.asarray(x, float), "y": np.zeros(len(x), np.int64)}
    names = np.array([""] * len(inputs))
    parts = {part: {**of, "inputs": names} for part in ("train", "test")}
    texts = np.asarray(list(map(str, inputs)))
    return {
        part: {**each, "inputs": np.char.replace(texts, "'", '"')}
        for part, each in parts.items()
    }


def test_a_category_that_a_site_has_not_is_0_and_one_that_nobody_knows_no_input():
    ulm, bern, rom = (Input(column="city", category=c) for c in ("Ulm", "Bern", "Rom"))
    parts = parts_of([[1, 0, 30], [0, 1, 40]], [ulm, rom, AGE])
    found = in_agreed_order(parts, [AGE, bern, ulm], "the file")
    assert found["test"]["x"].tolist() == [[30, 0, 1], [40, 0, 0]]
    with pytest.raises(ConfigError, match="column age: the run has texts, the file"):
        in_agreed_order(parts, [Input(column="age", category="old"), ulm], "the file")


def sent(x: Any, *ends: int) -> Any:
    """Return the digits of several clients' sums, as a message has them, added up."""
    digits = [sums_of(part) for part in np.split(x, ends)]
    assert max(np.abs(each).max() for each in digits) < 2**24
    return np.sum([each.astype(np.float32) for each in digits], axis=0, dtype=float)


@pytest.mark.parametrize("missing", [False, True])
def test_the_sums_of_clients_give_mean_and_deviation_of_all_their_samples(missing):
    rng = np.random.default_rng(0)
    # Seconds since 1970, a constant, and what some samples lack.
    x = rng.normal([1.7e9, 3, 0.5], [1e6, 0, 0.1], (300, 3))
    x[::7, 2] = np.nan if missing else 0.5
    total = sent(x, 40, 41)
    assert are_possible(from_digits(total))
    found = with_sums([AGE, Input(column="b", category="c"), AGE], total, missing)
    known = x[np.isfinite(x[:, 2]), 2]
    assert found[0]["mean"] == pytest.approx(x[:, 0].mean(), rel=1e-12)
    assert found[0]["deviation"] == pytest.approx(x[:, 0].std(), rel=1e-12)
    assert found[1] == Input(column="b", category="c", mean=3.0, deviation=1.0)
    assert found[2]["deviation"] == pytest.approx(known.std(), rel=1e-14)
    assert ("missing" in found[2]) is missing
    scaled = rescaled(parts_of(x, found), found)["train"]["x"]
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-6)


@pytest.mark.parametrize("scale", [3e38, 1, 1e-12, 2e-13, 1e-20, 1e-37, 1e-60, 1e-200])
def test_numbers_of_any_size_are_scaled_as_far_as_a_float32_tells_them_from_0(scale):
    x = np.random.default_rng(0).uniform(-0.5, 1, (300, 1)) * scale
    total = sent(x, 100)
    assert are_possible(from_digits(total))
    (found,) = with_sums([AGE], total, fills=False)
    if scale >= 1e-37:
        assert found["mean"] == pytest.approx(x.mean(), rel=1e-13, abs=0)
        assert found["deviation"] == pytest.approx(x.std(), rel=1e-13, abs=0)
    scaled = rescaled(parts_of(x, [found]), [found])["train"]["x"]
    assert np.abs(scaled).max() < 5


@pytest.mark.parametrize(
    ("about", "spread"),
    [
        *[(1e9, 1.84), (101325, 0.01), (1.7e9, 100), (-3e8, 1e-3), (1e30, 1e20)],
        *[(48.1374, each) for each in (2e-5, 1e-9, 1e-12)],
    ],
)
def test_a_narrow_column_far_from_0_has_its_own_deviation(about, spread):
    x = np.random.default_rng(0).normal(about, spread, (2000, 3))
    x[:, 1:] = [0.1, 0.1 * np.pi]
    x[::7, 0] = np.nan
    # The second client is apart, and a third has one sample.
    x[900:1999] += [30 * spread, 0, 0]
    own = x[np.isfinite(x[:, 0]), 0]
    # float64 itself has no more digits of numbers that are as narrow as the last.
    own -= about
    found = with_sums([AGE] * 3, sent(x, 900, 1999), fills=False)
    assert found[0]["mean"] == pytest.approx(about + own.mean(), rel=1e-15)
    assert found[0]["deviation"] == pytest.approx(own.std(), rel=1e-8)
    assert [each["deviation"] for each in found[1:]] == [1, 1]
    # Held by tens of thousands of clients, they have more digits and the same scale.
    many = carried(3**10 * sent(x, 900, 1999))
    (own, *_) = with_sums([AGE] * 3, many, fills=False)
    assert own["deviation"] == pytest.approx(found[0]["deviation"], rel=1e-8)


@pytest.mark.parametrize("constant", [48.1374, -0.1, 1 / 3, 1.7e9 + 0.3, 1e30, 1e-7])
@pytest.mark.parametrize("size", [3, 300, 2**14, 40_000])
def test_a_constant_is_one_however_many_hold_it(constant, size):
    x = np.full((size, 1), constant)
    (found,) = with_sums([AGE], sent(x, 1, size // 2), fills=False)
    assert found["mean"] == pytest.approx(constant, rel=1e-15)
    scaled = rescaled(parts_of(x, [found]), [found])["train"]["x"]
    assert np.abs(scaled).max() < 0.1
    assert found["deviation"] >= 1


@pytest.mark.parametrize("offset", [0, 1, -3e5, 1e9, 1.7e18, -1e30])
@pytest.mark.parametrize("spread", [0, 1e-3, 1, 60, 1e6])
def test_no_input_is_large_however_narrow_and_far_from_0_it_is(offset, spread):
    x = np.random.default_rng(1).normal(offset, spread, (500, 1))
    scaled_by = with_sums([AGE], sent(x, 100), fills=False)
    found = rescaled(parts_of(x, scaled_by), scaled_by)["train"]["x"]
    assert np.abs(found).max() < 5
    if spread > 1e-13 * abs(offset):
        assert found.std() == pytest.approx(1, rel=0.01)


@pytest.mark.parametrize("number", [0.0, -0.1, 2.0**-60, 3.4e38**2, -1e30, 1e-75, 0])
def test_digits_are_as_exact_as_a_float64_may_be(number):
    digits = to_digits(np.array([number]))
    assert np.abs(digits).max() < 2**24
    found = from_digits(digits)[0]
    assert found == pytest.approx(number, rel=1e-15, abs=UNITS[-1])


@pytest.mark.parametrize(
    ("sums", "possible"),
    [
        ([[2], [3], [5]], True),
        ([[0], [0], [0]], True),
        ([[-1], [0], [0]], False),
        ([[1.5], [1], [1]], False),
        ([[1], [1e30], [1]], False),
        ([[2], [3], [-5]], False),
        ([[0], [1], [1]], False),
        ([[np.nan], [1], [1]], False),
    ],
)
def test_sums_that_no_samples_have_are_refused(sums, possible):
    assert are_possible(np.array(sums, float)) is possible


def test_an_input_that_nobody_has_is_one_line():
    with pytest.raises(ConfigError, match="no client has input age to train on"):
        with_sums([AGE], np.zeros((len(UNITS), 3, 1)), fills=True)


def test_noted_numbers_stand_beside_columns_alone():
    parts = {part: {"x": np.zeros((1, 2))} for part in ("train", "test")}
    assert "inputs" not in noted(parts, mean=np.zeros(2))["train"]
