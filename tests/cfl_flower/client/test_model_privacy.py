"""What leaves a client with privacy=: clipped updates, noise, and nothing else."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfl_flower.client.context import ClientContext, ClientState
from cfl_flower.client.model_privacy import protect_answer
from cfl_flower.privacy.settings import CentralPrivacy, LocalPrivacy
from cfl_flower.state import StrategySettings
from cfl_flower.types import Scalar, Vector
from strategies.fielding.method import FieldingSettings
from strategies.fielding.report_noise import ClientNoise

LONG = 20_000
RECEIVED = [np.full(LONG, 5, np.float32), np.zeros(LONG, np.float32)]


def context(root: Path, round: int = 1, own: bool = False) -> ClientContext:
    """Return the context of a client; of its own it is a real device."""
    nothing: Any = None
    settings, state = StrategySettings(), ClientState(root, "a")
    found = ClientContext(
        "a", round, 0, nothing, nothing, nothing, settings, state, nothing
    )
    if own:
        found.folder = root
        found.secret = str(root).zfill(64)[-64:].encode
    return found


def sent(
    privacy: LocalPrivacy,
    where: ClientContext,
    model: Vector,
    metrics: dict[str, Scalar] | None = None,
) -> Vector:
    """Return what is sent as a new version of the second received model."""
    config = {"bases": "1"}
    told = "train", RECEIVED, config, [model], metrics or {}
    return protect_answer(privacy, where, *told)[0][0]


def test_the_update_is_clipped_and_with_local_privacy_noisy(tmp_path):
    model = np.zeros(LONG, np.float32)
    model[:2] = 3, 4
    central = sent(CentralPrivacy(clip=0.5), context(tmp_path), model)
    assert central[:2] == pytest.approx([0.3, 0.4])
    assert not central[2:].any()
    local = sent(LocalPrivacy(clip=0.5, noise_multiplier=3), context(tmp_path), model)
    noise = local - central
    assert noise.std() == pytest.approx(1.5, rel=0.03)
    assert abs(noise.mean()) < 0.05


def test_the_same_task_has_the_same_noise_and_no_other_has(tmp_path):
    privacy, model = LocalPrivacy(), np.zeros(LONG, np.float32)
    first = sent(privacy, context(tmp_path), model)
    assert sent(privacy, context(tmp_path), model).tolist() == first.tolist()
    later = sent(privacy, context(tmp_path, round=2), model)
    other = sent(privacy, context(tmp_path), model + np.float32(1e-5))
    for noisy in (later, other):
        assert np.corrcoef(first, noisy)[0, 1] == pytest.approx(0, abs=0.03)


@pytest.mark.parametrize("privacy", [LocalPrivacy(), CentralPrivacy()])
def test_a_device_sends_one_answer_per_phase_and_round(tmp_path, privacy):
    numbers = np.linspace(0, 1, LONG).astype(np.float32)

    def answer(phase: str, round: int, told: Vector) -> tuple[list[bytes], Any]:
        where = context(tmp_path, round, own=True)
        where.settings = FieldingSettings(privacy=ClientNoise())
        report = {"representation": told.tobytes(), "samples": round}
        asked: tuple[Any, ...] = phase, RECEIVED, {"bases": "1"}
        honest: tuple[Any, Any] = ([], report) if phase == "evaluate" else ([told], {})
        arrays, more = protect_answer(privacy, where, *asked, *honest)
        return [array.tobytes() for array in arrays], more

    seen = list[Any]()
    # In each round another one, and a phase does not repeat another's.
    for round in (1, 2):
        for phase in ("train", "query", "evaluate"):
            first = answer(phase, round, numbers**round)
            assert answer(phase, round, numbers[::-1]) == first
            assert first not in seen
            seen.append(first)


def test_a_devices_noise_does_not_follow_from_the_seed(tmp_path):
    privacy, model = LocalPrivacy(), np.zeros(LONG, np.float32)
    places = {name: tmp_path / name for name in ("one", "two", "simulated")}
    noises = [
        sent(privacy, context(place, own=name != "simulated"), model)
        for name, place in places.items()
    ]
    assert abs(np.corrcoef(noises) - np.eye(3)).max() < 0.03


def test_a_direction_gets_noise_and_keeps_its_length(tmp_path):
    privacy, unit = LocalPrivacy(report_noise=0.01), np.zeros(LONG, np.float32)
    unit[0] = 1
    told = "query", [], {}, [unit], {}
    (noisy,), _ = protect_answer(privacy, context(tmp_path), *told)
    assert np.linalg.norm(noisy) == pytest.approx(1, abs=1e-5)
    # Its length before: the direction's and the noise's, 0.01 sqrt(d).
    assert noisy[0] == pytest.approx(1 / np.sqrt(1 + 1e-4 * LONG), rel=0.05)
    # Who sends more than a direction is heard no louder.
    loud = "query", [], {}, [unit * 100], {}
    assert protect_answer(privacy, context(tmp_path), *loud)[0][0][0] < 0.65


@pytest.mark.parametrize(
    ("phase", "metrics"),
    [
        ("train", {"cluster": 3}),
        ("train", {"start_loss": 0.5}),
        ("query", {"representation": b"", "samples": 3}),
        ("evaluate", {"correct": 3, "representation": b"", "samples": 3}),
    ],
)
def test_what_is_not_accounted_for_does_not_leave_the_client(tmp_path, phase, metrics):
    told = phase, RECEIVED, {"bases": ""}, [], metrics
    with pytest.raises(ValueError, match="which privacy=local does not cover"):
        protect_answer(LocalPrivacy(), context(tmp_path), *told)
    test = "evaluate", RECEIVED, {}, [], {"correct": 3}
    assert protect_answer(LocalPrivacy(), context(tmp_path), *test) == ([], {})


@pytest.mark.parametrize("own", [False, True])
def test_a_client_shortens_each_update_and_tells_nothing_of_it(tmp_path, own):
    # Lengths 5 and 1 of a cluster's and a global model, as StoCFL's.
    models = [RECEIVED[0].copy(), np.zeros(LONG, np.float32)]
    models[0][:2] += np.float32([3, 4])
    models[1][0] = 1
    told = "train", RECEIVED, {"bases": "0,1"}, models, {}
    for _ in range(2):  # A device that is asked again sends the same.
        arrays, more = protect_answer(
            CentralPrivacy(clip=2.0), context(tmp_path, own=own), *told
        )
        assert not more
        assert arrays[0][:2] - 5 == pytest.approx([1.2, 1.6], abs=1e-5)
        assert arrays[1].tolist() == models[1].tolist()


def test_a_histogram_with_noise_on_its_shares_is_a_distribution():
    histogram, rng = np.full(4000, 1 / 4000, np.float32), np.random.default_rng(0)
    noise = ClientNoise(noise_multiplier=1e-5)
    noisy = noise.protect(histogram, 30, rng)
    assert (noisy - histogram).std() == pytest.approx(1e-5, rel=0.05)
    assert ClientNoise().protect(histogram, 9, rng).sum() == pytest.approx(1, abs=1e-5)
    # On counts it is the larger, the more samples a client has.
    variances = noise.variances(np.array([0, 10, 20]))
    assert variances == pytest.approx([0, 1e-8, 4e-8])


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("kind", [LocalPrivacy, CentralPrivacy])
def test_no_message_changes_the_bound_on_an_update(tmp_path, kind, own):
    model = np.zeros(LONG, np.float32)
    model[0] = 1000
    config = {"bases": "1", "clip": 1e6}
    told = "train", RECEIVED, config, [model], {}
    privacy = kind(noise_multiplier=1e-3)
    (sent,), more = protect_answer(privacy, context(tmp_path, own=own), *told)
    assert np.linalg.norm(sent) < 1.5
    assert not more
