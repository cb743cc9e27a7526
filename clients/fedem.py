"""FedEM's client: finds which component its samples are of, and trains all of them.

Computes: the loss of each component on each sample; local SGD on each. Sends: the M
components (M d floats). Keeps: its mixture (M floats), which never leaves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, log_softmax, nll_loss

from cfl_flower.data.worlds.view import View
from cfl_flower.learning.testing import Note, logits, sample_losses
from cfl_flower.types import Config, Reply, Vector
from clients.base import ClusteredClient
from clients.tested import Samples, Test, Tested


def responsibilities(losses: Tensor, mixture: Tensor) -> Tensor:
    """Return q, proportional to pi_m exp(-l_m) and of sum 1 over m, shape (M, n).

    The E-step, of ``losses``, (M, n), and ``mixture``, pi, (M,).
    """
    # E-step: q_m of a sample is pi_m exp(-l_m) over the sum of all.
    return torch.softmax(mixture.log()[:, None] - losses, dim=0)


def weighted_cross_entropy(
    module: nn.Module, x: Tensor, y: Tensor, smoothing: float = 0.0
) -> Tensor:
    """Return the batch's mean of q_i l_i; ``y`` has label and q of a sample, (n, 2)."""
    options: Any = {"reduction": "none", "label_smoothing": smoothing}
    losses = cross_entropy(module(x), y[:, 0].long(), **options)
    # M-step: each component is trained on q_m l_m.
    return (y[:, 1] * losses).mean()


def mix_predictions(log_shares: Tensor, mixture: Tensor) -> Tensor:
    """Return log sum_m pi_m p_m, shape (n, L), of the components' log p, (M, n, L)."""
    # The prediction: sum_m pi_m p_m.
    return torch.logsumexp(log_shares + mixture.log()[:, None, None], dim=0)


class FedEMClient(ClusteredClient):
    """Algorithm 1, on the device."""

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Make an E-step and an M-step on the data of this round; save the mixture."""
        context = self.context
        x, y = self.training_samples(parameters, config)
        if len(y) == 0:
            return parameters, 0, {}
        components = self.components(parameters)
        mixture = self.own(context.round, len(components))
        shares = self.weigh(parameters, mixture, (x, y))
        # M-step: pi_m is the mean of q_m over the samples.
        context.state.save(context.round, {"mixture": shares.mean(1).cpu().numpy()})
        loss = partial(weighted_cross_entropy, smoothing=self.local.label_smoothing)
        trained = []
        for number, (start, share) in enumerate(zip(components, shares, strict=True)):
            model, _ = self.train_from(
                start,
                samples=(x, torch.column_stack([y, share]).float()),
                purpose=f"component-{number}",
                loss=loss,
            )
            trained.append(model)
        return [*trained, *self.summaries(shares, y)], len(y), {}

    def training_samples(self, parameters: list[Vector], config: Config) -> Samples:
        """Return what the client trains on: the samples of this round."""
        return self.samples(self.context.round)

    def components(self, parameters: Sequence[Vector]) -> Sequence[Vector]:
        """Return the components among what the client received: all of it."""
        return parameters

    def summaries(self, shares: Tensor, labels: Tensor) -> list[Vector]:
        """Return what is sent beside the components: nothing."""
        return []

    def weigh(
        self, parameters: Sequence[Vector], mixture: Tensor | None, samples: Samples
    ) -> Tensor:
        """Return the responsibilities of all components for some samples, (M, n)."""
        losses = self.component_losses(parameters, samples)
        if mixture is None:
            mixture = self.even(len(losses))
        return responsibilities(losses, mixture)

    def component_losses(
        self, parameters: Sequence[Vector], samples: Samples
    ) -> Tensor:
        """Return the loss of each component on each sample, (M, n)."""
        network = self.context.model
        models = self.components(parameters)
        losses = [sample_losses(network.load(model), *samples) for model in models]
        return torch.stack(losses).double()

    def even(self, count: int) -> Tensor:
        """Return the mixture in which all components count the same, (M,)."""
        vector = self.context.model.vector
        return vector.new_full((count,), 1 / count, dtype=torch.float64)

    def own(self, before: int, count: int) -> Tensor | None:
        """Return this client's mixture as of before a round, (M,); None at first.

        There is none of as many components either, if it was found for others.
        """
        kept = self.context.state.load(before).get("mixture", np.zeros(0))
        if len(kept) != count:
            return None
        return torch.from_numpy(kept).to(self.context.model.vector.device)

    def starting_model(self, parameters: list[Vector]) -> Vector:
        """Return the component that had the largest share before this round."""
        components = self.components(parameters)
        mixture = self.own(self.context.round, len(components))
        return components[0 if mixture is None else int(mixture.argmax())]

    def make_test(self, parameters: list[Vector]) -> Test:
        """Return the test of the mixture of the components' predictions.

        A client that has not trained yet finds its mixture by one E-step.
        """
        components = self.components(parameters)
        mixture = self.own(self.context.upcoming, len(components))
        samples = self.samples(self.context.round)
        if mixture is None:
            mixture = self.even(len(components))
            if len(samples[1]):
                mixture = self.weigh(parameters, mixture, samples).mean(1)
        return partial(self.test_mixture, components, mixture)

    @torch.no_grad()
    def test_mixture(
        self,
        models: Sequence[Vector],
        mixture: Tensor,
        view: View,
        note: Note | None = None,
    ) -> Tested:
        """Return the mean loss of the mixed predictions, and how many are right.

        ``note`` is given the logarithms of the mixed probabilities, and the labels.
        """
        x, y = view.test()
        network = self.context.model
        found = [log_softmax(logits(network.load(model), x), 1) for model in models]
        mixed = mix_predictions(torch.stack(found).double(), mixture)
        if note is not None:
            note(mixed, y)
        return float(nll_loss(mixed, y)), int((mixed.argmax(1) == y).sum())
