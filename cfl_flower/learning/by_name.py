"""Optimisers, schedules and transforms of torch and torchvision, by their names.

`AdamW` may be written `adamw`, `RandomCrop` `random_crop`, `StepLR` `step`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from inspect import isclass, signature
from typing import Any, TypeAlias

import torch
from numpy.random import Generator
from torch import Tensor, nn
from torch.optim import SGD, lr_scheduler

from cfl_flower.errors import refused
from cfl_flower.seeding import seed_torch
from cfl_flower.settings import known_names, require

Part: TypeAlias = str | dict[str, Any]
"""A name, or a mapping from one name to its settings."""

# Of which a step is number by number, as all weights are one vector here.
STEPS = "Adadelta Adagrad Adam AdamW Adamax ASGD NAdam RAdam RMSprop Rprop SGD"
OPTIMIZERS = {name: getattr(torch.optim, name) for name in STEPS.split()}

# Exclude schedulers that take functions or other schedulers, or need a loss.
RATES = """ConstantLR CosineAnnealingLR CosineAnnealingWarmRestarts CyclicLR LinearLR
    ExponentialLR MultiStepLR OneCycleLR PolynomialLR StepLR"""
SCHEDULES = {name: getattr(lr_scheduler, name) for name in RATES.split()}


def look_up(known: Mapping[str, Any], name: str, key: str) -> Any:
    """Return what has a name among ``known``, or raise `ConfigError` for a setting."""
    plain = {each.lower(): found for each, found in known.items()}
    wanted = name.lower().replace("_", "")
    written = (wanted, f"random{wanted}", f"{wanted}lr", f"{wanted}annealinglr")
    found = next((plain[each] for each in written if each in plain), None)
    hint = known_names(name, known)
    if len(known) > 20:
        hint = hint.partition("known here")[0] + "see torchvision.transforms.v2"
    require(found is not None, key, name, f"another name; {hint}")
    return found


@lru_cache(maxsize=64)
def scheduled_rates(name: str, options: str, rate: float, rounds: int) -> list[float]:
    """Return the rate of each round; ``options`` are the schedule's, as JSON."""
    cls = look_up(SCHEDULES, name, "strategy.schedule")
    lengths = {"T_max", "total_iters", "total_steps"} & signature(cls).parameters.keys()
    found = []
    # Momentum, as some schedules move it, too; what becomes of it is not used.
    optimizer = SGD([torch.zeros(1)], rate, momentum=0.9)
    kind = f"use settings of torch's {cls.__name__} that keep the rate above 0"
    with refused(f"strategy.schedule_settings={options} is not allowed", kind):
        given = dict.fromkeys(lengths, rounds) | json.loads(options)
        schedule = cls(optimizer, **given)
        for _ in range(rounds):
            found.append(float(optimizer.param_groups[0]["lr"]))
            optimizer.step()
            schedule.step()
        wrong = [each for each in found if not 0 < each < math.inf]
        if wrong:
            raise ValueError(f"a rate is {wrong[0]:g}")
    return found


def check_parts(parts: Sequence[Part], shape: tuple[int, ...], scaled: bool) -> None:
    """Raise `ConfigError` for transforms that do not fit inputs, be they ``scaled``."""
    key = "strategy.augment"
    allowed = f"[] with inputs of shape {shape}, which are no images"
    require(len(shape) == 3, key, parts, allowed)
    for each in _transforms(json.dumps(parts), shape):
        name = type(each).__name__
        # These change where pixels are; RandomErasing is in the second.
        fits = type(each).__module__.endswith(("._geometry", "._augment"))
        allowed = "crops, flips and other geometry: inputs are no pixels from 0 to 1"
        require(fits or not scaled, key, name, allowed)
        kind = f"use a transform of one image that keeps its shape, {shape}"
        fault = f"{key}={name} is not allowed"
        with refused(fault, kind), torch.random.fork_rng(devices=[]):
            found = each(torch.zeros(shape))
            if found.shape != shape:
                raise ValueError(f"it gives {tuple(found.shape)}")


def augmented(parts: Sequence[Part], images: Tensor, rng: Generator) -> Tensor:
    """Return images, (n, c, h, w), each transformed by draws of its own."""
    transform = nn.Sequential(*_transforms(json.dumps(parts), images.shape[1:]))
    with torch.random.fork_rng(devices=[images.device] if images.is_cuda else []):
        # Torch's own generator is what transforms draw from.
        seed_torch(int(rng.integers(2**63)))
        return torch.stack([transform(image) for image in images])


@lru_cache(maxsize=64)
def _transforms(parts: str, shape: tuple[int, ...]) -> list[Any]:
    """Return torchvision's transforms; what they need of a size is the images' own."""
    # Mends torchvision's import beside a CPU-only torch; seconds.
    from cfl_flower.data.reading import vision  # noqa: F401, PLC0415

    library = import_module("torchvision.transforms.v2")
    known = {name: each for name, each in vars(library).items() if isclass(each)}
    found = []
    for part in json.loads(parts):
        named = part if isinstance(part, dict) else {part: {}}
        allowed = "one name for each transform"
        require(len(named) == 1, "strategy.augment", part, allowed)
        ((name, options),) = named.items()
        cls = look_up(known, name, "strategy.augment")
        own: dict[str, Any] = {}
        if "size" in signature(cls).parameters:
            own["size"] = list(shape[1:])
        if cls is library.RandomCrop:
            own["padding"] = shape[1] // 8  # 4 of 32, as is usual for CIFAR.
        kind = f"use settings of torchvision's {cls.__name__}"
        with refused(f"strategy.augment={part} is not allowed", kind):
            found.append(cls(**(own | options)))
    return found
