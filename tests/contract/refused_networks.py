"""Networks whose state cannot be put back, or that cannot be trained; each is refused.

`refused` has words of the line that says so.
"""

from __future__ import annotations

import random
from collections import deque
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tests.contract import kept
from tests.contract.odd_networks import Averaged, Net, Warm

SEEN = {"steps": 0}
BEFORE: list[Tensor] = []


class InnerAverage(Averaged):
    """The average is an attribute of a layer, in an object."""

    refused = r"has weights in body\.shadow that are neither"

    def set_up(self) -> None:
        self.body.shadow = (deque([self.body.weight.data.clone()]),)

    def average(self) -> Tensor:
        return self.body.shadow[0][0]


class ForgottenLayers(Net):
    """Its layers are in a list, where torch does not find their weights."""

    refused = "has weights in layers that are neither"

    def set_up(self) -> None:
        self.layers = [nn.Linear(8, 8)]

    def hidden(self, x: Tensor) -> Tensor:
        return self.layers[0](super().hidden(x))


class Global(Warm):
    """Its counter belongs to no network."""

    refused = "Global trained differently from the same model and seed"

    def step(self) -> float:
        SEEN["steps"] += self.training
        return SEEN["steps"]


class RarelyRandom(Net):
    refused = "draws from Python's or NumPy's own generator"

    def hidden(self, x: Tensor) -> Tensor:
        kept = super().hidden(x)
        return kept * 2 if self.training and random.random() < 1e-3 else kept


class CentredByTheLast(Net):
    """It subtracts the mean of the batch before, whoever's that was."""

    refused = "CentredByTheLast trained differently"

    def hidden(self, x: Tensor) -> Tensor:
        centred = x - (BEFORE or [x.mean()])[0]
        BEFORE[:] = [x.mean()]
        return super().hidden(centred if self.training else x)


class DropoutInTests(Net):
    refused = "different outputs for the same inputs in evaluation"

    def hidden(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(super().hidden(x), 0.5)


class PreciseParameter(Net):
    refused = r"scale holds torch\.float64 numbers"

    def set_up(self) -> None:
        self.scale = nn.Parameter(torch.ones(1, dtype=torch.float64))

    def forward(self, x: Tensor) -> Any:
        return super().forward(x) * self.scale.float()


class SharedMemory(Net):
    refused = "has a parameter in one memory with another"

    def set_up(self) -> None:
        self.again = nn.Linear(64, 8)
        self.again.weight.data = self.body.weight.data


class SharedPart(Net):
    refused = "has a parameter in one memory with another"

    def set_up(self) -> None:
        self.first = self.body.weight.data[:2]


class SharedBuffer(Net):
    refused = "has a parameter in one memory with another"

    def set_up(self) -> None:
        self.register_buffer("last", self.body.weight.data[-1])


class ChangedInputs(Net):
    """Zeros and ones stay what they are."""

    refused = "different outputs for the same inputs in evaluation"

    def hidden(self, x: Tensor) -> Tensor:
        return super().hidden(x.pow_(2))


class BoundLambda(Net):
    refused = "BoundLambda has a function that holds its own weights"

    def set_up(self) -> None:
        self.pass_on = lambda x: torch.relu(self.body(x.flatten(1)))

    def hidden(self, x: Tensor) -> Tensor:
        return self.pass_on(x)


class BoundDefault(BoundLambda):
    refused = "BoundDefault has a function that holds its own weights"

    def set_up(self) -> None:
        self.pass_on = lambda x, body=self.body: body(x.flatten(1))


class BoundObject(BoundLambda):
    """It does so by what an object's function holds, and in training alone."""

    refused = "BoundObject has a function that holds its own weights"

    def set_up(self) -> None:
        weight = self.body.weight
        self.kept = {"scaled": [partial(lambda x, by: x * weight.mean() * by, by=2)]}

    def hidden(self, x: Tensor) -> Tensor:
        kept = super(BoundLambda, self).hidden(x)
        return self.kept["scaled"][0](kept) if self.training else kept


class BoundHook(Net):
    refused = "BoundHook has a function that holds its own weights"

    def set_up(self) -> None:
        self.body.register_forward_hook(lambda *call: call[2] + self.head.bias.sum())


class Squeezed(Net):
    refused = r"returns \(10,\) for 1 input in evaluation"

    def forward(self, x: Tensor) -> Any:
        return super().forward(x).squeeze()


class FirstBatch(Net):
    refused = "fails on inputs of shape"

    def hidden(self, x: Tensor) -> Tensor:
        if not hasattr(self, "offsets"):
            self.register_buffer("offsets", torch.zeros(len(x), 1))
        return super().hidden(x) + self.offsets


class RunningMinimum(Net):
    """A statistic that is infinite before the first batch."""

    refused = "least holds numbers that are not finite"

    def set_up(self) -> None:
        self.register_buffer("least", torch.tensor(torch.inf))

    def hidden(self, x: Tensor) -> Tensor:
        if self.training:
            self.least.copy_(torch.minimum(self.least, x.min()))
        return super().hidden(x)


class ReplacedParameter(Net):
    """It keeps its weights short by new ones."""

    refused = r"in the place of body\.weight"

    def hidden(self, x: Tensor) -> Tensor:
        self.body.weight.data = self.body.weight.data.clamp(-0.1, 0.1)
        return super().hidden(x)


class AuxiliaryOutput(Net):
    refused = "returns a tuple for 2 inputs in training"

    def forward(self, x: Tensor) -> Any:
        found = super().forward(x)
        return (found, found) if self.training else found


class OneSampleAtATime(Net):
    refused = r"returns \(1, 10\) for 2 inputs"

    def forward(self, x: Tensor) -> Any:
        return super().forward(x[:1])


SHARED = nn.Linear(8, 10)


class SharedHead(Net):
    """All of its networks have one head."""

    refused = "share parameters"

    def set_up(self) -> None:
        self.head = SHARED


class UnseededWeights(Net):
    refused = "UnseededWeights of the same seed begin with other"

    def set_up(self) -> None:
        drawn = torch.from_numpy(np.random.default_rng().random(8, np.float32))
        self.scale = nn.Parameter(drawn)

    def hidden(self, x: Tensor) -> Tensor:
        return super().hidden(x) * self.scale.mean()


class PrivateCounter(Net):
    """Its counter is of the class, under a name that Python changes."""

    refused = "changes PrivateCounter._PrivateCounter__steps, out"

    __steps = 0

    def hidden(self, x: Tensor) -> Tensor:
        PrivateCounter.__steps += self.training
        return super().hidden(x) * (1.0 if self.__steps < 30 else 2.0)


class CounterOfAProperty(Net):
    refused = r"changes tests\S+refused_networks\.CALLS, outside"

    @property
    def factor(self) -> float:
        CALLS.append(1)
        return 1.0 if len(CALLS) < 300 else 2.0

    def hidden(self, x: Tensor) -> Tensor:
        return super().hidden(x) * self.factor


class SameNames(Net):
    """Two modules have a variable of one name; that of the other one changes."""

    refused = r"changes tests\.contract\.kept\.CALLS, outside"

    def hidden(self, x: Tensor) -> Tensor:
        counted = len(CALLS) + kept.count()
        return super().hidden(x) * (1.0 if counted < 10_000 else 2.0)


CALLS: list[int] = []


def make_closure() -> type[Net]:
    steps = 0

    class Closure(Net):
        """Its counter is a variable of the function around it."""

        refused = r"changes \S+\.steps, outside"

        def hidden(self, x: Tensor) -> Tensor:
            nonlocal steps
            steps += self.training
            return super().hidden(x) * (1.0 if steps < 30 else 2.0)

    return Closure


Closure = make_closure()
Closure.__qualname__ = "Closure"


@cache
def first_mask(width: int) -> Tensor:
    return (torch.rand(width) > 0.5).float()


class FirstMask(Net):
    """The first network of a process draws a mask for all."""

    refused = "FirstMask of a process draws something that later ones"

    def hidden(self, x: Tensor) -> Tensor:
        kept = super().hidden(x)
        return kept * first_mask(kept.shape[1])


class UnseededGenerator(Net):
    refused = "two networks UnseededGenerator of one seed train differently"

    def set_up(self) -> None:
        self.draws = np.random.default_rng()

    def hidden(self, x: Tensor) -> Tensor:
        kept = super().hidden(x)
        return kept * float(self.draws.random()) if self.training else kept


class FirstMaskOfMethod(Net):
    refused = "FirstMaskOfMethod trained differently from the"

    @cache  # noqa: B019 - as somebody may write it
    def mask(self, width: int) -> Tensor:
        return torch.rand(width)

    def hidden(self, x: Tensor) -> Tensor:
        kept = super().hidden(x)
        return kept * self.mask(kept.shape[1])
