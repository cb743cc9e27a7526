from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.client.attacks import (
    malicious_clients,
    spoil_answer,
    spoil_labels,
    spoil_report,
)
from cfl_flower.client.faults import Faults
from cfl_flower.errors import ConfigError
from cfl_flower.types import Answer

HONEST = np.float32([0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize(("share", "count"), [(0.0, 0), (0.25, 10), (1.0, 40)])
def test_a_share_of_all_clients_is_malicious_for_the_whole_run(share, count):
    drawn = malicious_clients(Faults(malicious=share), 40, 0)
    assert len(drawn) == count
    assert malicious_clients(Faults(malicious=share), 40, 0) == drawn
    # Attackers are named beside those who are drawn.
    named = Faults(malicious=share, attackers=[7, 39])
    assert malicious_clients(named, 40, 0) == drawn | {7, 39}


@given(st.integers(0, 99), st.integers(0, 99))
def test_a_permuted_report_has_the_same_coordinates_in_the_clients_own_order(
    seed, client
):
    spoilt = spoil_report("permute", HONEST, seed, client)
    assert sorted(spoilt.tolist()) == HONEST.tolist()
    order = spoilt.argsort()
    again = spoil_report("permute", HONEST[::-1].copy(), seed, client)
    assert again[order].tolist() == HONEST[::-1].tolist()


def test_only_a_flip_changes_labels():
    labels = np.array([0, 1, 9])
    assert spoil_labels("flip", labels, 10).tolist() == [9, 8, 0]
    assert spoil_labels("permute", labels, 10) is labels
    assert spoil_report("flip", HONEST, 0, 0) is HONEST


@pytest.mark.parametrize("options", [{"malicious": 1.5}, {"attack": "lie"}])
def test_attacks_out_of_range_name_the_setting(options):
    with pytest.raises(ConfigError, match=rf"faults\.{next(iter(options))}="):
        Faults(**options)


RECEIVED = [np.float32([0, 0, 0, 0]), np.float32([9, 9, 9, 9])]
TRAINED = np.float32([9.1, 9.2, 9.3, 9.4])


def spoilt(attack: str, phase: str = "train", **answer: Any) -> Answer:
    found = Answer(3, [TRAINED, np.float32([1])], 12, **answer)
    spoil_answer(attack, found, phase, RECEIVED, np.random.default_rng(0))
    return found


@pytest.mark.parametrize(("attack", "times"), [("scale", -10), ("signflip", -1)])
def test_an_update_is_what_a_model_differs_by_from_the_one_that_it_is_of(attack, times):
    model, other = spoilt(attack).arrays
    assert np.allclose(model - RECEIVED[1], times * (TRAINED - RECEIVED[1]), atol=1e-4)
    # What is of no received model's length is an update itself.
    assert other.tolist() == [times]


def test_noise_has_the_deviation_that_it_is_said_to_have():
    wide = np.zeros(10_000, np.float32)
    answer = Answer(3, [wide], 12)
    spoil_answer("noise", answer, "train", [wide], np.random.default_rng(0))
    assert np.std(answer.arrays[0]) == pytest.approx(1e5, rel=0.05)


@pytest.mark.parametrize("attack", get_args(get_type_hints(Faults)["attack"]))
@pytest.mark.parametrize("phase", ["query", "train", "evaluate"])
def test_an_attack_spoils_what_it_names_and_nothing_else(attack, phase):
    report = {"representation": TRAINED.tobytes(), "samples": 3}
    answer = spoilt(attack, phase, metrics=dict(report))
    trains = phase == "train" and attack in ("scale", "signflip", "noise")
    represents = phase == "query" and attack == "embedding"
    assert np.array_equal(answer.arrays[0], TRAINED) != (trains or represents)
    counts = phase == "train" and attack == "count"
    assert answer.num_examples == (2**28 if counts else 12)
    assert (answer.metrics == report) == (attack not in ("embedding", "count"))
    assert all(array.dtype == np.float32 for array in answer.arrays)


def test_a_claim_of_samples_is_of_each_kind_that_there_is():
    counts = np.float32([0, 4, 1]).tobytes()
    answer = spoilt("count", "train", metrics={"classes": counts, "counts": counts})
    for name in ("classes", "counts"):
        claimed = np.frombuffer(answer.metrics[name], np.float32)
        assert claimed.tolist() == [0, 2**28, 2**28]


@pytest.mark.parametrize("attack", ["scale", "signflip", "noise", "count"])
def test_named_attackers_spoil_models_and_are_not_among_the_honest(
    attack, run_small, undisturbed
):
    options = ["strategy=fedavg", "strategy.weighting=samples"]
    run = run_small(*options, "faults.attackers=[2]", f"faults.attack={attack}")
    last = run.rounds[-1]
    assert last["accuracy_honest"] is not None
    assert last["loss"] != undisturbed(*options).rounds[-1]["loss"]
