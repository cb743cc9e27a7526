from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from tests.conftest import Runner

REP = ["strategy=fedrep", "model=mlp", "model.hidden=16", "drift.rounds=[]"]
EXTRACTOR = 64 * 16 + 16


def classifiers(run: Any) -> dict[str, np.ndarray]:
    """Return each client's newest classifier."""
    newest = {
        folder.name: sorted(folder.glob("*.safetensors"))[-1]
        for folder in Path(run.folder, "clients").iterdir()
    }
    return {name: load_file(path)["classifier"] for name, path in newest.items()}


def test_every_client_has_a_classifier_of_its_own(run_small: Runner) -> None:
    own = classifiers(run_small(*REP, "participants=12"))
    assert len(own) == 12
    assert all(each.shape == (17 * 10,) for each in own.values())
    assert len({each.tobytes() for each in own.values()}) == 12


def test_personal_classifiers_outlive_a_drift_of_labels(run_small: Runner) -> None:
    options = ["drift=sudden", "drift.rounds=[5]", "rounds=9", "participants=12"]
    options += ["partition.purity=0", "strategy.local.epochs=5"]
    options += ["strategy.local.momentum=0.9", "strategy.local.learning_rate=0.05"]
    rep = run_small(*REP[:-1], *options, folder="rep").rounds
    avg = run_small(*REP[1:-1], *options, "strategy=fedavg", folder="avg").rounds
    loss = [rows[3]["accuracy"] - rows[-1]["accuracy"] for rows in (rep, avg)]
    assert loss[0] < 0.05 < loss[1]
