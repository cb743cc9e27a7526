"""One thread for linear algebra: sums in parallel depend on the number of cores."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache

from threadpoolctl import ThreadpoolController


def one_thread() -> AbstractContextManager[object]:
    """Limit the libraries behind numpy, scipy and scikit-learn while it is open."""
    context: AbstractContextManager[object] = _controller().limit(limits=1)
    return context


@cache
def _controller() -> ThreadpoolController:
    # Looking the libraries up takes 8 ms; limiting them, 0.02.
    import sklearn.cluster  # noqa: PLC0415, F401

    return ThreadpoolController()
