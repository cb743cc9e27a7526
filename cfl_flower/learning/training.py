"""Local training with torch, independent of Flower."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from cfl_flower.learning import by_name
from cfl_flower.learning.gradients import (
    TRAINING_PASSES,
    Loss,
    closed_form,
    dense_gradient_writer,
    gradient_writer,
)
from cfl_flower.learning.optimizer import LocalTraining, add_penalties, stepper
from cfl_flower.learning.testing import switch_mode
from cfl_flower.models import FlatModel
from cfl_flower.seeding import one_torch_thread
from cfl_flower.settings import require
from cfl_flower.types import Vector

WHOLE = slice(None)
"""All weights of a network."""


@dataclass(frozen=True, eq=False)
class TrainingJob:
    """One training: the arguments of `train`, which says what they are."""

    model: FlatModel
    x: Tensor
    y: Tensor
    settings: LocalTraining
    rng: np.random.Generator
    anchor: Tensor | None
    loss: Loss | None
    part: slice
    correction: Tensor | None
    seed: int = 0
    """Seed of the random layers of a network in a cohort."""

    def centre(self) -> Tensor | None:
        """Return the centre of the proximal term, shape (p,) of ``part``, if any."""
        if not self.settings.mu:
            return None
        if self.anchor is None:
            return self.model.weights[self.part].clone()
        return self.anchor[self.part]


TRAINER: ContextVar[Callable[[TrainingJob], None]] = ContextVar("trainer")
"""Trainer of this context, if not `train_alone`: a cohort of clients, which trains all
of its members at once (`client.cohort`)."""


def train(
    model: FlatModel,
    x: Tensor,
    y: Tensor,
    settings: LocalTraining,
    rng: np.random.Generator,
    *,
    anchor: Tensor | None = None,
    loss: Loss | None = None,
    part: slice = WHOLE,
    correction: Tensor | None = None,
) -> None:
    """Train a model in place from its current weights.

    The client's training data have shapes (n, ...) and (n,), without any the model
    stays as it is; ``rng`` orders the batches. The centre of the proximal term is
    ``anchor``, shape (p,), or the weights at the start. The ``loss`` of the network and
    a batch is the mean cross-entropy unless another one is given. Weights outside of
    ``part`` stay as they are; ``correction``, of the shape of ``part``, is added to
    every gradient (SCAFFOLD's c - c_i).
    """
    if y.shape[0] == 0 or model.weights[part].shape[0] == 0:
        return
    least = least_batch(model, x)
    model.passes += TRAINING_PASSES * settings.count_samples(len(y), least)
    job = TrainingJob(model, x, y, settings, rng, anchor, loss, part, correction)
    TRAINER.get(train_alone)(job)


def train_alone(job: TrainingJob) -> None:
    """Do one job, step by step."""
    model = job.model
    switch_mode(model, training=True)
    least = least_batch(model, job.x)
    layers = closed_form(model, job.loss, job.settings)
    # Bookkeeping for autograd takes a sixth of a closed form's step.
    with torch.no_grad() if layers is None else torch.inference_mode():
        step = _step_taker(job, layers)
        for x_batch, y_batch in batches(job.x, job.y, job.settings, job.rng, least):
            step(x_batch, y_batch)


def _step_taker(
    job: TrainingJob, layers: list[nn.Linear] | None
) -> Callable[[Tensor, Tensor], None]:
    """Return the function of a batch that takes a step; of `dense_layers`, if any."""
    settings = job.settings
    correction = job.correction
    weights = job.model.weights[job.part]
    gradient = job.model.gradient[job.part]
    centre = job.centre()
    whole = len(weights) == len(job.model.weights)
    changed = settings.clip or settings.weight_decay or settings.mu
    kept = not changed and correction is None
    if layers is not None and whole and settings.plain_sgd and kept:
        return dense_gradient_writer(layers, settings.learning_rate)
    write_gradient = gradient_writer(job.model, job.loss, settings)
    update = stepper(weights, gradient, settings)

    def step(x: Tensor, y: Tensor) -> None:
        write_gradient(x, y)
        add_penalties(gradient, weights, settings, centre, correction)
        update()

    return step


def least_batch(model: FlatModel, x: Tensor) -> int:
    """Return the fewest samples of which a network can take a training step.

    It is 2 where BatchNorm has one number for each channel of a sample, of which there
    is no variance. ``x`` has shape (n, ...), with n of at least 1.
    """
    if model.least_batch is None:
        norms = any(isinstance(each, _BatchNorm) for each in model.module.modules())
        model.least_batch = 1
        if norms:
            # Of a copy: a forward pass changes running statistics.
            module = model.clone().module.train()
            devices = [x.device] if x.is_cuda else []
            try:
                with torch.random.fork_rng(devices=devices), torch.no_grad():
                    module(x[:1])
            except ValueError:
                model.least_batch = 2
    return model.least_batch


def batches(
    x: Tensor,
    y: Tensor,
    settings: LocalTraining,
    rng: np.random.Generator,
    least: int = 1,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield mini-batches of n samples; every pass shuffles them again.

    A batch is a view of memory that the next pass overwrites. ``least`` is that of
    `LocalTraining.count_batches`.
    """
    in_a_pass = settings.count_batches(y.shape[0], least)
    total = settings.count_steps(y.shape[0], least)
    drawn = islice(_endless_batches(x, y, settings.batch_size, in_a_pass, rng), total)
    if not settings.augment:
        return drawn
    return ((by_name.augmented(settings.augment, some, rng), of) for some, of in drawn)


def _endless_batches(
    x: Tensor, y: Tensor, size: int, in_a_pass: int, rng: np.random.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    # One buffer for all passes: memory of its own for each cost as much as its copy.
    shuffled = [torch.empty_like(data) for data in (x, y)]
    split = (torch.split(data, size) for data in shuffled)
    parts = list(zip(*split, strict=True))[:in_a_pass]
    while True:
        order = torch.from_numpy(rng.permutation(y.shape[0])).to(y.device)
        for data, buffer in zip((x, y), shuffled, strict=True):
            torch.index_select(data, 0, order, out=buffer)
        yield from parts


def pretrain(
    model: FlatModel,
    initial: Vector,
    x: Tensor,
    y: Tensor,
    settings: LocalTraining,
    rng: np.random.Generator,
    key: str,
) -> Vector:
    """Return a model after training on the server, the same bits on any machine.

    The weights of ``model`` are overwritten; ``initial`` has shape (d,), ``x`` and
    ``y`` (n, ...) and (n,). ``key`` is that of the settings, for errors. Raises
    `ConfigError` if the training diverged.
    """
    with one_torch_thread():
        train(model.load(initial), x, y, settings, rng)
    trained = model.to_vector()
    allowed = "a smaller one: the training on the server diverged"
    finite = bool(np.isfinite(trained).all())
    require(finite, f"{key}.learning_rate", settings.learning_rate, allowed)
    return trained
