"""Memory that goes back to the system, and what Python finds unreachable."""

import gc
import platform
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from subprocess import run

import numpy as np
import pytest

from cfl_flower.environment.machine import rare_collections, return_free_memory

NAME = "a_module_of_test_memory"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop(NAME, None)


def test_what_a_run_leaves_behind_is_gone_after_it():
    class Run:
        alive = 0

        def __init__(self) -> None:
            self.own = self
            Run.alive += 1

        def __del__(self) -> None:
            Run.alive -= 1

    before = gc.get_threshold()
    with rare_collections():
        assert gc.get_threshold() != before
        Run()
        assert Run.alive == 1
    assert Run.alive == 0
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is asked")
def test_memory_between_what_is_in_use_is_returned():
    # Blocks from the heap, which only its end would leave by itself.
    blocks = [np.ones(2**13) for _ in range(1600)]
    kept = blocks[::16]
    del blocks
    before = resident_bytes()
    return_free_memory()
    # Of 100 MiB, 94 are free.
    assert before - resident_bytes() > 50 * 2**20
    assert all(each.all() for each in kept)


ROUNDS = """
import resource
import numpy as np
from cfl_flower.environment.machine import keep_free_memory

def new_pages():
    models = [np.ones(2**20, np.float32) for _ in range(10)]
    del models
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

keep_free_memory()
new_pages()
before = new_pages()
for _ in range(5):
    after = new_pages()
print(after - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc is asked")
def test_the_models_of_a_round_take_the_memory_of_the_last_one():
    command = [sys.executable, "-c", ROUNDS]
    done = run(command, capture_output=True, text=True, check=True)
    # Five times ten models of 4 MiB have 51,200 pages.
    assert int(done.stdout) < 1000
