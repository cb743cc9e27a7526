"""`client_epochs`: what clients computed, by hand, and the time that it takes."""

import pytest

from cfl_flower.engine.simulated_devices import Devices
from cfl_flower.learning.gradients import TRAINING_PASSES
from cfl_flower.runs.record import RoundRecord
from cfl_flower.server_app import open_stream
from cfl_flower.types import EPOCHS, Result

pytestmark = pytest.mark.contract

QUIET = ["drift=none", "participants=12", "rounds=2", "strategy.local.epochs=2"]

BY_HAND = {
    # Each of 12 clients trains for two epochs, in each round.
    "fedavg": [24, 24],
    # And fine-tunes for five, before the test of the second.
    "fedavg_ft": [24, 24 + 12 * 5],
    # Both omega and theta; psi is the gradient of all samples, once.
    "stocfl": [12 * (2 + 2 + 1), 12 * (2 + 2)],
    # Twelve uploads are a round; the tests that come with them are none of it.
    "ccfl": [24, 24],
    # Three components, and the forward passes of three for the E-step.
    "fedem": [12 * (3 * 2 + 1), 12 * (3 * 2 + 1)],
}


@pytest.mark.parametrize("name", BY_HAND)
def test_epochs_are_those_of_the_method(name, run_small):
    run = run_small(f"strategy={name}", *QUIET, "system.evaluate_every=2")
    found = [row["client_epochs"] for row in run.rounds]
    assert found == pytest.approx(BY_HAND[name])
    assert run.summary["client_epochs"] == pytest.approx(sum(BY_HAND[name]))


def test_fine_tuning_takes_its_time(run_small):
    every = [*QUIET, "strategy=fedavg"]
    plain = run_small(*every)
    tuned = run_small(*every, "strategy.fine_tuning=3", folder="tuned")
    config = plain.config
    stream = open_stream(config)
    device_of = Devices().open(seed=0)
    slowest = max(
        device_of(c).seconds(3 * TRAINING_PASSES * len(stream.view(c, 1).labels), 0)
        for c in range(config.clients)
    )
    for one, other in zip(plain.rounds, tuned.rounds, strict=True):
        later = other["virtual_seconds"] - one["virtual_seconds"]
        assert later == pytest.approx(slowest)


def test_what_one_client_does_not_tell_is_not_counted_as_nothing():
    record = RoundRecord(1)
    told = [Result(0, 5, telemetry={EPOCHS: epochs}) for epochs in (1 / 3, 2)]
    record.note_epochs(told)
    assert record.row()["client_epochs"] == 2.3333
    record.note_epochs([Result(2, 5)])
    record.note_epochs(told)
    assert record.row()["client_epochs"] is None
