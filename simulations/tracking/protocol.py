"""The streams of the track and its protocol, which protocol.yaml has."""

from __future__ import annotations

from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field
from pydantic.dataclasses import dataclass

from cfl_flower.settings import Count, Positive
from simulations.papers.published import KNOWN_KEYS, Overrides

PROTOCOL = Path(__file__).with_name("protocol.yaml")
SHARED = ("images", "twice", "tables")
"""Keys of overrides that several streams name."""

Measure = Annotated[str, Field(pattern="^(accuracy|balanced_accuracy)$")]


@dataclass(frozen=True, config=KNOWN_KEYS)
class TrackStream:
    """Data that change, the same for all methods of a seed."""

    title: str
    overrides: Overrides
    measure: Measure = "accuracy"
    """Its mean over the tested rounds is a run's score."""
    needs: str = ""
    """The package that has its data, if it is not a dataset of torchvision's."""
    control: bool = False
    """Whether nothing drifts: it does not count in the ranks."""


@dataclass(frozen=True, config=KNOWN_KEYS)
class Protocol:
    """How every method is run."""

    version: Count
    rates: list[Positive]
    """The learning rates of which each method has its best on each stream."""
    tuning_seed: int
    seeds: Count
    overrides: Overrides
    streams: dict[str, TrackStream] = field(default_factory=dict)

    @property
    def ranked(self) -> list[str]:
        """The streams that count in the ranks."""
        return [name for name, each in self.streams.items() if not each.control]


@cache
def load_protocol() -> Protocol:
    """Read the track's protocol."""
    raw: dict[str, Any] = yaml.safe_load(PROTOCOL.read_text(encoding="utf-8"))
    parts = {key: raw[key] for key in raw if key not in SHARED}
    return Protocol(**parts)
