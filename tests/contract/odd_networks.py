"""Networks that keep something of their own, as people bring them.

Each is a `torch.nn.Module` that a configuration names by itself.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

WARMUP = 50


class Net(nn.Module):
    """Images of 64 pixels, 8 hidden numbers, 10 classes."""

    refused = ""
    """Words with which it is refused; none if it is not."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(64, 8)
        self.head = nn.Linear(8, 10)
        self.set_up()

    def set_up(self) -> None:
        """Add what this network keeps."""

    def hidden(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x.flatten(1)))

    def forward(self, x: Tensor) -> Any:
        return self.head(self.hidden(x))


class Warm(Net):
    """Its outputs grow with the steps that it has taken."""

    def step(self) -> float:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Any:
        return super().forward(x) * min(1.0, (1 + self.step()) / WARMUP)


class ReplacedBuffer(Warm):
    def set_up(self) -> None:
        self.register_buffer("steps", torch.zeros((), dtype=torch.int32))

    def step(self) -> float:
        self.steps = self.steps + int(self.training)
        return float(self.steps)


class LateAttribute(Warm):
    """Its counter is not there before the first step."""

    def step(self) -> float:
        self.steps = getattr(self, "steps", 0) + self.training
        return self.steps


class FrozenParameter(Warm):
    def set_up(self) -> None:
        self.steps = nn.Parameter(torch.zeros(1), requires_grad=False)

    def step(self) -> float:
        self.steps += self.training
        return float(self.steps)


class FreeFunctions(Net):
    """Its functions hold nothing of it, or are its own methods."""

    def set_up(self) -> None:
        factor = 2.0
        self.scale = lambda x: x * factor
        self.pass_on = super().hidden
        self.body.register_forward_hook(lambda *call: call[2] * factor)

    def hidden(self, x: Tensor) -> Tensor:
        return self.scale(self.pass_on(x))


class OwnGenerator(Net):
    """Dropout by a generator of the network's own."""

    def set_up(self) -> None:
        self.rng = np.random.default_rng(0)

    def hidden(self, x: Tensor) -> Tensor:
        kept = super().hidden(x)
        return kept * float(self.rng.random()) if self.training else kept


class Centred(Net):
    """It takes a running mean off its hidden numbers."""

    def set_up(self) -> None:
        self.register_buffer("centre", torch.zeros(8))

    def hidden(self, x: Tensor) -> Tensor:
        kept = super().hidden(x)
        if self.training:
            self.centre.lerp_(kept.detach().mean(0), 0.1)
        return kept - self.centre


class CumulativeNorm(Net):
    def set_up(self) -> None:
        self.norm = nn.BatchNorm1d(8, momentum=None)

    def hidden(self, x: Tensor) -> Tensor:
        return self.norm(super().hidden(x))


class Norm(CumulativeNorm):
    def set_up(self) -> None:
        self.norm = nn.BatchNorm1d(8)


class Positions(Net):
    """A table that was made where no gradient is taken, and one that holds itself."""

    def set_up(self) -> None:
        with torch.inference_mode():
            self.positions = torch.ones(8)
        self.table: dict[str, Any] = {}
        self.table["self"] = self.table

    def hidden(self, x: Tensor) -> Tensor:
        return super().hidden(x) + self.positions


class Probabilities(Net):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x).softmax(1)


class DoubleOutputs(Net):
    def forward(self, x: Tensor) -> Any:
        return super().forward(x).double()


class OfLargest(Net):
    def hidden(self, x: Tensor) -> Tensor:
        return super().hidden(x / x.max())


class BatchSecond(Net):
    """It takes the samples of a batch for the steps of a text."""

    def set_up(self) -> None:
        self.body = nn.GRU(8, 8)

    def hidden(self, x: Tensor) -> Tensor:
        return self.body(x[:, 0])[0][:, -1]


class BatchStatistics(CumulativeNorm):
    def set_up(self) -> None:
        self.norm = nn.BatchNorm1d(8, track_running_stats=False)


class LazyNorm(CumulativeNorm):
    def set_up(self) -> None:
        self.norm = nn.LazyBatchNorm1d()


class Mask(Net):
    """Constants that are not finite, as masks of attention are."""

    def set_up(self) -> None:
        self.register_buffer("mask", torch.full((8, 8), -torch.inf).triu(1))
        self.register_buffer("unset", torch.tensor(torch.nan))
        self.register_buffer("far", torch.tensor(1e20))

    def hidden(self, x: Tensor) -> Tensor:
        return super().hidden(x) @ torch.softmax(self.mask, -1)


class HalfParameter(Net):
    def set_up(self) -> None:
        self.scale = nn.Parameter(torch.ones(1, dtype=torch.bfloat16))

    def forward(self, x: Tensor) -> Any:
        return super().forward(x) * self.scale.float()


class Tied(Net):
    def set_up(self) -> None:
        self.first = nn.Linear(8, 8)
        self.second = nn.Linear(8, 8)
        self.second.weight = self.first.weight

    def hidden(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(super().hidden(x))))


class Spectral(Net):
    def set_up(self) -> None:
        self.body = nn.utils.parametrizations.spectral_norm(self.body)


class KeptInEvaluation(Net):
    """Its BatchNorm and dropout stay in evaluation mode, as in fine-tuning."""

    def set_up(self) -> None:
        self.norm = nn.BatchNorm1d(8)
        self.dropout = nn.Dropout(0.5)

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.norm.eval()
        self.dropout.eval()
        return self

    def hidden(self, x: Tensor) -> Tensor:
        kept: Tensor = self.dropout(self.norm(super().hidden(x)))
        return kept


class CountsSwitches(Net):
    """Its outputs shrink with the times that it was put into training mode."""

    def set_up(self) -> None:
        self.epochs = 0

    def train(self, mode: bool = True) -> Any:
        self.epochs = getattr(self, "epochs", 0) + int(mode)
        return super().train(mode)

    def forward(self, x: Tensor) -> Any:
        return super().forward(x) / (1 + 0.1 * self.epochs)


class OldWeightNorm(Net):
    def set_up(self) -> None:
        self.body = nn.utils.weight_norm(self.body)


class Queue(Net):
    """A memory of the last outputs, empty at first."""

    def set_up(self) -> None:
        self.register_buffer("queue", torch.zeros(0, 8))

    def hidden(self, x: Tensor) -> Tensor:
        kept = super().hidden(x)
        if self.training:
            self.queue = torch.cat([self.queue, kept.detach()])[-20:]
        return kept - (self.queue.mean(0) if len(self.queue) else 0)


class Averaged(Net):
    """It mixes its hidden numbers with those of a moving average of its weights."""

    def average(self) -> Tensor:
        raise NotImplementedError

    def hidden(self, x: Tensor) -> Tensor:
        if self.training:
            with torch.no_grad():
                self.average().lerp_(self.body.weight, 0.5)
        teacher = torch.relu(x.flatten(1) @ self.average().detach().T)
        return super().hidden(x) + teacher


class SavedAverage(Averaged):
    def set_up(self) -> None:
        self.register_buffer("ema", self.body.weight.detach().clone())

    def average(self) -> Tensor:
        return self.ema


class Largest(Net):
    """A statistic that neither zeros nor ones change."""

    def set_up(self) -> None:
        self.register_buffer("high", torch.ones(64))

    def hidden(self, x: Tensor) -> Tensor:
        if self.training:
            self.high.copy_(torch.maximum(self.high, x.flatten(1).amax(0)))
        return super().hidden(x / self.high.view(1, 8, 8))


class Lowest(Net):
    """A statistic that numbers below 0 change alone."""

    def set_up(self) -> None:
        self.register_buffer("low", torch.zeros(64))

    def hidden(self, x: Tensor) -> Tensor:
        if self.training:
            self.low.copy_(torch.minimum(self.low, x.flatten(1).amin(0)))
        return super().hidden(x - self.low.view(1, 8, 8))


class LateStatistic(Largest):
    """A statistic that begins after a dozen steps."""

    steps = 0

    def hidden(self, x: Tensor) -> Tensor:
        self.steps += self.training
        return super().hidden(x) if self.steps > 12 else Net.hidden(self, x)


class Seeded(Net):
    """It sets a seed, so that its weights are the same in all runs."""

    def __init__(self) -> None:
        torch.manual_seed(42)
        super().__init__()


class StoppedNorm(Net):
    """A layer that it sets to evaluation after some steps."""

    def set_up(self) -> None:
        self.norm = nn.BatchNorm1d(8)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int32))

    def hidden(self, x: Tensor) -> Tensor:
        self.steps += self.training
        if self.steps > 5:
            self.norm.eval()
        return self.norm(super().hidden(x))


class ListedLayers(Net):
    """A list names layers that are its own."""

    def set_up(self) -> None:
        self.layers = [(self.body, self.body.weight)]

    def hidden(self, x: Tensor) -> Tensor:
        return torch.relu(self.layers[0][0](x.flatten(1)))


class ListedWithState(ListedLayers):
    """Beside what is its own, the list has numbers that change."""

    def hidden(self, x: Tensor) -> Tensor:
        self.layers.append((self.body, self.body.weight))
        return super().hidden(x)


# What two steps do not show -----------------------------------------------------------


class Late(Net):
    """It counts steps in a buffer, and does something in the third."""

    def set_up(self) -> None:
        self.register_buffer("steps", torch.zeros(1, dtype=torch.long))

    def in_third_step(self) -> None:
        raise NotImplementedError

    def scale(self) -> float:
        return 1.0

    def hidden(self, x: Tensor) -> Tensor:
        if self.training:
            self.steps += 1
            if int(self.steps) == 3:
                self.in_third_step()
        return super().hidden(x) * (self.scale() if self.training else 1.0)


class LateValue(Late):
    """It keeps something that is another thing from the third step on."""

    first: Any
    """Returns it."""

    def set_up(self) -> None:
        super().set_up()
        self.kept = self.first()

    def scale(self) -> float:
        return 1.0 if repr(self.kept) == repr(self.first()) else 1.5


class LateFlag(LateValue):
    first = bool

    def in_third_step(self) -> None:
        self.kept = True


class LateTensor(LateValue):
    first = type(None)

    def in_third_step(self) -> None:
        self.kept = torch.ones(1)


class LateFunction(LateValue):
    first = staticmethod(lambda: abs)

    def in_third_step(self) -> None:
        self.kept = sum


class LateInPlace(LateValue):
    first = staticmethod(lambda: (torch.zeros(1),))

    def in_third_step(self) -> None:
        self.kept[0].add_(1)


class LateArray(LateValue):
    first = staticmethod(lambda: np.zeros(1))

    def in_third_step(self) -> None:
        self.kept[0] = 1


class LateNested(LateValue):
    first = staticmethod(lambda: {"all": [deque()]})

    def in_third_step(self) -> None:
        self.kept["all"][0].append(1)


class LateRate(Late):
    def set_up(self) -> None:
        super().set_up()
        self.noise = nn.Dropout(0.1)

    def hidden(self, x: Tensor) -> Tensor:
        return self.noise(super().hidden(x))

    def in_third_step(self) -> None:
        self.noise.p = 0.9


class LateMode(LateRate):
    def in_third_step(self) -> None:
        self.noise.eval()


BASES = {Warm, Averaged, Late, LateValue}
"""Networks that are not whole."""


class PrunedByCount(Net):
    """Tests use what training counted in a buffer of whole numbers."""

    def set_up(self) -> None:
        self.register_buffer("active", torch.zeros(64, dtype=torch.long))

    def hidden(self, x: Tensor) -> Tensor:
        if self.training:
            self.active += (x.flatten(1) > 0).sum(0)
            return super().hidden(x)
        return super().hidden(x.flatten(1) * (self.active > 0))


class LockedCounter(Warm):
    """A counter beside a generator, which nobody can copy, in a layer of its own."""

    def set_up(self) -> None:
        self.body.calls = 0
        self.body.numbers = iter(n for n in range(9))

    def step(self) -> float:
        self.body.calls += self.training
        return self.body.calls
