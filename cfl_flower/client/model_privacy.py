"""What leaves a client with ``privacy=local`` or ``central``, and with how much noise.

Whatever else a client would send is refused here, on the device. `privacy.settings`
says what is protected, and how.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cfl_flower.client.context import ClientContext
from cfl_flower.clustering.representations import digest
from cfl_flower.privacy.clipping import (
    clip,
    clipped_update,
    shortened,
    update_length,
)
from cfl_flower.privacy.settings import LocalPrivacy
from cfl_flower.seeding import generator, key
from cfl_flower.types import (
    FURTHER_TESTS,
    REPORT,
    UPDATE_LENGTHS,
    FloatArray,
    Scalar,
    Vector,
)

BASES = "bases"
"""Key of a plan's config: for each array of a reply, the place in the task's models of
the one that it is a new version of."""

BOUNDS = "bounds"
"""Key of a plan's config: for each array of a reply, the length that its update may
have, with ``strategy.robust=clip`` and secure sums."""

REPORTS = frozenset({REPORT, "samples"})
OF_TESTS = {f"{name}_{of}" for name in FURTHER_TESTS for of in ("correct", "tested")}

COVERED: Mapping[str, frozenset[str]] = {
    "query": frozenset(),
    "train": frozenset(),
    "evaluate": frozenset({"correct", *OF_TESTS}),
}
"""The metrics that a client may send in each phase, beside `REPORTS` with noise."""


def noise_generator(
    context: ClientContext, purpose: str, scale: object, server_round: int = 0
) -> np.random.Generator:
    """Return the generator of a client's noise, of some scale.

    Simulated clients draw from the run's seed. Who sets the seed could remove the
    noise: a real device draws from a secret that it makes and keeps. It is one for all
    runs, as the mean over runs would have less noise.
    """
    if context.secret is None:
        return generator(context.seed, purpose, server_round, context.client)
    secret = np.frombuffer(context.secret(), np.uint32)
    # One noise at two scales would cancel in their difference.
    drawn = key(f"{purpose}/{scale}")
    return np.random.default_rng([*secret.tolist(), drawn, server_round])


def protect_answer(
    privacy: LocalPrivacy,
    context: ClientContext,
    phase: str,
    parameters: Sequence[Vector],
    config: Mapping[str, Any],
    arrays: Sequence[Vector],
    metrics: Mapping[str, Scalar],
) -> tuple[Sequence[Vector], dict[str, Scalar]]:
    """Return the arrays of a client's answer as they may leave it, and further metrics.

    Raises `ValueError` if the answer has a metric that is not accounted for.
    """
    covered = COVERED[phase]
    if getattr(getattr(context.settings, "privacy", None), "whole_client", False):
        covered |= REPORTS
    if others := sorted(metrics.keys() - covered):
        sent = f"this client would send {', '.join(others)} in the {phase} phase"
        raise ValueError(f"{sent}, which privacy={privacy.mode} does not cover")
    if phase == "train":
        return _protect_models(privacy, context, parameters, config, arrays), {}
    arrays = [_protect_direction(privacy, context, array) for array in arrays]
    return _repeat_report(context, phase, arrays, metrics)


def _repeat_report(
    context: ClientContext,
    phase: str,
    arrays: Sequence[Vector],
    metrics: Mapping[str, Scalar],
) -> tuple[Sequence[Vector], dict[str, Scalar]]:
    """Return a report with its noise as it may leave, and what it changes in metrics.

    A device that is asked again in one round, as the server died, sends the report that
    it sent, even if its data have changed since.
    """
    reported = metrics.get(REPORT)
    if context.folder is None or not (arrays or isinstance(reported, bytes)):
        return arrays, {}
    state = context.state.part(f"report-{phase}")
    server_round = context.round
    if not (kept := state.at(server_round)):
        kept = {str(place): array for place, array in enumerate(arrays)}
        if isinstance(reported, bytes):
            kept[REPORT] = np.frombuffer(reported, np.float32)
            kept["samples"] = np.array([metrics["samples"]])
        state.save(server_round, kept)
    again = [kept[str(place)] for place in range(len(arrays))]
    if not isinstance(reported, bytes):
        return again, {}
    samples = int(kept["samples"][0])
    return again, {REPORT: kept[REPORT].tobytes(), "samples": samples}


def _protect_models(
    privacy: LocalPrivacy,
    context: ClientContext,
    parameters: Sequence[Vector],
    config: Mapping[str, Any],
    arrays: Sequence[Vector],
) -> list[Vector]:
    """Clip updates, with noise if it is local.

    A device that is asked again in one round, as the server died, sends the updates
    that it sent: others, and even more so another noise, would reveal more.
    """
    state = context.state.part("upload")
    server_round = context.round
    bases = [int(base) for base in str(config[BASES]).split(",") if base]
    received = [parameters[base] for base in bases]
    if context.folder is None or not (kept := state.at(server_round)):
        kept = _updates(privacy, context, received, arrays)
        if context.folder is not None:
            state.save(server_round, kept)
    return [
        (model + kept[str(place)]).astype(np.float32)
        for place, model in enumerate(received)
    ]


def bound_updates(
    parameters: Sequence[Vector], config: Mapping[str, Any], arrays: Sequence[Vector]
) -> tuple[Sequence[Vector], dict[str, Scalar]]:
    """Shorten updates to the bounds that a plan names; tell how long they were."""
    bounds = [float(bound) for bound in str(config[BOUNDS]).split(",")]
    received = [parameters[int(base)] for base in str(config[BASES]).split(",")]
    found: list[Vector] = []
    lengths: list[float] = []
    for array, base, bound in zip(arrays, received, bounds, strict=True):
        # A method with nothing to share sends an array of no numbers.
        lengths.append(update_length(array, base) if len(array) else 0.0)
        found.append(shortened(array, base, bound) if len(array) else array)
    return found, {UPDATE_LENGTHS: np.array(lengths, np.float32).tobytes()}


def _updates(
    privacy: LocalPrivacy,
    context: ClientContext,
    received: Sequence[Vector],
    arrays: Sequence[Vector],
) -> dict[str, FloatArray]:
    """Return the updates by their places."""
    found: dict[str, FloatArray] = {}
    for place, (model, base) in enumerate(zip(arrays, received, strict=True)):
        update = clipped_update(model, base, privacy.clip)
        if privacy.mode == "local":
            # By the content: one noise on two updates would cancel in their difference.
            purpose = f"privacy/{place}/{digest(update)}"
            scale = privacy.scale
            rng = noise_generator(context, purpose, scale, context.round)
            update += rng.normal(0.0, scale, len(update))
        found[str(place)] = update
    return found


def _protect_direction(
    privacy: LocalPrivacy, context: ClientContext, direction: Vector
) -> Vector:
    """Return a reported direction, (k,), with noise, brought to length 1."""
    scale = privacy.report_noise
    rng = noise_generator(context, f"privacy/report/{digest(direction)}", scale)
    noisy = clip(direction, 1.0)
    noisy += rng.normal(0.0, scale, len(noisy))
    return (noisy / np.linalg.norm(noisy)).astype(np.float32)
