"""privacy= in whole runs: accounts, budgets, resumes, and what is refused."""

import os
from typing import Any

import numpy as np
import pytest

from cfl_flower.client.drift_report import ReportRequest
from cfl_flower.communication.results import Results
from cfl_flower.config.compose import compose_config
from cfl_flower.engine.declarations import Disclosure
from cfl_flower.engine.stages.privacy_budget import PrivacyBudget
from cfl_flower.engine.stages.privacy_rules import Costs
from cfl_flower.errors import BudgetSpentError
from cfl_flower.privacy.accounting import PrivacyLoss, epsilon_of
from cfl_flower.state import ClusteredState, no_clusters
from cfl_flower.types import Failure, Plan, Result, Task
from simulations.engines.inprocess import InProcessGrid
from tests.cfl_flower.client.test_node_config import SITES, Sites
from tests.conftest import open_method

pytest.importorskip("dp_accounting")


LABELS = ["strategy=fielding", "strategy/privacy=client", "privacy.report_noise=0.5"]
CENTRAL = ["strategy=fedavg", "strategy.weighting=plain", "privacy=central"]
RUNS = {
    "fedavg-local": ["strategy=fedavg", "privacy=local"],
    "fielding-central": [*LABELS, "privacy=central"],
    "stocfl-local": ["strategy=stocfl", "privacy=local", "privacy.report_noise=0.5"],
    "stocfl-central": ["strategy=stocfl", "privacy=central"],
    "fedavg-central": CENTRAL,
}


CASES = [
    pytest.param(name, marks=pytest.mark.slow) if name == "stocfl-central" else name
    for name in RUNS
]


def trained(run: Any, client: int) -> int:
    """Return in how many rounds a client's epsilon grew by a training."""
    spent = [row["epsilon"] for row in run.clients if row["client"] == client]
    return int(np.count_nonzero(np.diff([0.0, *spent])))


@pytest.mark.parametrize("name", CASES)
def test_a_run_is_the_same_on_any_number_of_nodes_and_after_a_resume(
    name, run_small, undisturbed, monkeypatch
):
    options = RUNS[name]
    whole = undisturbed(*options)
    run_small(*options, "rounds=2")
    monkeypatch.setattr("cfl_flower.communication.portions.PORTION_FLOATS", 1300)
    grid = InProcessGrid([{}, {}, {}])
    assert run_small(*options, "resume=true", grid=grid).numbers == whole.numbers
    plain = [each for each in options if "privacy" not in each]
    assert undisturbed(*plain).numbers != whole.numbers


def test_models_of_each_round_and_reports_add_up(undisturbed):
    run = undisturbed(*RUNS["fedavg-local"])
    for client in range(12):
        times = trained(run, client)
        last = [r for r in run.clients if r["client"] == client][-1]
        assert last["epsilon"] == pytest.approx(epsilon_of(times, 1e-5))
    assert sum(trained(run, client) for client in range(12)) == 4 * 6
    # Everyone reports when it joins, and after the drift in round 3, even if it never
    # trained: twice 1 / 0.5^2.
    run = undisturbed(*RUNS["fielding-central"])
    assert [row["drifted"] for row in run.rounds] == [0, 12, 0, 0]
    least = min(row["epsilon"] for row in run.clients if row["round"] == 4)
    assert least >= epsilon_of(2 * 4, 1e-5)
    # StoCFL's participants send two models.
    run = undisturbed(*RUNS["stocfl-local"])
    assert run.rounds[0]["epsilon"] == pytest.approx(epsilon_of(4 + 2, 1e-5))


def test_who_has_spent_its_budget_is_not_chosen_any_more(run_small):
    budget = epsilon_of(2, 1e-5) + 0.01
    options = ["strategy=fedavg", "privacy=local", f"privacy.epsilon_budget={budget}"]
    # 24 places in four rounds are twice for each of the 12.
    run = run_small(*options)
    assert all(row["epsilon"] <= budget for row in run.rounds)
    assert [row["participants"] for row in run.rounds] == [6, 6, 6, 6]
    assert {trained(run, client) for client in range(12)} == {2}
    assert run.rounds[-1]["exhausted"] == 12
    with pytest.raises(
        BudgetSpentError, match="round 5: every client has spent"
    ) as end:
        run_small(*options, "rounds=5", "resume=true")
    assert "\n" not in str(end.value)
    assert len(run.rounds) == 4
    # At once, too: the rounds before are saved, as the error says.
    with pytest.raises(BudgetSpentError, match="round 5"):
        run_small(*options, "rounds=5", folder="once")
    saved = (run.folder.parent / "once" / "rounds.jsonl").read_text()
    assert len(saved.splitlines()) == 4


def test_who_cannot_afford_a_report_is_not_asked_for_one(tmp_path):
    # A hello and two more reports, of 1 / 0.5^2 each.
    budget = f"privacy.epsilon_budget={epsilon_of(3 * 4, 1e-5) + 0.01}"
    method = open_method(tmp_path, *RUNS["fielding-central"], budget)
    loss = PrivacyLoss()
    method.state = ClusteredState([0, 1, 2], no_clusters(), [], privacy=loss)
    method.engine.context.phase = "evaluate"
    stages = method.engine.stages
    (stage,) = [each for each in stages if isinstance(each, PrivacyBudget)]
    loss.add([0, 1], 4.0)
    loss.add([1], 4.5)
    plan = Plan([Task(0), Task(1, config={"held": "x"})], [], {"representation": "r"})
    asked = stage.plan(plan).tasks
    assert [task.config for task in asked] == [{}, {"held": "x", "representation": ""}]
    assert ReportRequest.of({**plan.config, **asked[1].config}) is None
    # Taking part may cost a report, too.
    loss.add([0], 3.5)
    assert stage.within_budget().tolist() == [False, False, True]
    sent = Results([Result(0, 1, metrics={"representation": b""}), Result(1, 1)])
    # Answers that are lost or refused may have left the device.
    reasons = {2: "node", 3: "non-finite", 4: "raised", 5: "node"}
    sent.failures = [Failure(c, "evaluate", why, "") for c, why in reasons.items()]
    stage.send(Plan([Task(client) for client in range(5)], [], plan.config))
    stage.receive(plan, sent)
    assert [loss.of(client) for client in range(6)] == [11.5, 8.5, 4.0, 4.0, 0.0, 0.0]


def test_a_server_of_devices_draws_noise_from_a_secret(run_small):
    def devices(folder: str, *more: str) -> Any:
        grid = InProcessGrid([{"client-id": client} for client in range(12)])
        options = ["strategy=fedavg", "strategy.weighting=plain", "privacy=central"]
        return run_small(*options, *more, folder=folder, grid=grid)

    one, two = devices("one", "rounds=2"), devices("two")
    assert one.rounds[0]["loss"] != two.rounds[0]["loss"]
    before = one.rounds
    after = devices("one", "resume=true").rounds
    assert after[:2] == before
    assert len(after) == 4


def test_secrets_are_for_nobody_else(tmp_path, run_small):
    usual = os.umask(0o022)
    try:
        for more in (
            ["privacy=local"],
            ["privacy=central", "privacy.secure_sums=true"],
        ):
            options = [*SITES, *CENTRAL[:2], "rounds=1", *more]
            run_small(*options, folder=more[0], grid=Sites(tmp_path))
    finally:
        os.umask(usual)
    names = ("key-*", "noise-*", ".noise-secret", "privacy/00000000.safetensors")
    found = [path for name in names for path in tmp_path.rglob(name)]
    assert len(found) == 3 + 1 + 3
    assert {oct(path.stat().st_mode)[-3:] for path in found} == {"600"}


@pytest.mark.parametrize("models", [0, 1, 3])
@pytest.mark.parametrize("reports", [False, True])
def test_taking_part_costs_all_that_a_client_sends(models, reports):
    noise = ["privacy.noise_multiplier=2", "privacy.report_noise=4"]
    config = compose_config(["strategy=fedavg", "privacy=local", *noise])
    costs = Costs.of(config, Disclosure(models=models, reports=reports))
    assert costs.training == models / 2**2
    assert costs.participation == models / 2**2 + reports / 4**2
