"""What a client has lost of its privacy by all that it sent.

Every mechanism is Gaussian: a vector that one client can change by at most 1 in L2, and
noise of standard deviation z on each of its numbers. Several of them are together, also
if a later one depends on what came out of earlier ones, exactly one with
1 / z^2 = sum_i 1 / z_i^2 (Dong, Roth and Su, JRSS B 2022, Corollary 3.3). So one number
per client says what it lost, whatever clusters it was in; its epsilon is that of one
Gaussian mechanism (Balle and Wang, ICML 2018), by dp-accounting.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache

from cfl_flower.settings import require_package
from cfl_flower.types import ClientId


@dataclass
class PrivacyLoss:
    """What all clients have lost so far."""

    squares: dict[ClientId, float] = field(default_factory=dict)
    """sum_i 1 / z_i^2 over all that a client sent; absent: nothing."""

    def of(self, client: ClientId) -> float:
        """Return what a client has lost, as sum_i 1 / z_i^2."""
        return self.squares.get(client, 0.0)

    def add(self, clients: Iterable[ClientId], square: float) -> None:
        """Note what clients lose by something that they sent."""
        if square:
            self.squares |= {client: self.of(client) + square for client in clients}


@lru_cache(maxsize=2**14)
def epsilon_of(square: float, delta: float) -> float:
    """Return the epsilon of Gaussian mechanisms with sum_i 1 / z_i^2 = square.

    The smallest that holds but for a probability of ``delta``, between 0 and 1. Needs
    dp-accounting, see `require_accountant`.
    """
    if square == 0:
        return 0.0
    from dp_accounting import get_epsilon_gaussian

    return float(get_epsilon_gaussian(square**-0.5, delta))


def require_accountant(mode: str) -> None:
    """Raise `ConfigError` unless dp-accounting is installed."""
    require_package("dp_accounting", "privacy", mode, "none")
