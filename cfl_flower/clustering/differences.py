"""In what two clients differ, by sums over their samples, which may leave a device.

A client adds up, for each label, z z^T and |z| of its samples, where z is a one and at
most `AXES` coordinates of the input: all, or as many random ones. Of a label that two
clients hold unequally often, the sums are weighted, as if they held it equally often.
Labels are compared by the chi-squared test of two histograms; inputs by t-tests of the
means of z and |z|; their relation by the F-test of Chow (1960): whether one linear
regression of the labels does as well as one for each client, with each client's z on
a scale of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from cfl_flower.clustering.profiles import random_projection
from cfl_flower.types import FloatArray, IntArray, Vector

KINDS = ("labels", "inputs", "relation")

COMPARED = 40
"""The first clients, which are compared with each other."""

AXES = 24
"""Coordinates of an input, at most."""

LEAST_SAMPLES = 20
"""Fewer, with the same labels, tell nothing of inputs and relations."""

LEAST_OF_LABEL = 5
"""Of a label with fewer samples, the count alone leaves."""

SAMPLES_AN_AXIS = 5
"""A regression has an axis for so many samples."""


def shape_of(inputs: int, classes: int) -> tuple[int, int, int]:
    """Return the shape of the sums for samples with a number of inputs."""
    axes = min(inputs, AXES)
    return classes, axes + 2, axes + 1


def sums_by_label(x: FloatArray, y: IntArray, classes: int) -> FloatArray:
    """Return a client's sums of each label: the rows of z z^T, and at last |z|.

    ``x`` has shape (n, ...); the sums have shape (classes, a + 2, a + 1) for a axes.
    """
    inputs = math.prod(x.shape[1:])
    x = x.reshape(len(x), inputs)
    if inputs > AXES:
        x = x @ random_projection(inputs, AXES, np.random.default_rng(0))
    z = np.column_stack([np.ones(len(x)), x.astype(np.float64)])
    found = np.zeros(shape_of(inputs, classes))
    for label in range(classes):
        own = z[y == label]
        if len(own) >= LEAST_OF_LABEL:
            found[label] = np.vstack([own.T @ own, np.abs(own).sum(axis=0)])
        found[label, 0, 0] = len(own)
    return found


def to_vector(sums: FloatArray) -> Vector:
    """Return sums as float32, in two parts: the second has what the first lacks."""
    coarse = sums.ravel().astype(np.float32)
    fine = (sums.ravel() - coarse).astype(np.float32)
    return np.concatenate([coarse, fine])


def from_vector(vector: Vector, shape: tuple[int, ...]) -> FloatArray | None:
    """Return the sums that a vector stands for; None if no samples have them."""
    found = vector.astype(np.float64).reshape(2, *shape).sum(axis=0)
    counts = found[:, 0, 0]
    squares = np.diagonal(found[:, :-1], axis1=1, axis2=2)
    whole = bool(np.all((counts >= 0) & (counts == np.rint(counts))))
    # Cauchy and Schwarz, but for rounding.
    most = counts[:, None] * squares * (1 + 1e-6)
    possible = np.isfinite(found).all() and whole and bool(np.all(squares >= 0))
    possible &= bool(np.all(found[:, [0, -1]] ** 2 <= most[:, None]))
    return found if possible else None


def differences(one: FloatArray, other: FloatArray) -> list[float]:
    """Return the p-value of each kind for two clients; 1 where nothing can be told."""
    from scipy.stats import chi2_contingency

    counts = np.stack([one[:, 0, 0], other[:, 0, 0]])
    held = counts[:, counts.any(axis=0)]
    found = [1.0, 1.0, 1.0]
    if held.any(axis=1).all():
        found[0] = float(chi2_contingency(held).pvalue)
    common = np.where((counts >= LEAST_OF_LABEL).all(axis=0), counts.min(axis=0), 0)
    shared = common > 0
    if common.sum() < LEAST_SAMPLES:
        return found
    sides = [
        of[shared] * (common[shared] / of[shared, 0, 0])[:, None, None]
        for of in (one, other)
    ]
    found[1] = compare_inputs(sides)
    found[2] = compare_relations(sides)
    return found


def compare_inputs(sides: Sequence[FloatArray]) -> float:
    """Return the p-value of equal means of z and |z|, by Bonferroni over the axes."""
    from scipy.stats import t

    n = sides[0][:, 0, 0].sum()
    free = n - len(sides[0])
    means = []
    variances = []
    for of in sides:
        sums = np.hstack([of[:, 0, 1:], of[:, -1, 1:]])
        # |z|^2 is z^2.
        squares = np.tile(np.diagonal(of[:, :-1], axis1=1, axis2=2)[:, 1:], 2)
        means.append(sums.sum(axis=0) / n)
        within = squares - sums**2 / of[:, :1, 0]
        variances.append(np.maximum(within, ROUNDING * squares).sum(axis=0) / free)
    gap = np.abs(means[0] - means[1])
    error = np.sqrt((variances[0] + variances[1]) / n)
    told = np.divide(gap, error, out=np.zeros_like(gap), where=error > 0)
    p = 2 * t.sf(told, 2 * free)
    return min(1.0, float(len(p) * p.min()))


def compare_relations(sides: Sequence[FloatArray]) -> float:
    """Return the p-value of one regression for both, by Bonferroni over the labels."""
    from scipy.stats import f

    counts = sides[0][:, 0, 0]
    n = counts.sum()
    width = 1 + min(sides[0].shape[2] - 1, int(n // SAMPLES_AN_AXIS))
    if len(counts) < 2:
        return 1.0
    grams = []
    moments = []
    for of in sides:
        gram = of[:, :width, :width].sum(axis=0)
        mean = np.append(0, gram[0, 1:] / n)
        spread = np.diagonal(gram) / n - mean**2
        flat = spread <= ROUNDING * np.diagonal(gram) / n
        scale = np.where(flat, 0, 1 / np.sqrt(np.where(flat, 1, spread)))
        own = np.eye(width) * scale
        own[0, 1:] = -mean[1:] * scale[1:]
        grams.append(own.T @ gram @ own)
        moments.append(own.T @ of[:, 0, :width].T)
    alone = residual(grams[0], moments[0], counts)
    alone += residual(grams[1], moments[1], counts)
    both = residual(grams[0] + grams[1], moments[0] + moments[1], 2 * counts)
    free = 2 * n - 2 * width
    error = np.maximum(alone, ROUNDING * n) / free
    p = f.sf((both - alone) / width / error, width, free)
    return min(1.0, float(len(p) * p.min()))


def residual(gram: FloatArray, moments: FloatArray, squares: FloatArray) -> FloatArray:
    """Return each label's sum of squares that the regression on z leaves."""
    inverse = np.linalg.pinv(gram, rcond=1e-9, hermitian=True)
    return squares - (moments * (inverse @ moments)).sum(axis=0)


ROUNDING = 1e-9
"""Share of a sum of squares below which a variance is none."""
