"""Steps of many clients at once, which a GPU repeats without asking Python.

A small network's step takes a GPU microseconds, and Python milliseconds. All that a
step of k clients reads and writes therefore stays where it is: their models are rows of
one matrix, their samples one pool, their batches rows of indices into it, and a counter
says which of them is next. So one step can be captured as a CUDA graph and replayed for
all others, in this round and in later ones. On a CPU, and for networks that cannot be
captured, the same steps are called one by one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from copy import deepcopy
from functools import cache
from inspect import signature
from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from cfl_flower.learning import by_name
from cfl_flower.learning.anchors import AlignedLoss
from cfl_flower.learning.cohort_layers import (
    BatchNorm,
    Dropout,
    draws,
    prepare_layers,
    scramble,
)
from cfl_flower.learning.optimizer import LocalTraining, add_penalties, make_optimizer
from cfl_flower.learning.training import TrainingJob
from cfl_flower.models import FlatModel
from cfl_flower.types import IntArray

log = logging.getLogger(__name__)

PADDING = -1
"""Placeholder of a sample that a smaller batch lacks."""


class SampleLosses(nn.Module):
    """A network with a loss, as one module: its outputs are the samples' losses."""

    def __init__(
        self, network: nn.Module, loss: AlignedLoss | None, settings: LocalTraining
    ) -> None:
        super().__init__()
        self.network = network
        self.loss = loss
        self.smoothing = settings.label_smoothing

    def forward(self, x: Tensor, y: Tensor, *own: Tensor) -> Tensor:
        """Return the loss of each sample, (b,); ``own`` are the loss's tensors."""
        if self.loss is not None:
            return self.loss.of_samples(self.network, x, y, *own)
        logits = self.network(x)
        smoothing = self.smoothing
        return cross_entropy(logits, y, reduction="none", label_smoothing=smoothing)


class CohortGradient:
    """The gradients of many models of one network, (k, ...) for each of its tensors.

    Those that are parts of the network's vector are each client's own: first those that
    are trained, then BatchNorm's running statistics.
    """

    def __init__(
        self, model: FlatModel, loss: AlignedLoss | None, settings: LocalTraining
    ) -> None:
        network = deepcopy(model.module).train()
        prepare_layers(network)
        self._module = SampleLosses(network, loss, settings)
        own = model.travelling()
        self._names = [f"network.{name}" for name in own]
        self._shapes = [tensor.shape for tensor in own.values()]
        self._trained = sum(tensor.requires_grad for tensor in own.values())
        self._low = settings.precision == "bf16"
        self.draws = draws(network)
        self._statistics = [n.rsplit(".", 1) for n in self._names[self._trained :]]
        layers = dict(self._module.named_modules())
        for above, _ in self._statistics:
            if not isinstance(layers[above], BatchNorm):
                raise ValueError(f"{above} keeps statistics of its own")
        self._mapped = vmap(grad(self._mean_loss, has_aux=True))

    def views(self, rows: Tensor) -> list[Tensor]:
        """Return the tensors in vectors, (k, d), or in gradients, (k, p)."""
        found = []
        stops = accumulate(shape.numel() for shape in self._shapes)
        for shape, stop in zip(self._shapes, stops, strict=True):
            if stop <= rows.shape[1]:
                part = rows[:, stop - shape.numel() : stop]
                found.append(part.view(len(rows), *shape))
        return found

    def of(self, vectors: Tensor, shares: Tensor, *batch: Tensor) -> list[Tensor]:
        """Return the gradients at vectors, (k, d), and move the vectors' statistics.

        They are those of each client's mean loss, in which its samples have ``shares``,
        (k, b): 0 for what fills a batch up. The ``batch`` has inputs (k, b, ...),
        labels (k, b), a number from which each client's draws follow, (k,), and the
        loss's own tensors, (k, ...) each.
        """
        tensors = self.views(vectors)
        trained = tensors[: self._trained]
        statistics = tensors[self._trained :]
        found, moved = self._mapped(trained, statistics, shares, *batch)
        if statistics:
            training = shares.any(1, keepdim=True)
        for view, value in zip(statistics, moved, strict=True):
            view.copy_(torch.where(training, value, view))
        return found

    def _mean_loss(
        self,
        trained: Sequence[Tensor],
        statistics: Sequence[Tensor],
        shares: Tensor,
        x: Tensor,
        y: Tensor,
        drawn: Tensor,
        *own: Tensor,
    ) -> tuple[Tensor, list[Tensor]]:
        """Return one client's mean loss, and its running statistics after the pass."""
        layers = dict(self._module.named_modules())
        for layer in layers.values():
            if isinstance(layer, Dropout):
                layer.drawn = drawn
            elif isinstance(layer, BatchNorm):
                layer.there = shares > 0
                layer.moved = {}
        tensors = dict(zip(self._names, [*trained, *statistics], strict=True))
        low = torch.autocast(x.device.type, torch.bfloat16, cache_enabled=False)
        with low if self._low else nullcontext():
            losses = functional_call(self._module, tensors, (x, y, *own))
        mean = (losses * shares).sum()
        return mean, [layers[above].moved[key] for above, key in self._statistics]


def mapped_loss(job: TrainingJob) -> AlignedLoss | None:
    """Return a job's loss if it can be mapped over clients; the plain one is None."""
    return job.loss if isinstance(job.loss, AlignedLoss) else None


class Cohort:
    """The memory of k clients who train together, and their steps in it.

    Clients come in the order of their steps, those with the most first. When a quarter
    of them are done, only the rest is computed.
    """

    def __init__(
        self, job: TrainingJob, clients: int, samples: int, steps: int, width: int
    ) -> None:
        """Take the memory for k clients like that of a job.

        They have no more ``samples`` together, and no more ``steps`` and samples in a
        batch, its ``width``, each.
        """
        vector = job.model.vector
        loss = mapped_loss(job)
        whole = job.model.weights
        part = whole[job.part]
        self._settings = job.settings
        self._part = job.part
        self._gradients = CohortGradient(job.model, loss, job.settings)
        self._x = job.x.new_empty(samples, *job.x.shape[1:])
        self._y = job.y.new_empty(samples)
        self._rows = job.y.new_zeros(clients, steps, width)
        self._at = job.y.new_zeros(1)
        self._seeds = job.y.new_zeros(clients)
        self._vectors = vector.new_zeros(clients, len(vector))
        self._trained = self._vectors[:, : len(whole)]
        self._shares = vector.new_empty(clients, steps, width)
        self._rates = vector.new_zeros(clients, steps)
        self._corrected = job.correction is not None
        settings = self._settings
        changed = settings.clip or settings.weight_decay or settings.mu
        alone = len(part) == len(whole) and not (changed or self._corrected)
        self._plain = settings.plain_sgd and alone
        self._gradient = vector.new_zeros(0 if self._plain else clients, len(whole))
        self._centres = vector.new_empty(clients if settings.mu else 0, len(part))
        corrected = clients if self._corrected else 0
        self._corrections = vector.new_empty(corrected, len(part))
        tensors = loss.tensors if loss else ()
        self._own = [each.new_empty(clients, *each.shape) for each in tensors]
        self._optimizer: Optimizer | None = None
        self._called: set[int] = set()
        self._graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._captures = vector.is_cuda and can_be_captured(job.settings)

    def has_room(self, samples: int, steps: int, width: int) -> bool:
        """Return whether the memory is enough for as many."""
        _, most_steps, widest = self._rows.shape
        return samples <= len(self._y) and steps <= most_steps and width <= widest

    def train(self, jobs: Sequence[TrainingJob], rows: IntArray) -> None:
        """Do k jobs; the models change only when all is done.

        ``rows`` are the samples of every step, (k, steps, b): see `cohort_batches`.
        """
        self._load(jobs, rows)
        active = (rows[:, :, 0] != PADDING).sum(0).tolist()
        count = len(jobs)
        for step, some in enumerate(active):
            while some <= (fewer := count - -(-count // 4)):
                count = fewer
            if step == 0 and not self._settings.plain_sgd:
                self._begin(count)
            else:
                self._repeat(count)
        torch._foreach_copy_([job.model.vector for job in jobs], [*self._vectors])

    def _load(self, jobs: Sequence[TrainingJob], rows: IntArray) -> None:
        samples = sum(len(job.y) for job in jobs)
        torch.cat([job.x for job in jobs], out=self._x[:samples])
        torch.cat([job.y for job in jobs], out=self._y[:samples])
        torch.stack([job.model.vector for job in jobs], out=self._vectors)
        _, steps, width = rows.shape
        taken = torch.from_numpy(rows).to(self._rows.device)
        there = taken != PADDING
        self._rows[:, :steps, :width] = taken.clamp(min=0)
        self._shares.zero_()
        self._shares[:, :steps, :width] = there
        self._shares[:, :steps] /= there.sum(2, keepdim=True).clamp(min=1)
        self._rates[:, :steps] = there[:, :, 0]
        self._rates[:, :steps] *= jobs[0].settings.learning_rate
        self._at.zero_()
        self._seeds.copy_(torch.tensor([job.seed for job in jobs]))
        centres = [centre for job in jobs if (centre := job.centre()) is not None]
        if centres:
            torch.stack(centres, out=self._centres)
        corrections = [job.correction for job in jobs if job.correction is not None]
        if corrections:
            torch.stack(corrections, out=self._corrections)
        of_each = [loss.tensors for job in jobs if (loss := mapped_loss(job))]
        for own, tensors in zip(self._own, zip(*of_each, strict=True), strict=True):
            torch.stack(tensors, out=own)

    def _begin(self, count: int) -> None:
        """Take the first step, before which an optimiser remembers nothing.

        Its memory comes into being with a step; what graphs know of it stays in place.
        """
        known = self._optimizer
        weights = self._trained[:, self._part]
        gradient = self._gradient[:, self._part]
        self._optimizer = make_optimizer(weights, gradient, self._settings)
        self._step(count)
        if known is not None:
            (fresh,) = self._optimizer.state.values()
            (kept,) = known.state.values()
            for name, value in kept.items():
                value.copy_(fresh[name])
            self._optimizer = known

    def _repeat(self, count: int) -> None:
        """Take a step of the first clients, by their graph if there is one."""
        if count in self._called and self._captures and count not in self._graphs:
            self._capture(count)
        if count in self._graphs:
            self._graphs[count].replay()
        else:
            self._step(count)
            self._called.add(count)

    def _capture(self, count: int) -> None:
        graph = torch.cuda.CUDAGraph()
        # One is replayed at a time: all can have the memory of the first.
        pools = (each.pool() for each in self._graphs.values())
        try:
            with torch.cuda.graph(graph, pool=next(pools, None)):
                self._step(count)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            self._captures = False
            why = str(error).partition("\n")[0]
            tell_once(f"steps of training cannot be captured: {why}")
        else:
            self._graphs[count] = graph

    def _step(self, count: int) -> None:
        """Take a step of the first clients."""
        taken, shares, rates = (
            each[:count].index_select(1, self._at)[:, 0]
            for each in (self._rows, self._shares, self._rates)
        )
        drawn = self._seeds[:count]
        if self._gradients.draws:
            drawn = scramble(drawn ^ scramble(self._at))
        own = [tensor[:count] for tensor in self._own]
        vectors = self._vectors[:count]
        x = self._x[taken]
        y = self._y[taken]
        found = self._gradients.of(vectors, shares, x, y, drawn, *own)
        if self._plain:
            # Only the loss is needed: no gradient has to be kept.
            self._descend(self._gradients.views(self._trained[:count]), found, rates)
        else:
            gradient = self._gradient[:count]
            for view, value in zip(self._gradients.views(gradient), found, strict=True):
                view.copy_(value)
            self._move(count, gradient[:, self._part], shares, rates)
        self._at += 1

    def _descend(
        self, weights: Sequence[Tensor], gradients: Sequence[Tensor], rates: Tensor
    ) -> None:
        """Take plain steps, (k, ...), with each client's rate, (k,)."""
        for some, gradient in zip(weights, gradients, strict=True):
            wide = rates.view(-1, *[1] * (some.dim() - 1))
            some.addcmul_(gradient, wide, value=-1)

    def _move(
        self, count: int, gradient: Tensor, shares: Tensor, rates: Tensor
    ) -> None:
        """Take steps of an optimiser, or with penalties, of who still has a batch."""
        weights = self._trained[:, self._part]
        some = weights[:count]
        centres = self._centres[:count] if self._settings.mu else None
        corrections = self._corrections[:count] if self._corrected else None
        add_penalties(gradient, some, self._settings, centres, corrections)
        if self._optimizer is None:
            self._descend([some], [gradient], rates)
            return
        before = weights.clone()
        self._optimizer.step()
        # Its steps are of all clients, also of those that are done.
        weights[count:] = before[count:]
        some.copy_(torch.where(shares.any(1, keepdim=True), some, before[:count]))


@cache
def tell_once(why: str) -> None:
    """Say, once in a process, why training on a GPU is slower than it could be."""
    log.warning("slow on this GPU: %s", why)


def can_be_captured(settings: LocalTraining) -> bool:
    """Return whether the optimiser's step is one that CUDA graphs can repeat."""
    cls = by_name.look_up(by_name.OPTIMIZERS, settings.optimizer, "strategy.optimizer")
    return settings.optimizer == "sgd" or "capturable" in signature(cls).parameters
