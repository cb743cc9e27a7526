"""Local training with torch, independent of Flower.

An optimiser of torch's on f_i(w) + mu/2 ||w - a||^2, where the anchor a is the received
model (FedProx, Li et al., 2020, eq. 2) or another one (Ditto, StoCFL).
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import signature
from itertools import islice
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import AfterValidator, Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm

from cfl_flower.learning import by_name
from cfl_flower.learning.dense_gradients import dense_gradient_writer, dense_layers
from cfl_flower.learning.testing import BLOCK, switch_mode
from cfl_flower.models import FlatModel
from cfl_flower.settings import Count, NonNegative, Positive, require, settings
from cfl_flower.types import Vector

TRAINING_PASSES = 3
"""Cost of a training step per sample, in forward passes."""

WHOLE = slice(None)
"""All weights of a network."""

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


class SampleLoss(ABC):
    """A loss that a cohort can map over its clients."""

    @abstractmethod
    def __call__(self, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """Return the mean over a batch, as any `Loss`."""

    @property
    @abstractmethod
    def alike(self) -> Hashable:
        """What is equal for clients whose losses differ in their ``tensors`` alone."""

    @property
    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """What is this client's own."""

    @abstractmethod
    def of_samples(
        self, module: nn.Module, x: Tensor, y: Tensor, *own: Tensor
    ) -> Tensor:
        """Return each sample's loss, (n,), with a client's ``tensors``."""


"""The loss of a network on a batch."""


@settings("strategy")
class LocalTraining:
    """The local optimiser's settings, the same for every method."""

    optimizer: Annotated[str, AfterValidator(str.lower)] = "sgd"
    """Name of a class of `torch.optim`: sgd, adam, adamw, nadam, rmsprop and others. It
    starts afresh in every round; its gradient has the proximal term."""
    optimizer_settings: dict[str, Any] = field(default_factory=dict)
    """What else the class takes, such as `{nesterov: true}`."""
    epochs: Count = 10
    """E, passes over the client's data in each round; not used when `steps` is set."""
    steps: Count | None = None
    """Mini-batches in each round (L in Fielding), cycling over the data."""
    batch_size: Count = 10
    """B; the last batch of a pass may be smaller."""
    last_batch: Literal["keep", "drop"] = "keep"
    """Whether a last batch of fewer than B samples is trained on; the only batch of a
    pass always is. A batch of one sample is left out where BatchNorm cannot take it."""
    learning_rate: NonNegative = 0.1
    """eta, the step size."""
    schedule: str | None = None
    """How eta changes from round to round: cosine, step, or another class's name of
    `torch.optim.lr_scheduler`. A round's rate follows from its number."""
    schedule_settings: dict[str, Any] = field(default_factory=dict)
    """What the class takes, in rounds, such as `{step_size: 10, gamma: 0.1}`; where it
    asks for a length, that of the run is the default."""
    warmup: Annotated[int, Field(ge=0)] = 0
    """Rounds before the schedule, in which the rate rises to eta in equal steps."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Of sgd and rmsprop; others have moments of their own."""
    weight_decay: NonNegative = 0.0
    """Strength of the L2 penalty; of adamw that of its decoupled decay."""
    clip: Positive | None = None
    """The largest norm of a batch's gradient; a longer one is shortened to it."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The share of a label that the cross-entropy spreads over all classes."""
    precision: Literal["float32", "bf16"] = "float32"
    """Of forward passes in training; bf16 is torch's autocast, and faster on hardware
    that has it. Weights, gradients and tests stay float32."""
    augment: list[by_name.Part] = field(default_factory=list)
    """Transforms of images, drawn anew for each sample of each batch: random_crop,
    horizontal_flip or other classes of torchvision.transforms.v2, each a name or
    `{name: settings}`."""
    mu: NonNegative = 0.0
    """Strength of the proximal term (FedProx)."""
    buffers: Literal["average", "local"] = "average"
    """BatchNorm's running means and variances are averaged with the weights; or each
    client keeps its own, and returns those that it received."""

    def __post_init__(self) -> None:
        if self.optimizer == "sgd" and not self.optimizer_settings:
            return
        cls = by_name.look_up(by_name.OPTIMIZERS, self.optimizer, "strategy.optimizer")
        ok = not self.momentum or "momentum" in signature(cls).parameters
        allowed = f"0 with optimizer={self.optimizer}, which has moments of its own"
        require(ok, "strategy.momentum", self.momentum, allowed)
        given = self.optimizer_settings
        kind = f"settings of torch's {cls.__name__}"
        with by_name.refusing("strategy.optimizer_settings", given, kind):
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


def gradient_writer(
    model: FlatModel, loss: Loss | None = None, settings: LocalTraining | None = None
) -> Callable[[Tensor, Tensor], None]:
    """Return the function of a batch that writes its gradient to ``model.gradient``.

    Of the mean cross-entropy, with the label smoothing of ``settings``, or of another
    loss; in their precision. Dense networks have a closed form in float32, which takes
    a third of autograd's time.
    """
    layers = closed_form(model, loss, settings)
    if layers is not None:
        return dense_gradient_writer(layers)
    smoothing = 0.0 if settings is None else settings.label_smoothing
    loss = loss or partial(mean_cross_entropy, smoothing=smoothing)
    if settings is not None and settings.precision == "bf16":
        loss = partial(_in_bf16, loss)
    return partial(_write_by_autograd, model, loss)


def closed_form(
    model: FlatModel, loss: Loss | None, settings: LocalTraining | None
) -> list[nn.Linear] | None:
    """Return the layers of a network whose gradient has a closed form, else None."""
    plain = loss is None and (settings is None or settings.plain_loss)
    return dense_layers(model.module) if plain else None


def mean_cross_entropy(
    module: nn.Module, x: Tensor, y: Tensor, smoothing: float = 0.0
) -> Tensor:
    """Return the loss of plain training."""
    return cross_entropy(module(x), y, label_smoothing=smoothing)


def _in_bf16(loss: Loss, module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    with torch.autocast(x.device.type, torch.bfloat16):
        return loss(module, x, y)


def _write_by_autograd(model: FlatModel, loss: Loss, x: Tensor, y: Tensor) -> None:
    model.gradient.zero_()
    with torch.enable_grad():
        value = loss(model.module, x, y)
    value.backward()  # type: ignore[no-untyped-call]


@torch.no_grad()
def full_gradient(model: FlatModel, x: Tensor, y: Tensor) -> Tensor:
    """Return the gradient of the mean cross-entropy over all samples, shape (p,).

    In evaluation mode, without dropout. Zero without samples. ``x`` and ``y`` have
    shapes (n, ...) and (n,).
    """
    switch_mode(model, training=False)
    write_gradient = gradient_writer(model)
    model.passes += TRAINING_PASSES * len(y)
    total = torch.zeros_like(model.gradient)
    blocks = [torch.split(data, BLOCK) for data in (x, y)]
    for x_block, y_block in zip(*blocks, strict=True):
        if len(y_block):
            write_gradient(x_block, y_block)
            total.add_(model.gradient, alpha=len(y_block) / len(y))
    return total


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

    def centre(self) -> Tensor | None:
        """Return the centre of the proximal term, shape (p,) of ``part``, if any."""
        if not self.settings.mu:
            return None
        if self.anchor is None:
            return self.model.weights[self.part].clone()
        return self.anchor[self.part]


TRAINER: ContextVar[Callable[[TrainingJob], None]] = ContextVar("trainer")
"""Who does the jobs of this context, if not `train_alone`: a cohort of clients, which
trains all of its members at once (`client.cohort`)."""


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
    # What torch notes for autograd is a sixth of a closed form's step.
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
    threads = torch.get_num_threads()
    # As on the workers: a sum in parallel would depend on the number of cores.
    torch.set_num_threads(1)
    try:
        train(model.load(initial), x, y, settings, rng)
    finally:
        torch.set_num_threads(threads)
    trained = model.to_vector()
    allowed = "a smaller one: the training on the server diverged"
    finite = bool(np.isfinite(trained).all())
    require(finite, f"{key}.learning_rate", settings.learning_rate, allowed)
    return trained


def stepper(
    weights: Tensor, gradient: Tensor, settings: LocalTraining
) -> Callable[[], object]:
    """Return a function that takes one optimiser step in place from the gradient."""
    if settings.plain_sgd:
        # A small network's step takes a tenth of the time of torch's optimiser.
        return partial(weights.add_, gradient, alpha=-settings.learning_rate)
    step: Callable[[], object] = make_optimizer(weights, gradient, settings).step
    return step


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
    rate = settings.learning_rate
    made: torch.optim.Optimizer = cls(
        [weights], rate, **options, **settings.optimizer_settings
    )
    return made
