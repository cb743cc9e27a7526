"""Who takes part in a round's training."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import numpy as np
from numpy.random import Generator

from cfl_flower.engine.context import RoundContext
from cfl_flower.environment.plugins import from_outside
from cfl_flower.errors import ConfigError
from cfl_flower.learning.selection import Known, share_participants
from cfl_flower.seeding import generator, no_common_draws
from cfl_flower.types import BoolArray, ClientId, IntArray, Plan, Scalar, Task, Vector


class Participants:
    """Draws clients, from all or from each cluster, and remembers for what they were.

    ``strata`` has the part of the clients for which each participant was drawn.
    """

    def __init__(self, context: RoundContext) -> None:
        self._context = context
        self.eligible: list[Callable[[], BoolArray]] = []
        """Each returns which clients a stage of the engine lets take part, (n,)."""
        self.forget()

    def forget(self) -> None:
        """Forget the last round's."""
        self.strata: dict[ClientId, int] = {}

    def choose(self, server_round: int, clusters: IntArray | None = None) -> list[int]:
        """Return the rows of at most M participants, from all or from each cluster.

        ``clusters`` are others than the state's, shape (n,).
        """
        context = self._context
        config = context.config
        state = context.state
        rng = generator(config.seed, "selection", server_round)
        strata = state.clusters if clusters is None else clusters
        sizes = np.bincount(strata, minlength=len(state.models))
        if config.strategy.sampling == "all":
            strata = np.zeros_like(strata)
            sizes = np.array([len(strata)])
        can_train = self.able()
        if not can_train.all():
            sizes = np.bincount(strata[can_train], minlength=len(sizes))
            strata = np.where(can_train, strata, -1)
        known = self.known(server_round)
        chosen: dict[int, int] = {}
        shares = share_participants(config.participants, sizes, rng)
        for stratum, share in enumerate(shares.tolist()):
            members = np.flatnonzero(strata == stratum)
            drawn = self._draw(members, share, rng, known)
            rows = np.asarray(drawn)
            whole = rows.ndim == 1 and (rows.dtype.kind in "iu" or not rows.size)
            found = rows.tolist() if whole else []
            known_rows = {*found} <= {*members.tolist()}
            if not (whole and known_rows and len({*found}) == len(found) <= share):
                raise ConfigError(
                    f"selection={config.names['selection']}: choose returned "
                    f"{drawn!r:.60}, not at most {share} of the members, each once"
                )
            chosen |= dict.fromkeys(found, stratum)
        self.strata = {state.clients[row]: k for row, k in chosen.items()}
        return sorted(chosen)

    def _draw(
        self, members: IntArray, count: int, rng: Generator, known: Known
    ) -> IntArray:
        """Return what the selection chooses; one of one's own must choose it again."""
        config = self._context.config
        option = f"selection={config.names['selection']}"
        choose = config.selection.choose
        twin = deepcopy(rng)
        with no_common_draws(option):
            drawn = choose(members.copy(), count, rng, known)
            again = drawn
            listed = isinstance(drawn, np.ndarray | list | tuple)
            if listed and from_outside(config.selection):
                again = choose(members.copy(), count, twin, known)
        if not np.array_equal(drawn, again):
            raise ConfigError(
                f"{option}: choose returned {drawn!r:.60} and, asked the same again, "
                f"{again!r:.60}; draw from the rng that it gets, and remember nothing "
                "between calls"
            )
        return drawn

    def send(self, server_round: int, arrays: list[Vector], **config: Scalar) -> Plan:
        """Draw participants; each receives all arrays, and replies with as many."""
        clients = self._context.state.clients
        everything = tuple(range(len(arrays)))
        rows = self.choose(server_round)
        tasks = [Task(clients[row], everything) for row in rows]
        return Plan(tasks, arrays, config, tuple(map(len, arrays)))

    def with_samples(self) -> BoolArray:
        """Return which clients can train, shape (n,): all if nobody has samples."""
        state = self._context.state
        empty = set(state.empty)
        eligible = np.array([each not in empty for each in state.clients], bool)
        return eligible if eligible.any() else ~eligible

    def able(self) -> BoolArray:
        """Return which clients have samples and may take part, shape (n,)."""
        able = self.with_samples()
        for allowed in self.eligible:
            able &= allowed()
        return able

    def known(self, server_round: int) -> Known:
        """Return what a selection can choose by."""
        context = self._context
        history = context.state.history.extended(len(context.state.clients))
        measure = None
        if context.config.selection.by_distance:
            measure = context.method.describe().centre_distances
        distances = np.zeros(0) if measure is None else measure()
        return Known(server_round, history, distances)

    def present(self) -> list[ClientId]:
        """Return the clients that are there: in a simulation, all."""
        return self._context.fleet.reachable(self._context.state.clients)
