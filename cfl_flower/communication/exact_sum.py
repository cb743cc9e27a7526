"""Sums of models that do not depend on the order of their parts, nor on who adds them.

Floating-point addition is not associative, so a sum of partial sums has other bits than
one in a row. Integers have no such trouble: a term, the model times its weight, is cut
into a multiple of 2^-12 and what remains, a multiple of 2^-55; both are added up as
64-bit integers. All workers may add in whatever order and share.
"""

from __future__ import annotations

import numpy as np

from cfl_flower.errors import InvalidResultError
from cfl_flower.types import FloatArray, IntArray, Vector

COARSE = 2.0**-12
FINE = 2.0**-55
"""The units of the two integers of each entry."""

LARGEST = 2.0**31
"""Bound of an entry times its weight."""

BLOCK = 2**15
"""Entries that are cut at a time; they stay in the processor's cache."""

# A float64 of this size has no digits below the unit: adding it rounds to a multiple of
# that, and the bits of the sum are those of the integer, but for a constant.
_ANCHORS = tuple(1.5 * 2.0**52 * unit for unit in (COARSE, FINE))
_OFFSETS = np.array(_ANCHORS).view(np.int64)[:, None]


class ExactSum:
    """The weighted sum of models of d parameters.

    Exact for weights up to 2^29 and entries that are multiples of 2^-55 once weighted,
    as are all float32 numbers of at least 2^-31 (5e-10); smaller ones are rounded to
    such a multiple, so that the mean's error is below 2^-56. A million terms fit.

    ``limbs``, the coarse and the fine part with a constant added by each of the
    ``terms``, are int64, shape (2, d); ``weight`` is that of all terms together. They
    take four times the bytes of a model: a first term is kept as it came, until there
    is a second one.

    Examples
    --------
    >>> one, other = ExactSum.empty(2), ExactSum.empty(2)
    >>> one.add(np.float32([0.1, 4]), 1)
    >>> other.add(np.float32([0.2, 8]), 3)
    >>> one.merge(other)
    >>> one.mean()
    array([0.175, 7.   ], dtype=float32)
    """

    def __init__(self, limbs: IntArray, terms: int, weight: int) -> None:
        self._limbs: IntArray | None = limbs
        self._alone: Vector | None = None
        self.length = limbs.shape[1]
        self.terms = terms
        self.weight = weight

    @classmethod
    def empty(cls, length: int) -> ExactSum:
        """Return the sum of no models of d = length parameters."""
        # No memory: a broadcast zero.
        return cls(np.broadcast_to(np.int64(0), (2, length)), 0, 0)

    @property
    def limbs(self) -> IntArray:
        """The two integers of each entry, shape (2, d)."""
        if self._limbs is None:
            self._limbs = self._block(slice(None))
            self._alone = None
        return self._limbs

    def add(self, model: Vector, weight: int) -> None:
        """Add a model of shape (d,), for which `check_range` holds."""
        if self.terms == 0:
            # A copy: the model is often a view of all that a worker sent.
            self._alone = model.copy()
            self._limbs = None
        else:
            _add(self.limbs, model, weight)
        self.terms += 1
        self.weight += weight

    def merge(self, other: ExactSum) -> None:
        """Add what another one has added up."""
        if other._alone is not None:
            self.add(other._alone, other.weight)
            return
        if self.terms == 0:
            self._limbs = other.limbs.copy()
        else:
            limbs = self.limbs
            limbs += other.limbs
        self.terms += other.terms
        self.weight += other.weight

    def is_possible(self) -> bool:
        """Return whether as many models can have this sum; random limbs hardly can."""
        limbs = self.limbs - _OFFSETS * self.terms
        largest = self.terms * int(LARGEST / COARSE)
        least = limbs.min(initial=0)
        return bool(-largest <= least and limbs.max(initial=0) <= largest)

    def mean(self) -> Vector:
        """Return sum w_i x_i / sum w_i; at least one weight is above 0."""
        result = np.empty(self.length, np.float32)
        offsets = _OFFSETS * self.terms
        for start in range(0, self.length, BLOCK):
            block = slice(start, start + BLOCK)
            # The constants wrap around with the sum itself.
            coarse, fine = self._block(block) - offsets
            total: FloatArray = coarse * COARSE + fine * FINE
            result[block] = total / self.weight
        return result

    def total(self) -> FloatArray:
        """Return sum w_i x_i, as near as float64 comes to it."""
        coarse, fine = self.limbs - _OFFSETS * self.terms
        return coarse * COARSE + fine * FINE

    def _block(self, block: slice) -> IntArray:
        """Return some columns of the limbs, without making all of them."""
        if self._alone is None:
            return self.limbs[:, block]
        part = self._alone[block]
        limbs = np.zeros((2, len(part)), np.int64)
        _add(limbs, part, self.weight)
        return limbs


def _add(limbs: IntArray, model: Vector, weight: int) -> None:
    """Add a model, times its weight, to its limbs, a block after the other."""
    for start in range(0, limbs.shape[1], BLOCK):
        coarse, fine = limbs[:, start : start + BLOCK]
        x = np.multiply(model[start : start + BLOCK], float(weight), dtype=np.float64)
        cut = x + _ANCHORS[0]
        coarse += cut.view(np.int64)
        cut -= _ANCHORS[0]
        x -= cut
        np.add(x, _ANCHORS[1], out=cut)
        fine += cut.view(np.int64)


def check_range(model: Vector, weight: int) -> None:
    """Refuse a model that does not fit a sum.

    Raises `InvalidResultError` if an entry times the weight is not below `LARGEST`.
    """
    largest = float(max(model.max(initial=0), -model.min(initial=0)))
    if not largest * weight < LARGEST:
        # The value itself is the client's, and masked where sums are.
        detail = "a parameter times its weight is not below 2^31"
        raise InvalidResultError("range", detail)
