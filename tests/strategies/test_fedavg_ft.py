from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.conftest import Runner

FT = ["strategy=fedavg_ft", "drift.rounds=[]"]


def test_fine_tuning_is_for_the_test_alone(run_small: Runner) -> None:
    tuned = run_small(*FT, "strategy.fine_tuning_rate=0.1", folder="tuned")
    plain = run_small("strategy=fedavg", "drift.rounds=[]", folder="plain")
    models = [run.state.models[0] for run in (tuned, plain)]
    np.testing.assert_array_equal(*models)
    assert not list(Path(tuned.folder, "clients").glob("*"))
    # Clients hold mostly a third of the labels: a tuned model is far better.
    assert tuned.rounds[-1]["accuracy"] > plain.rounds[-1]["accuracy"] + 0.1
