"""The local optimiser: its settings, and what a step adds to the gradient of a loss.

An optimiser of torch's on f_i(w) + mu/2 ||w - a||^2, where the anchor a is the received
model (FedProx, Li et al., 2020, eq. 2) or another one (Ditto, StoCFL).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import field, replace
from functools import partial
from inspect import signature
from typing import Annotated, Any, Literal

import torch
from pydantic import AfterValidator, Field
from torch import Tensor

from cfl_flower.errors import refused
from cfl_flower.learning import by_name
from cfl_flower.settings import Count, NonNegative, Positive, require, settings

LARGE = 2**31
"""More samples or mini-batches than a client has; the product of two fits int64."""


@settings("strategy")
class LocalTraining:
    """The local optimiser's settings, the same for every method."""

    optimizer: Annotated[str, AfterValidator(str.lower)] = "sgd"
    """Name of a class of `torch.optim`: sgd, adam, adamw, nadam, rmsprop and others. It
    starts afresh in every round; its gradient has the proximal term."""
    optimizer_settings: dict[str, Any] = field(default_factory=dict)
    """Further arguments of the class, such as `{nesterov: true}`."""
    epochs: Count = 10
    """E, passes over the client's data in each round; not used when `steps` is set."""
    steps: Annotated[int, Field(ge=1, le=LARGE)] | None = None
    """Mini-batches in each round (L in Fielding), cycling over the data."""
    batch_size: Annotated[int, Field(ge=1, le=LARGE)] = 10
    """B; the last batch of a pass may be smaller."""
    last_batch: Literal["keep", "drop"] = "keep"
    """Whether a last batch of fewer than B samples is trained on; the only batch of a
    pass always is. A batch of one sample is left out where BatchNorm cannot take it."""
    learning_rate: NonNegative = 0.1
    """eta, the step size."""
    schedule: str | None = None
    """Schedule of eta over the rounds: cosine, step, or another class's name of
    `torch.optim.lr_scheduler`. A round's rate follows from its number."""
    schedule_settings: dict[str, Any] = field(default_factory=dict)
    """Arguments of the schedule, in rounds, such as `{step_size: 10, gamma: 0.1}`;
    where it asks for a length, that of the run is the default."""
    warmup: Annotated[int, Field(ge=0)] = 0
    """Rounds before the schedule, in which the rate rises to eta in equal steps."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Momentum of sgd and rmsprop; others have moments of their own."""
    weight_decay: NonNegative = 0.0
    """Strength of the L2 penalty; of adamw that of its decoupled decay."""
    clip: Positive | None = None
    """The largest norm of a batch's gradient; a longer one is shortened to it."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The share of a label that the cross-entropy spreads over all classes."""
    precision: Literal["float32", "bf16"] = "float32"
    """Precision of forward passes in training; bf16 is torch's autocast, and faster on
    hardware that has it. Weights, gradients and tests stay float32."""
    augment: list[by_name.Part] = field(default_factory=list)
    """Transforms of images, drawn anew for each sample of each batch: random_crop,
    horizontal_flip or other classes of torchvision.transforms.v2, each a name or
    `{name: settings}`."""
    mu: NonNegative = 0.0
    """Strength of the proximal term (FedProx)."""

    def __post_init__(self) -> None:
        if self.optimizer == "sgd" and not self.optimizer_settings:
            return
        cls = by_name.look_up(by_name.OPTIMIZERS, self.optimizer, "strategy.optimizer")
        ok = not self.momentum or "momentum" in signature(cls).parameters
        allowed = f"0 with optimizer={self.optimizer}, which has moments of its own"
        require(ok, "strategy.momentum", self.momentum, allowed)
        given = self.optimizer_settings
        kind = f"use settings of torch's {cls.__name__}"
        with refused(f"strategy.optimizer_settings={given} is not allowed", kind):
            # Some settings are refused by the first step alone.
            stepper(torch.zeros(1), torch.zeros(1), self)()

    def require_sgd(self, why: str) -> None:
        """Raise `ConfigError` for an optimiser that is not plain SGD."""
        ok = self.optimizer == "sgd" and not self.optimizer_settings
        allowed = f"sgd without optimizer_settings: {why}"
        require(ok, "strategy.local.optimizer", self.optimizer, allowed)

    @property
    def plain_sgd(self) -> bool:
        """Whether a step is the gradient times the rate and nothing else."""
        alone = not (self.momentum or self.optimizer_settings)
        return self.optimizer == "sgd" and alone

    @property
    def decay_in_gradient(self) -> bool:
        """Whether the L2 penalty is added here, not by an optimiser in its own way."""
        plain = self.optimizer in ("sgd", "adam") and not self.optimizer_settings
        return plain or self.optimizer == "rprop"

    @property
    def plain_loss(self) -> bool:
        """Whether the loss is the cross-entropy in float32, which has closed forms."""
        return not self.label_smoothing and self.precision == "float32"

    @property
    def changes(self) -> bool:
        """Whether the learning rate changes from round to round."""
        return self.schedule is not None or self.warmup > 0

    def rates(self, rounds: int) -> list[float]:
        """Return the rate of each round of a run, or raise `ConfigError`."""
        rate = self.learning_rate
        first = min(self.warmup, rounds)
        found = [rate * (each + 1) / (self.warmup + 1) for each in range(first)]
        rest = rounds - first
        if self.schedule is None:
            given = self.schedule_settings
            allowed = "{} without strategy.local.schedule"
            require(not given, "strategy.schedule_settings", given, allowed)
            return found + [rate] * rest
        options = json.dumps(self.schedule_settings)
        return found + by_name.scheduled_rates(self.schedule, options, rate, rest)

    def in_round(self, number: int, rounds: int) -> LocalTraining:
        """Return the settings of a round, counted from 1, with the rate it has."""
        if not self.changes:
            return self
        rate = self.rates(rounds)[min(max(number, 1), rounds) - 1]
        return replace(self, learning_rate=rate, schedule=None, warmup=0)

    def count_batches(self, samples: int, least: int = 1) -> int:
        """Return the mini-batches of one pass over the data.

        ``least`` is the fewest samples of which the network can take a step:
        `least_batch`.
        """
        whole, rest = divmod(samples, self.batch_size)
        kept = rest >= least and (self.last_batch == "keep" or whole == 0)
        return whole + (rest > 0 and kept)

    def count_steps(self, samples: int, least: int = 1) -> int:
        """Return the mini-batches of one training."""
        in_a_pass = self.count_batches(samples, least)
        return (self.steps or self.epochs * in_a_pass) if in_a_pass else 0

    def count_samples(self, samples: int, least: int = 1) -> int:
        """Return the samples in the mini-batches of one training, repeated ones too."""
        in_a_pass = self.count_batches(samples, least)
        used = min(in_a_pass * self.batch_size, samples)
        passes, rest = divmod(self.count_steps(samples, least), max(in_a_pass, 1))
        return passes * used + min(rest * self.batch_size, used)


def stepper(
    weights: Tensor, gradient: Tensor, settings: LocalTraining
) -> Callable[[], object]:
    """Return a function that takes one optimiser step in place from the gradient."""
    if settings.plain_sgd:
        # A small network's step takes a tenth of the time of torch's optimiser.
        return partial(weights.add_, gradient, alpha=-settings.learning_rate)
    return make_optimizer(weights, gradient, settings).step


def make_optimizer(
    weights: Tensor, gradient: Tensor, settings: LocalTraining
) -> torch.optim.Optimizer:
    """Return torch's optimiser of one tensor, whose steps read ``gradient``."""
    options: dict[str, Any] = {}
    if settings.momentum:
        options["momentum"] = settings.momentum
    if not settings.decay_in_gradient:
        options["weight_decay"] = settings.weight_decay
    # The whole network as one tensor: one operation per step, not one per layer.
    weights.grad = gradient
    cls = by_name.look_up(by_name.OPTIMIZERS, settings.optimizer, "strategy.optimizer")
    if weights.is_cuda and "capturable" in signature(cls).parameters:
        # Its counter stays on the GPU, so that a graph can repeat its step.
        options["capturable"] = True
    rate = settings.learning_rate
    return cls([weights], rate, **options, **settings.optimizer_settings)


def add_penalties(
    gradient: Tensor,
    weights: Tensor,
    settings: LocalTraining,
    centre: Tensor | None,
    correction: Tensor | None,
) -> None:
    """Clip a gradient and add all that is not the loss's, in place.

    All have one shape, that of one model's weights or of a row for each of k models.
    """
    clip_gradient(gradient, settings)
    if settings.weight_decay and settings.decay_in_gradient:
        gradient.add_(weights, alpha=settings.weight_decay)
    if correction is not None:
        gradient.add_(correction)
    if centre is not None:
        gradient.add_(weights - centre, alpha=settings.mu)


def clip_gradient(gradient: Tensor, settings: LocalTraining) -> None:
    """Shorten a gradient, or each row of several, as torch's `clip_grad_norm_` does."""
    if settings.clip is not None:
        norms = gradient.norm(dim=-1, keepdim=True)
        gradient.mul_((settings.clip / (norms + 1e-6)).clamp(max=1.0))
