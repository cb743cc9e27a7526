import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch

from cfl_flower.seeding import generator, key, seed_torch, torch_seed

DRAW = (
    "from cfl_flower.seeding import generator, torch_seed;"
    "print(generator(3, 'batches', 2, 'site-a').integers(2**62),"
    " torch_seed(3, 'torch', 2, 'site-a'))"
)


@pytest.mark.slow
def test_another_process_draws_the_same_numbers():
    shown = [
        subprocess.check_output(
            [sys.executable, "-c", DRAW], env={"PYTHONHASHSEED": seed}, text=True
        )
        for seed in ("1", "2")
    ]
    here = generator(3, "batches", 2, "site-a").integers(2**62)
    assert shown[0] == shown[1] == f"{here} {torch_seed(3, 'torch', 2, 'site-a')}\n"


@pytest.mark.parametrize(
    "other",
    [(1, "batches", 3, 4), (0, "deal", 3, 4), (0, "batches", 2, 4), (0, "batches", 3)],
)
def test_draws_depend_on_seed_purpose_round_and_client(other):
    here = generator(0, "batches", 3, 4).random(4)
    assert not np.array_equal(here, generator(*other).random(4))
    assert torch_seed(0, "batches", 3, 4) != torch_seed(*other)


def test_a_draw_does_not_depend_on_earlier_draws():
    before = generator(0, "batches", 1, 1).random(3)
    generator(0, "batches", 1, 2).random(1000)
    np.random.default_rng().random()
    assert np.array_equal(generator(0, "batches", 1, 1).random(3), before)


def test_a_client_named_like_a_number_is_another_client():
    assert key(7) != key("7")
    assert torch_seed(0, "torch", 1, 7) != torch_seed(0, "torch", 1, "7")


def test_torch_is_seeded_as_by_its_own_function():
    seed_torch(5)
    ours = torch.rand(3)
    torch.manual_seed(5)
    assert torch.equal(ours, torch.rand(3))


Draws = dict[tuple[int, ...], list[tuple[str, str, int]]]


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> Draws:
    """Return where each generator was made: with which purpose, and in which line."""
    found: Draws = defaultdict(list)
    make = np.random.default_rng

    def note(entropy: list[int]) -> np.random.Generator:
        frame = sys._getframe(1)
        if frame.f_code is generator.__code__:
            purpose = frame.f_locals["purpose"]
            while frame.f_code.co_name in ("generator", "rng", "noise_generator"):
                frame = frame.f_back
            path = Path(frame.f_code.co_filename).parts[-2:]
            found[tuple(entropy)].append((purpose, "/".join(path), frame.f_lineno))
        return make(entropy)

    monkeypatch.setattr(np.random, "default_rng", note)
    return found


@pytest.mark.parametrize(
    "options",
    [
        "apfl model=mlp",
        "auxo selection=oort faults.raises=0.1",
        "ditto privacy=local partition.validation=0.2",
        "fedbabu model=mlp strategy.fine_tuning=1",
        "fedccfa model=mlp strategy.start=1",
        "fedem faults.malicious=0.2 faults.attack=random",
        "fedrep model=mlp devices.joins=[3] devices.leaves=[2]",
        "fielding strategy/privacy=laplace faults.malicious=0.2 faults.attack=random",
        "flexcfl drift=noise",
        "pfedme model=mlp",
        "stocfl strategy.representation=difference strategy.refresh=on_drift",
        "stocfl strategy.omega=sequential",
    ],
)
def test_no_two_draws_of_a_run_are_the_same(options, run_small, draws):
    run_small(*f"strategy={options}".split(), "participants=12")
    keys: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for entropy, made in draws.items():
        assert len(set(made)) == 1, "one purpose, in one line"
        purpose, path, _ = made[0]
        if path.startswith(("clients", "families")):
            assert len(made) == 1, f"{purpose} is drawn once"
            keys[purpose].append(entropy)
    assert keys
    for purpose, own in keys.items():
        # Clients draw numbers of their own, in several rounds or once.
        _, _, rounds, clients = zip(*own, strict=True)
        assert len(set(clients)) >= 9, purpose
        assert len(set(rounds)) > 1 or len(own) == len(set(clients)), purpose
