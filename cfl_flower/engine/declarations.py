"""What a method says of itself, for those who check, export and measure it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cfl_flower.types import ClientId, FloatArray, IntArray


@dataclass(frozen=True)
class Published:
    """What the server's models are to those who export them."""

    models: str = "each cluster's model"
    """What the models are to the clients."""
    incomplete: str = ""
    """Why they cannot be used alone; empty if they can."""


@dataclass(frozen=True)
class Supports:
    """Which settings of other groups a method can use."""

    server_optimizer: bool = True
    """False if it has a step of its own from results to models."""
    selection: bool = True
    """False if it selects nobody."""
    centres: bool = False
    """Whether clients have a distance to their cluster's centre."""
    one_concept: bool = True
    """False if it is another method where all clients have the same concept."""


@dataclass(frozen=True)
class Disclosure:
    """All that a method's clients send, beside numbers of samples and tests."""

    models: int = 1
    """Trained models in a participant's answer."""
    reports: bool = False
    """Whether clients report what represents their data: a label histogram through
    `client.drift_report`, or a direction of length 1 as the only array of an answer to
    a query."""
    singly: bool = False
    """Whether the method compares single participants' models. One that averages those
    who trained the same model does not."""
    uncovered: str = ""
    """What clients send besides, which `privacy=` does not cover; empty if nothing."""


@dataclass(frozen=True)
class Exchange:
    """What passes between an asynchronous method's server and client, beside a model.

    The model is the one that the client trained.
    """

    mixtures: bool = False
    """Clients receive all K models, and upload their shares of them with the model."""
    free: bool = False
    """No bytes are counted: nothing is communicated where this is no simulation."""


@dataclass(frozen=True)
class Description:
    """What is known of a method's clusters, for measures and selections."""

    comparable: bool = True
    """Whether participants' first arrays are new versions of their clusters' models, so
    that the distance between the two says something."""
    heterogeneity: float | None = None
    """The mean client distance within clusters."""
    centre_distances: Callable[[], FloatArray] | None = None
    """Returns the distance of each client to its cluster's centre, shape (n,)."""
    class_clusters: tuple[Sequence[ClientId], IntArray] | None = None
    """m clients and their cluster in each class, (m, L), -1 without samples of it; of a
    method whose clusters are not of whole clients."""
