"""Settings without Hydra: how a client rebuilds what the server composed.

A group of settings is a frozen dataclass that checks itself in ``__post_init__`` and
carries the behaviour it configures. On the wire it is a plain mapping whose
``_target_`` names the class, so a device needs neither Hydra nor OmegaConf.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from importlib.util import find_spec
from typing import Any

from cfl_flower.errors import ConfigError

ROOMS = ("cfl_flower", "strategies", "clients")


def locate(path: str) -> Any:
    """Import the object behind a dotted path of this project.

    Raises
    ------
    ConfigError
        If the path leaves this project's packages or does not exist.
    """
    module, _, name = str(path).rpartition(".")
    if module.split(".")[0] not in ROOMS:
        raise ConfigError(
            f"_target_: {path!r} is outside of {', '.join(ROOMS)}; "
            "name a class of this project"
        )
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"_target_: {path!r} cannot be imported ({error}); correct the path"
        ) from error


def settings_class(path: str) -> Any:
    """Return the settings dataclass behind a ``_target_``.

    The target is the dataclass itself, or a strategy, whose ``Settings`` it is.

    Raises
    ------
    ConfigError
        If it is anything else.
    """
    target = locate(path)
    settings = getattr(target, "Settings", target)
    if not (isinstance(settings, type) and is_dataclass(settings)):
        raise ConfigError(
            f"_target_: {path!r} is no settings; name a strategy or a dataclass of "
            "settings"
        )
    return settings


def build(node: Any) -> Any:
    """Rebuild settings from plain data; mappings with a ``_target_`` become objects."""
    if not isinstance(node, Mapping):
        return node
    hidden = ("_target_", "name") if "_target_" in node else ()
    values = {key: build(value) for key, value in node.items() if key not in hidden}
    return settings_class(node["_target_"])(**values) if hidden else values


def differences(
    one: Any, two: Any, key: str = ""
) -> Iterator[tuple[str, object, object]]:
    """Yield where two configurations differ: the full key, and the value in each.

    What is absent is None. Options of a group with another name differ in that name,
    which says more than what follows from it.

    Examples
    --------
    >>> old = {"seed": 1, "model": {"name": "mlp", "hidden": 64}}
    >>> list(differences(old, {"seed": 1, "model": {"name": "mlp", "hidden": 32}}))
    [('model.hidden', 64, 32)]
    >>> list(differences(old, {"seed": 1, "model": {"name": "cnn", "channels": 8}}))
    [('model.name', 'mlp', 'cnn')]
    """
    if not (isinstance(one, Mapping) and isinstance(two, Mapping)):
        if one != two:
            yield key, one, two
        return
    named = one.get("name") != two.get("name")
    for inner in ["name"] if named else {**one, **two}:
        path = f"{key}.{inner}" if key else inner
        yield from differences(one.get(inner), two.get(inner), path)


def require(condition: bool, field: str, value: object, allowed: str) -> None:
    """Raise the one-line error of a setting out of its range.

    Raises
    ------
    ConfigError
        If ``condition`` is false; names the field, its value and what is allowed.

    Examples
    --------
    >>> require(False, "rounds", 0, "an integer of at least 1")
    Traceback (most recent call last):
    cfl_flower.errors.ConfigError: rounds=0 is not allowed; use an integer of at least 1
    """
    if not condition:
        raise ConfigError(f"{field}={value} is not allowed; use {allowed}")


@contextmanager
def located(place: str) -> Iterator[None]:
    """Let the errors of settings within others name their full key.

    Parameters
    ----------
    place : str
        Where they are, for example ``drift.steps.first``. They themselves only know
        their group, ``drift``.

    Examples
    --------
    >>> with located("drift.steps.first"):
    ...     require(False, "drift.every", 0, "1")
    Traceback (most recent call last):
    cfl_flower.errors.ConfigError: drift.steps.first.every=0 is not allowed; use 1
    """
    try:
        yield
    except ConfigError as error:
        group, text = place.partition(".")[0], str(error)
        if not text.startswith(f"{group}.") or text.startswith(f"{place}."):
            raise
        raise ConfigError(place + text.removeprefix(group)) from error


def require_fraction(field: str, value: float) -> None:
    """Require a probability or share within [0, 1]."""
    require(0 <= value <= 1, field, value, "a number from 0 to 1")


def require_one_of(field: str, value: str, allowed: Sequence[str]) -> None:
    """Require one of a few words."""
    require(value in allowed, field, value, " or ".join(allowed))


@dataclass(frozen=True)
class System:
    """How a run is carried out, without effect on its numbers.

    Attributes
    ----------
    task_timeout : float
        Seconds that one client's task may take; 0 for no limit.
    message_timeout : float
        Seconds after which a node that has not answered is given up.
    evaluate_every : int
        Rounds between tests of all clients (the last round is always tested).
    checkpoint_every : int
        Rounds between checkpoints.
    tensorboard : bool
        Write the rounds for TensorBoard, too, into `output_dir`/tensorboard.
    """

    task_timeout: float = 120.0
    message_timeout: float = 3600.0
    evaluate_every: int = 1
    checkpoint_every: int = 1
    tensorboard: bool = False

    def __post_init__(self) -> None:
        for name in ("task_timeout", "message_timeout"):
            value = getattr(self, name)
            require(value >= 0, f"system.{name}", value, "seconds of at least 0")
        for name in ("evaluate_every", "checkpoint_every"):
            value = getattr(self, name)
            require(value >= 1, f"system.{name}", value, "rounds of at least 1")
        require(
            not self.tensorboard or find_spec("tensorboard") is not None,
            "system.tensorboard",
            self.tensorboard,
            "false, or true after pip install 'cfl-flower[tensorboard]'",
        )


FAULTS = ("raises", "nan", "shape", "hangs", "drops")
"""What may strike any task of a client."""

ATTACKS = ("permute", "random", "flip")
"""What malicious clients may do."""


@dataclass(frozen=True)
class Faults:
    """What real devices do, and what malicious ones do on purpose.

    Attributes
    ----------
    raises, nan, shape, hangs, drops : float
        Probabilities, per client and task: the client raises; answers with NaN;
        answers with a wrong shape; never finishes; sends nothing.
    malicious : float
        Share of clients that attack in every round.
    attack : {"permute", "random", "flip"}
        They permute the coordinates of their representation; report a random one;
        train on flipped labels, and report these.
    """

    raises: float = 0.0
    nan: float = 0.0
    shape: float = 0.0
    hangs: float = 0.0
    drops: float = 0.0
    malicious: float = 0.0
    attack: str = "permute"

    def __post_init__(self) -> None:
        require_fraction("faults.malicious", self.malicious)
        require_one_of("faults.attack", self.attack, ATTACKS)
        total = 0.0
        for name in FAULTS:
            require_fraction(f"faults.{name}", getattr(self, name))
            total += getattr(self, name)
        require(total <= 1 + 1e-9, "the sum of faults", total, "at most 1 in all")
