"""However many samples one client claims, the others' models are the same."""

import math
from contextlib import nullcontext

import numpy as np
import pytest

from cfl_flower.client import attacks
from cfl_flower.communication.exact_sum import ExactSum
from cfl_flower.communication.outstanding import PendingMessage
from cfl_flower.communication.partial_sums import check_single
from cfl_flower.config.options import list_options
from cfl_flower.errors import InvalidResultError
from cfl_flower.privacy.clipping import capped_losses
from cfl_flower.types import Answer, Plan, SumSpec, Task
from tests.conftest import WHOLE

COUNT = ["faults.attackers=[2]", "faults.attack=count", "strategy.weighting=samples"]
ALL = ["participants=12", "rounds=2"]
OPTIONS = {
    "fedccfa": ["strategy.row_weighting=samples", "strategy.start=0"],
    "fedfm": ["strategy.start=0"],
    "flux": ["rounds=4"],
    "feddrift": ["rounds=4", "drift.rounds=[2]"],
}
"""What a method needs to weigh by numbers of samples."""
EXTRACTORS = ("fedccfa", "fedfm", "fedpac", "fedrep", "fedbabu")
WITHOUT_ROUNDS = ("ccfl", "fedasync", "fedbuff", "fedsoft", "local_async")
"""Who claims more is slower there: with the smaller claim, too, it comes only once."""
KINDS = (
    *("fedavg", "fielding", "flexcfl", "ccfl", "stocfl", "scaffold"),
    # Who weigh by numbers of samples themselves.
    *("fedccfa", "fedfm", "fedpac"),
)


@pytest.mark.parametrize(
    "options",
    [
        *(
            pytest.param([f"strategy={name}"], marks=[] if name in KINDS else WHOLE)
            for name in list_options("strategy")
        ),
        ["strategy=fedavg", "server_optimizer=qfedavg"],
        ["strategy=fedavg", "selection=oort", "participants=6", "rounds=5"],
        ["strategy=fedavg", "privacy.secure_sums=true"],
        ["strategy=fielding", "privacy.secure_sums=true"],
        ["strategy=fedavg", "strategy.robust=clip"],
    ],
    ids=" ".join,
)
def test_a_larger_claim_changes_nothing_more(options, run_small, monkeypatch):
    name = options[0].partition("=")[2]
    found = []
    for power in (24 if name in WITHOUT_ROUNDS else 12, 36):
        monkeypatch.setattr(attacks, "CLAIMED", 2**power)
        model = "mlp" if name in EXTRACTORS else "mclr"
        own = [f"model={model}", *OPTIONS.get(name, []), *options]
        run = run_small(*ALL, *COUNT, *own, folder=str(power))
        assert not [each for each in run.failures if each["reason"] == "raised"]
        found.append((run.numbers, run.state.models))
    (numbers, models), (others, other_models) = found
    assert numbers == others
    np.testing.assert_array_equal(np.stack(models), np.stack(other_models))


def test_a_loss_counts_for_a_multiple_of_the_median_or_of_a_nat():
    honest = [0.01, 0.02, 3.0]
    assert capped_losses(np.array(honest), 10).tolist() == honest
    assert capped_losses(np.array([*honest, 1e15]), 10).max() == 15.1
    assert capped_losses(np.array([0.1, 0.1, math.inf]), 10).max() == 10
    assert capped_losses(np.array([0.1, 0.1, 1e15]), None).max() == 1e15


@pytest.mark.parametrize(("weight", "valid"), [(7, True), (40, False), (2**28, False)])
def test_a_device_cannot_weigh_more_behind_a_mask_than_it_tells(weight, valid):
    spec = SumSpec((0,), by_samples=True, masked=True, most=40)
    plan = Plan([Task(0, (0,))], [np.zeros(2, np.float32)], reply=(2,), sum_spec=spec)
    total = ExactSum.empty(2)
    total.add(np.ones(2, np.float32), weight)
    pending = PendingMessage("train", 1, plan, plan.tasks, None, {(0, 0)})
    # Seven samples are told; and what is told beyond the cap counts for the cap.
    for told, expected in ((7, valid), (2**30, weight == spec.most)):
        with nullcontext() if expected else pytest.raises(InvalidResultError):
            check_single({(0, 0): total}, pending, Answer(0, num_examples=told))
