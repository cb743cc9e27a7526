"""The work of a script, and how it says what it has done."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

DONE = "a round is done"


@dataclass(frozen=True)
class Job:
    """FedAvg from one model, or IFCA from several, on the data in a folder.

    Of n clients with s samples each there are ``x.npy``, shape (n, s, 1, 28, 28), and
    ``y.npy``, shape (n, s), and of the k initial models ``start.npy``, shape (k, d).
    """

    folder: str
    shapes: list[list[int]]
    """Of the parameters of dense layers with ReLU between, as torch has them."""
    rounds: int
    participants: int
    epochs: int
    batch_size: int
    learning_rate: float
    overrides: list[str]
    """The same as settings of ours."""

    def load(self, name: str) -> Any:
        """Return an array of the folder, as a memory map."""
        return np.load(Path(self.folder, f"{name}.npy"), mmap_mode="r")


def lap() -> None:
    """Say that a round is done."""
    print(f"\n{DONE}", flush=True)


def carry_out(run: Callable[[Job], Any]) -> None:
    """Do the job on the command line, and save the models that come of it."""
    job = Job(**json.loads(sys.argv[1]))
    np.save(Path(job.folder, "models.npy"), np.asarray(run(job), np.float32))
