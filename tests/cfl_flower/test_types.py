from __future__ import annotations

import numpy as np

from cfl_flower.types import Plan


def test_a_plan_has_a_list_of_models_of_its_own() -> None:
    models = [np.zeros(2, np.float32)]
    plan = Plan([], models)
    plan.models.append(np.ones(2, np.float32))
    assert len(models) == 1
    assert plan.models[0] is models[0]
