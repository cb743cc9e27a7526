"""The other libraries, and an environment for each below the user's cache folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path

from cfl_flower.data.reading.pool import cache_dir
from cfl_flower.errors import CflError

INSTALL_TIMEOUT = 1800.0
"""Seconds for an installation."""


class MissingPeerError(CflError):
    """A library that cannot be installed, or not imported after that."""


@dataclass(frozen=True)
class Peer:
    """A library that does the same work, or an engine of ours."""

    name: str
    script: str
    """Its file below `scripts`."""
    reports: tuple[str, ...]
    """The distributions whose versions are told."""
    attempts: tuple[tuple[str, ...], ...] = ()
    """What to install; the first that works. Our own environment has ours."""
    module: str = ""
    """What must be importable."""
    methods: tuple[str, ...] = ("fedavg",)
    """The strategies of ours that it has a counterpart of."""
    engine: str = ""
    """Of our own run."""


def all_peers() -> list[Peer]:
    """Return ours and the others, these with the torch and the Flower that we have."""
    ours = ("with_cfl_flower", ("cfl-flower", "torch"))
    both = ("fedavg", "ifca")
    torch = _like_ours("torch")
    vision = _like_ours("torchvision")
    flower = _like_ours("flwr", "[simulation]")
    ray = _like_ours("ray")
    return [
        Peer("cfl-flower", *ours, methods=both, engine="engine=inprocess"),
        Peer("cfl-flower on Ray", *ours, methods=both, engine="workers=1"),
        Peer(
            "fedjax",
            "with_fedjax",
            ("fedjax", "jax"),
            (("fedjax", "jax"), ("fedjax", "jax<0.6")),
            "fedjax",
            both,
        ),
        Peer("pfl-research", "with_pfl", ("pfl", "torch"), (("pfl", torch),), "pfl"),
        Peer(
            "Flower's simulation",
            "with_flower",
            ("flwr", "torch"),
            ((flower, ray, torch),),
            "flwr.simulation",
        ),
        Peer(
            "FedLab",
            "with_fedlab",
            ("fedlab", "torch"),
            (("fedlab", torch, vision),),
            "fedlab.core.standalone",
        ),
    ]


def _like_ours(distribution: str, extra: str = "") -> str:
    """Return the requirement of the release that is installed here."""
    # Without what names the build, such as +cpu, which no index has.
    return f"{distribution}{extra}=={version(distribution).partition('+')[0]}"


def interpreter(peer: Peer, tell: Callable[[str], None]) -> Path:
    """Return the Python that has a library; its environment is made once, and kept.

    Raises `MissingPeerError` with the reason if none of the attempts leads to one.
    """
    if not peer.attempts:
        return Path(sys.executable)
    reasons = []
    for needs in peer.attempts:
        try:
            return _environment(peer, needs, tell)
        except MissingPeerError as error:
            reasons.append(f"with {needs[-1]}: {error}")
    raise MissingPeerError("; ".join(reasons) if len(reasons) > 1 else reasons[0])


def _environment(peer: Peer, needs: Sequence[str], tell: Callable[[str], None]) -> Path:
    state = blake2b(f"{sys.version} {needs}".encode(), digest_size=4)
    folder = cache_dir() / "peers" / f"{needs[0].partition('[')[0]}-{state.hexdigest()}"
    python = folder / "bin" / "python"
    ready = folder / "ready"
    if ready.exists():
        tell(f"{peer.name}: as installed in {folder}")
        return python
    tell(f"{peer.name}: installing {' '.join(needs)} in {folder}")
    shutil.rmtree(folder, ignore_errors=True)
    try:
        execute([sys.executable, "-m", "venv", str(folder)], INSTALL_TIMEOUT)
        execute([str(python), "-m", "pip", "install", *needs], INSTALL_TIMEOUT)
        execute([str(python), "-c", f"import {peer.module}"], INSTALL_TIMEOUT)
    except MissingPeerError:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    ready.touch()
    return python


def execute(command: Sequence[str], timeout: float, **variables: str) -> str:
    """Return what a process prints; `MissingPeerError` says what went wrong.

    Nothing of our environment is in its way, but with these variables.
    """
    clean = {
        k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "FLWR_HOME")
    }
    try:
        done = subprocess.run(
            command,
            env={**clean, **variables},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise MissingPeerError(f"more than {timeout:.0f} s") from error
    if done.returncode:
        raise MissingPeerError(_last_words(done.stderr or done.stdout))
    return done.stdout


def _last_words(text: str) -> str:
    """Return the line in which a process says why it failed."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.upper().startswith("ERROR")]
    return [*lines, *errors][-1] if lines else "no word"
