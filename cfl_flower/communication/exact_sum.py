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

COARSE, FINE = 2.0**-12, 2.0**-55
"""The units of the two integers of each entry."""

LARGEST = 2.0**31
"""What an entry times its weight must stay below."""

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
    ``terms``, are int64, shape (2, d); ``weight`` is that of all terms together.

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
        self.limbs, self.terms, self.weight = limbs, terms, weight

    @classmethod
    def empty(cls, length: int) -> ExactSum:
        """Return the sum of no models of d = length parameters."""
        return cls(np.zeros((2, length), np.int64), 0, 0)

    def add(self, model: Vector, weight: int) -> None:
        """Add a model of shape (d,), for which `check_range` holds."""
        terms, rest = np.empty((2, BLOCK))
        for start in range(0, len(model), BLOCK):
            part = model[start : start + BLOCK]
            coarse, fine = self.limbs[:, start : start + BLOCK]
            x, cut = rest[: len(part)], terms[: len(part)]
            bits = cut.view(np.int64)
            np.multiply(part, float(weight), out=x, dtype=np.float64)
            np.add(x, _ANCHORS[0], out=cut)
            coarse += bits
            cut -= _ANCHORS[0]
            x -= cut
            np.add(x, _ANCHORS[1], out=cut)
            fine += bits
        self.terms += 1
        self.weight += weight

    def merge(self, other: ExactSum) -> None:
        """Add what another one has added up."""
        self.limbs += other.limbs
        self.terms += other.terms
        self.weight += other.weight

    def mean(self) -> Vector:
        """Return sum w_i x_i / sum w_i; at least one weight is above 0."""
        # The constants wrap around with the sum itself.
        coarse, fine = self.limbs - _OFFSETS * np.array([[self.terms]])
        total: FloatArray = coarse * COARSE + fine * FINE
        return (total / self.weight).astype(np.float32)


def check_range(model: Vector, weight: int) -> None:
    """Refuse a model that does not fit a sum.

    Raises `InvalidResultError` if an entry times the weight is not below `LARGEST`.
    """
    largest = float(max(model.max(initial=0), -model.min(initial=0)))
    if not largest * weight < LARGEST:
        detail = f"a parameter of {largest:.3g} with weight {weight}, not below 2^31"
        raise InvalidResultError("range", detail)
