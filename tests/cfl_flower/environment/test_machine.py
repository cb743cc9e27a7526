"""Memory that goes back to the system."""

from __future__ import annotations

import platform
import resource
from pathlib import Path

import numpy as np
import pytest

from cfl_flower.environment.machine import return_free_memory, usable_cores


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is asked")
def test_memory_between_what_is_in_use_is_returned() -> None:
    # Blocks from the heap, which only its end would leave by itself.
    blocks = [np.ones(2**13) for _ in range(1600)]
    kept = blocks[::16]
    del blocks
    before = resident_bytes()
    return_free_memory()
    # Of 100 MiB, 94 are free.
    assert before - resident_bytes() > 50 * 2**20
    assert all(each.all() for each in kept)


def test_there_is_a_core() -> None:
    assert usable_cores() >= 1
