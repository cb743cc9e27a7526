from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.client.attacks import malicious_clients, spoil_labels, spoil_report
from cfl_flower.client.faults import Faults
from cfl_flower.clustering.representations import check_histogram
from cfl_flower.errors import ConfigError
from tests.conftest import Runner

HONEST = np.float32([0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (0.25, 10), (1.0, 40)])
def test_a_share_of_all_clients_is_malicious_for_the_whole_run(
    share: float, count: int
) -> None:
    faults = Faults(malicious=share)
    assert len(malicious_clients(faults, 40, 0)) == count
    assert malicious_clients(faults, 40, 0) == malicious_clients(faults, 40, 0)


def test_malicious_clients_follow_from_the_seed() -> None:
    drawn = {malicious_clients(Faults(malicious=0.5), 40, seed) for seed in range(4)}
    assert len(drawn) == 4


@given(st.integers(0, 99), st.integers(0, 99))
def test_a_permuted_report_has_the_same_coordinates_in_the_clients_own_order(
    seed: int, client: int
) -> None:
    spoilt = spoil_report("permute", HONEST, seed, client)
    assert sorted(spoilt.tolist()) == HONEST.tolist()
    order = spoilt.argsort()
    again = spoil_report("permute", HONEST[::-1].copy(), seed, client)
    assert again[order].tolist() == HONEST[::-1].tolist()


def test_a_random_report_is_a_distribution_that_changes_with_the_true_one() -> None:
    one, again = (spoil_report("random", HONEST, 0, 3) for _ in range(2))
    other = spoil_report("random", HONEST[::-1].copy(), 0, 3)
    check_histogram(one)
    assert np.isfinite(one).all()
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_only_a_flip_changes_labels() -> None:
    labels = np.array([0, 1, 9])
    assert spoil_labels("flip", labels, 10).tolist() == [9, 8, 0]
    assert spoil_labels("permute", labels, 10) is labels
    assert spoil_report("flip", HONEST, 0, 0) is HONEST


@pytest.mark.parametrize("options", [{"malicious": 1.5}, {"attack": "lie"}])
def test_attacks_out_of_range_name_the_setting(options: dict) -> None:
    with pytest.raises(ConfigError, match=rf"faults\.{next(iter(options))}="):
        Faults(**options)


@pytest.mark.parametrize("attack", ["permute", "random", "flip"])
def test_fielding_survives_attackers_of_each_kind(
    attack: str, run_small: Runner
) -> None:
    run = run_small("faults.malicious=0.25", f"faults.attack={attack}")
    assert not [f for row in run.rounds for f in row["failures"]]
    # Three of twelve clients; a drift is still reported by all of them.
    assert run.rounds[1]["drifted"] == 12
    assert run.rounds[0]["ari"] < 1
