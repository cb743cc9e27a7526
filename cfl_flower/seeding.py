"""Every random draw of a run, keyed by its purpose.

A draw depends on (run seed, purpose, round, client) and on nothing else: not on the
worker, the order of messages, or earlier draws. So a resumed run needs no generator
state, and the number of workers cannot change a result.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache

import numpy as np
import torch
from threadpoolctl import ThreadpoolController

from cfl_flower.errors import ConfigError
from cfl_flower.types import ClientId


def key(name: ClientId) -> int:
    """Map a client id or a purpose to a stable 64-bit number.

    Python's ``hash`` differs between processes.

    Examples
    --------
    >>> key(7), key("site-a") == key("site-a")
    (7, True)
    """
    if isinstance(name, int):
        return name
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest())


def generator(
    seed: int, purpose: str, server_round: int = 0, client: ClientId = 0
) -> np.random.Generator:
    """Return the generator of one purpose, for example ``"batches"``, round and client.

    The round is 0 before the first, the client 0 for the server.

    Examples
    --------
    >>> a, b = generator(1, "batches", 3, 5), generator(1, "batches", 3, 5)
    >>> bool(a.random() == b.random())
    True
    """
    return np.random.default_rng([seed, key(purpose), server_round, key(client)])


@contextmanager
def no_common_draws(what: str) -> Iterator[None]:
    """Raise `ConfigError` if the body draws from NumPy's common generator."""
    _, before, *rest = np.random.get_state()
    yield
    _, after, *others = np.random.get_state()
    if rest != others or not np.array_equal(before, after):
        raise ConfigError(
            f"{what} draws from np.random, which no run seeds; draw from the generator "
            "that it gets, such as occasion.rng, or from generator(seed, purpose)"
        )


def torch_seed(
    seed: int, purpose: str, server_round: int = 0, client: ClientId = 0
) -> int:
    """Return a seed for torch's own generators (dropout, initialisation).

    Hashed, as a numpy generator for one number takes a tenth of a millisecond.
    """
    return key(f"{seed}/{purpose}/{server_round}/{key(client)}") >> 1


def seed_torch(seed: int) -> None:
    """Seed torch's own generators.

    `torch.manual_seed` does the same, but takes a millisecond without a GPU.
    """
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.manual_seed_all(seed)


@contextmanager
def own_draws(seed: int | None = None) -> Iterator[None]:
    """Keep draws of the body from the generators that all code shares to itself.

    Python's, NumPy's and torch's have the ``seed``, if there is one, in the body, for
    parts such as a KMeans without a ``random_state``, and go on after it as before.
    """
    pythons = random.getstate()
    numpys = np.random.get_state()
    torchs = torch.get_rng_state()
    if seed is not None:
        random.seed(seed)
        np.random.seed(seed % 2**32)
        seed_torch(seed)
    try:
        yield
    finally:
        random.setstate(pythons)
        np.random.set_state(numpys)
        torch.set_rng_state(torchs)


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let torch use one thread in the body, as a client does.

    A sum in parallel would depend on the number of cores.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def one_thread() -> AbstractContextManager[object]:
    """Limit the threads of numpy, scipy and scikit-learn to one in the body."""
    return _controller().limit(limits=1)


@cache
def _controller() -> ThreadpoolController:
    # Finding the libraries takes 8 ms, limiting them 0.02 ms.
    import sklearn.cluster  # noqa: F401

    return ThreadpoolController()
