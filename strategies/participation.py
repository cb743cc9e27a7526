"""Which participants of a round count, and what a selection learns from all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cfl_flower.learning.selection import History
from cfl_flower.simulated_devices import first_to_finish
from cfl_flower.types import ClientId, FloatArray, IntArray, Result


@dataclass(frozen=True)
class Draw:
    """What the participants of a round were drawn from.

    Attributes
    ----------
    strata : dict
        The stratum of each participant: 0 for all clients, or its cluster.
    shares : int array of shape (P,)
        How many of each stratum are wanted.
    """

    strata: dict[ClientId, int]
    shares: IntArray

    def keep_first(
        self, results: Sequence[Result], seconds: FloatArray
    ) -> tuple[list[Result], dict[ClientId, float]]:
        """Return the results of those who finished first, as many as were wanted.

        Parameters
        ----------
        results : sequence of m Result
            Of more participants than are wanted: `devices.over_commitment`.
        seconds : array of shape (m,)
            Until each has finished.

        Returns
        -------
        list of Result
        dict
            How long each of the others took.
        """
        strata = np.array([self.strata[result.client] for result in results], np.int64)
        kept = first_to_finish(seconds, strata, self.shares)
        rows = list(zip(results, seconds.tolist(), kept, strict=True))
        late = {result.client: taken for result, taken, first in rows if not first}
        return [result for result, _, first in rows if first], late


NO_DRAW = Draw({}, np.zeros(0, np.int64))
"""Of a round in which nobody was drawn."""


def learn_from_participants(
    history: History,
    round: int,
    results: Sequence[Result],
    rows: IntArray,
    seconds: FloatArray,
    late: tuple[IntArray, FloatArray],
) -> History:
    """Return what a selection knows of clients after a round.

    Parameters
    ----------
    history : History
        Of all clients before it.
    round : int
    results : sequence of m Result
        With the root of the mean square loss, ``start_rms``.
    rows : int array of shape (m,)
        Of their clients.
    seconds : array of shape (m,)
    late : (int array of shape (l,), array of shape (l,))
        The rows of those who were too late, and their seconds.
    """
    rms = np.array([float(result.metrics["start_rms"]) for result in results])
    utilities = rms * [result.num_examples for result in results]
    history = history.noted(round, rows, utilities, seconds)
    if len(late[0]):
        history = history.noted_late(round, *late, float(utilities.mean()))
    return history
