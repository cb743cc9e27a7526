"""Similarity of clients' model updates; pure functions on arrays.

A model has far more parameters than there are updates to compare, so all similarities
come from the n x n matrix of inner products, computed in blocks of columns without a
second copy of the updates.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TypeVar, cast

import numpy as np

from cfl_flower.seeding import generator, one_thread
from cfl_flower.types import FloatArray, IntArray, Vector

BLOCK_FLOATS = 2**22
"""Floats of all updates in one block: 16 MB."""

RANKS = ((np.float32, 1e-6), (np.float64, 1e-13))
"""Precisions of products, and the share of the largest eigenvalue below which smaller
ones are rounding errors."""

DENSE = 256
"""Rows up to which a matrix is decomposed by a dense method."""


def gram_matrix(
    vectors: Sequence[Vector], kind: type[np.floating] = np.float32
) -> FloatArray:
    """Return all inner products of n float32 vectors, shape (n, n), float64.

    ``kind`` is the precision of the products of one block of columns; their sum over
    blocks is float64, so that the error does not grow with d.
    """
    count = len(vectors)
    length = len(vectors[0])
    step = max(1, BLOCK_FLOATS // count)
    return _sum_of_products(
        np.stack([vector[start : start + step] for vector in vectors], dtype=kind)
        for start in range(0, length, step)
    )


def _sum_of_products(blocks: Iterable[FloatArray]) -> FloatArray:
    """Return the sum of B B^T over blocks of columns, in float64."""
    with one_thread():
        products = (block @ block.T for block in blocks)
        total = next(products).astype(np.float64)
        for product in products:
            total += product
    return total


def cosine_matrix(vectors: Sequence[Vector]) -> FloatArray:
    """Return the cosines of all pairs, shape (n, n): FlexCFL, eq. 5.

    A zero vector has cosine 0 with all others and 1 with itself.
    """
    cosines = cosines_of(gram_matrix(vectors))
    np.fill_diagonal(cosines, 1)
    return cosines


def cosines_of(products: FloatArray, rows: int | slice = slice(None)) -> FloatArray:
    """Return cosines from inner products, all or those of a row; 0 for zero vectors."""
    lengths = np.sqrt(np.maximum(np.diagonal(products), 0))
    lengths = np.where(lengths > 0, lengths, 1)
    scale = np.multiply.outer(lengths[rows], lengths)
    return np.clip(products[rows] / scale, -1, 1)


def decomposed_cosines(vectors: Sequence[Vector], directions: int) -> FloatArray:
    """Return the cosines of updates with their leading directions: FlexCFL, eq. 7.

    The Euclidean distance of two rows is m times EDC, the Euclidean distance of
    decomposed cosine similarity. The directions are the right singular vectors of the
    n x d matrix of updates; with X = U S V^T the inner products X V are U S, and U and
    S^2 are the eigenvectors and eigenvalues of the n x n matrix X X^T. So no singular
    value decomposition of a wide matrix is needed; where d < n, the d x d matrix X^T X
    is the smaller one and gives V.

    Products are computed in float32, which is fast and resolves the directions of all
    updates but those a thousand times shorter than the longest. If one of the m is as
    weak, they are computed again in float64.

    Of n updates of shape (d,) and m ``directions`` the result has shape
    (n, min(m, n, d)), the largest singular value first. The largest entry of a column
    is positive. Rows of zero vectors, and columns beyond the rank, are zero.
    """
    m = min(directions, len(vectors), len(vectors[0]))
    for kind, share in RANKS:
        products, values, squares = _project(vectors, m, kind)
        nothing = values <= share * values[0]
        if not nothing.any():
            break
    norms = np.sqrt(np.where(squares > 0, squares, 1))
    products[:, nothing] = 0
    cosines: FloatArray = np.round(products / norms[:, None], 6)
    largest = np.abs(cosines).argmax(axis=0)
    signs = np.sign(cosines[largest, np.arange(m)])
    return cosines * np.where(signs == 0, 1, signs)


def _project(
    vectors: Sequence[Vector], m: int, kind: type[np.floating]
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the products with m directions, their eigenvalues, and squared norms."""
    count = len(vectors)
    length = len(vectors[0])
    if length >= count:
        gram = gram_matrix(vectors, kind)
        values, columns = leading_eigenvectors(gram, m)
        return columns * np.sqrt(values), values, gram.diagonal()
    # Short vectors: a copy of all is small.
    matrix = np.stack(vectors, dtype=kind)
    step = max(1, BLOCK_FLOATS // length)
    starts = range(0, count, step)
    gram = _sum_of_products(matrix[start : start + step].T for start in starts)
    values, columns = leading_eigenvectors(gram, m)
    with one_thread():
        products = matrix @ columns.astype(kind)
    return products, values, np.einsum("ij,ij->i", matrix, matrix)


def leading_eigenvectors(gram: FloatArray, count: int) -> tuple[FloatArray, FloatArray]:
    """Return the m largest eigenvalues, descending, and their vectors, shape (n, m).

    The matrix, of shape (n, n), is symmetric and positive semi-definite.
    """
    from scipy.linalg import eigh
    from scipy.sparse.linalg import eigsh

    size = len(gram)
    with one_thread():
        if size <= DENSE or count >= size // 2 or not gram.any():
            values, columns = eigh(gram, subset_by_index=[size - count, size - 1])
        else:
            # Lanczos iterations: equally exact, in a tenth of the time.
            start = np.random.default_rng(0).standard_normal(size)
            values, columns = eigsh(gram, count, v0=start)
    order = np.argsort(-values, kind="stable")
    return np.maximum(values[order], 0), columns[:, order]


def madc(cosines: FloatArray) -> FloatArray:
    """Return the mean absolute differences of cosines, shape (n, n): FlexCFL, eq. 6.

    MADC(i, j) = 1/(n-2) sum_{z != i, j} |S(i, z) - S(j, z)|; the cosine distance for
    fewer than three updates, where it is undefined. ``cosines`` have shape (n, n), and
    ones on the diagonal.

    Examples
    --------
    >>> madc(np.array([[1.0, 0.5, 0.2], [0.5, 1.0, 0.6], [0.2, 0.6, 1.0]])).round(2)
    array([[0. , 0.4, 0.1],
           [0.4, 0. , 0.3],
           [0.1, 0.3, 0. ]])
    """
    from scipy.spatial.distance import pdist, squareform

    count = len(cosines)
    if count < 3:
        return 1 - cosines
    # The sum over all z, less the terms of z = i and z = j, |1 - S(i, j)| each.
    # FlexCFL, eq. 6.
    sums = squareform(pdist(cosines, "cityblock")) - 2 * (1 - cosines)
    result: FloatArray = np.maximum(sums, 0) / (count - 2)
    np.fill_diagonal(result, 0)
    return result


def dissimilarities(update: Vector, directions: Sequence[Vector]) -> FloatArray:
    """Return (1 - cos) / 2 of an update with each of m directions: FlexCFL, eq. 8.

    An array of shape (m,), with 1/2 where the update or the direction is zero.
    """
    # FlexCFL, eq. 8.
    return (1 - _cosines_with(update, directions)) / 2


def nearest_group(update: Vector, directions: Sequence[Vector]) -> int:
    """Return the direction that is nearest to an update: FlexCFL, eq. 8.

    A group that started empty has no direction, and cannot be chosen.
    """
    gaps = dissimilarities(update, directions)
    gaps[[not direction.any() for direction in directions]] = np.inf
    return int(gaps.argmin())


def _cosines_with(vector: FloatArray, others: Sequence[FloatArray]) -> FloatArray:
    """Return the cosines of a vector with m others, shape (m,); 0 with a zero one."""
    own = normalise(vector.astype(np.float64))
    units = (normalise(each.astype(np.float64, copy=False)) for each in others)
    # Without BLAS, whose threads would have to be limited in every call.
    cosines: FloatArray = np.array([np.einsum("i,i", own, unit) for unit in units])
    return cosines.clip(-1, 1)


def nearest_model(model: Vector, centres: Sequence[Vector]) -> int:
    """Return the centre at the smallest Euclidean distance, the lowest id on a tie."""
    return int(np.argmin([np.linalg.norm(model - centre) for centre in centres]))


Floats = TypeVar("Floats", bound=FloatArray)


def normalise(vector: Floats) -> Floats:
    """Return a vector scaled to length 1, of the same dtype; zero stays zero."""
    # Without BLAS, as in `_cosines_with`.
    length = float(np.sqrt(np.einsum("i,i", vector, vector, dtype=np.float64)))
    unit = vector / vector.dtype.type(length) if length > 0 else vector
    return cast(Floats, unit)


def nearest_direction(
    vector: FloatArray, sums: Sequence[FloatArray]
) -> tuple[int, float]:
    """Return the sum with the largest cosine, and the cosine: StoCFL, section 4.4.

    Step 1; the lowest index on a tie. The cosine with a sum of zero is 0. The vector
    and the sums, of which there is at least one, have shape (w,).
    """
    cosines = _cosines_with(vector, sums)
    best = int(np.argmax(cosines))
    return best, float(cosines[best])


def sketch(vector: Vector, dimension: int, seed: int) -> Vector:
    """Return a seeded random projection with unbiased inner products, shape (k,).

    A count sketch (Charikar et al., 2002): each coordinate is added, with a random
    sign, to one of k numbers. The inner product of two sketches has a variance of at
    most (|a|^2 |b|^2 + <a, b>^2) / k, so that the cosine of two vectors has a standard
    error of at most sqrt(2 / k). Vectors that are compared need the same seed.
    """
    places, signs = _projection(len(vector), dimension, seed)
    sums = np.bincount(places, weights=vector * signs, minlength=dimension)
    return sums.astype(np.float32)


@lru_cache(maxsize=2)
def _projection(length: int, dimension: int, seed: int) -> tuple[IntArray, Vector]:
    rng = generator(seed, "sketch")
    places = rng.integers(dimension, size=length)
    signs = rng.integers(2, size=length).astype(np.float32) * 2 - 1
    return places, signs


def chosen_entries(length: int, share: float, seed: int) -> IntArray:
    """Return which entries of an update everyone sends, ascending, at least one."""
    count = max(1, int(share * length))
    drawn = generator(seed, "entries").choice(length, count, replace=False)
    return np.sort(drawn)
