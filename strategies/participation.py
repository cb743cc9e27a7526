"""Which participants of a round count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cfl_flower.simulated_devices import first_to_finish
from cfl_flower.types import ClientId, FloatArray, IntArray, Result


@dataclass(frozen=True)
class Draw:
    """What the participants of a round were drawn from."""

    strata: dict[ClientId, int]
    """The stratum of each participant: 0 for all clients, or its cluster."""
    shares: IntArray
    """How many of each stratum are wanted, shape (P,)."""

    def keep_first(
        self, results: Sequence[Result], seconds: FloatArray
    ) -> tuple[list[Result], dict[ClientId, float]]:
        """Return the results of those who finished first, as many as were wanted.

        ``seconds`` until each has finished, (m,). Returns how long each of the others
        took, too.
        """
        strata = np.array([self.strata[result.client] for result in results], np.int64)
        kept = first_to_finish(seconds, strata, self.shares)
        rows = list(zip(results, seconds.tolist(), kept, strict=True))
        late = {result.client: taken for result, taken, first in rows if not first}
        return [result for result, _, first in rows if first], late


NO_DRAW = Draw({}, np.zeros(0, np.int64))
"""Of a round in which nobody was drawn."""
