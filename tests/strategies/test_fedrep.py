from __future__ import annotations

from tests.conftest import Runner

REP = ["strategy=fedrep", "model=mlp", "model.hidden=16", "drift.rounds=[]"]


def test_personal_classifiers_outlive_a_drift_of_labels(run_small: Runner) -> None:
    options = ["drift=sudden", "drift.rounds=[5]", "rounds=9", "participants=12"]
    options += ["partition.purity=0", "strategy.local.epochs=5"]
    options += ["strategy.local.momentum=0.9", "strategy.local.learning_rate=0.05"]
    rep = run_small(*REP[:-1], *options, folder="rep").rounds
    avg = run_small(*REP[1:-1], *options, "strategy=fedavg", folder="avg").rounds
    loss = [rows[3]["accuracy"] - rows[-1]["accuracy"] for rows in (rep, avg)]
    assert loss[0] < 0.05 < loss[1]
