"""Epsilon counts all that left: a ledger kept beside the devices, not by the server."""

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Error, Message

from cfl_flower.communication.partial_sums import versions
from cfl_flower.communication.records import unpack_answers
from cfl_flower.communication.task_records import unpack_tasks
from cfl_flower.engine.stages.private_means import release_means
from cfl_flower.errors import ConfigError
from cfl_flower.privacy.accounting import epsilon_of
from cfl_flower.types import Plan
from simulations.engines.inprocess import InProcessGrid
from tests.conftest import Run, sample

pytest.importorskip("dp_accounting")
pytestmark = pytest.mark.slow

METHODS = {
    "fedavg": ["strategy=fedavg"],
    "fielding": ["strategy=fielding", "strategy/privacy=client"],
    "stocfl": ["strategy=stocfl"],
}
SIZE = [
    *("rounds=4", "clients=5", "participants=4", "drift=none", "dataset=folder"),
    *("dataset.shape=[6]", "strategy.weighting=plain"),
]
EACH = pytest.mark.parametrize("method", METHODS)
BOTH = pytest.mark.parametrize("privacy", ["privacy=local", "privacy=central"])
NOISE = ["privacy.noise_multiplier=2", "privacy.report_noise=0.5"]
MODEL, REPORT = 0.25, 4.0
"""What a model and a report cost, as 1 / z^2."""


class Ledger(InProcessGrid):
    """Devices with data of their own, and what each has told in noise so far."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.rng = root, np.random.default_rng(0)
        super().__init__([self.device(f"site-{each}") for each in "abcde"])
        self.told: dict[str, list[tuple[float, np.ndarray]]] = defaultdict(list)
        self.kill: tuple[str, int] | None = None
        self.before: dict[tuple[str, int], Callable[[], Any]] = {}
        self.spoil: Callable[[str, int, str, Message], Message] = lambda *a: a[-1]
        self._means: list[tuple[str, np.ndarray]] = []
        monkeypatch.setattr(
            "cfl_flower.engine.stages.privacy_budget.release_means", self.release
        )
        # Nobody else will join.
        monkeypatch.setattr("cfl_flower.communication.nodes.JOIN_TIMEOUT", 0.1)

    def device(self, name: str) -> dict[str, Any]:
        self.put(name)
        state, data = self.root / "state" / name, self.root / name
        return {"client-id": name, "data-dir": str(data), "state-dir": str(state)}

    def put(self, name: str) -> None:
        """Give a device other samples than it had."""
        (self.root / name).mkdir(parents=True, exist_ok=True)
        labels = self.rng.choice(10, 3, replace=False)
        y = self.rng.choice(labels, 40)
        np.savez(self.root / name / "data.npz", x=self.rng.random((40, 6)), y=y)

    def note(self, client: str, cost: float, told: np.ndarray) -> None:
        """Count what was not told before; sums are rounded to float32 on their way."""
        known = (each for price, each in self.told[client] if price == cost)
        if not any(np.allclose(told, each, atol=1e-4) for each in known):
            self.told[client].append((cost, told))

    def release(self, results: Any, plan: Plan, *more: Any) -> Any:
        """Keep the noisy means that each participant's model is in."""
        results = release_means(results, plan, *more)
        tasks = {task.client: task for task in plan.tasks}
        for result in results:
            means = result.arrays
            if plan.sum_spec is not None:
                found = versions(tasks[result.client], plan.sum_spec)
                means = [results.sums[each].mean() for each in found]
            self._means += [(result.client, mean) for mean in means]
        return results

    def push_messages(self, messages: Any) -> list[str]:
        listed = list(messages)
        now = listed[0].metadata.message_type, int(listed[0].metadata.group_id or 0)
        self.before.pop(now, lambda: None)()
        for client, mean in self._means:
            self.note(client, MODEL, mean)
        self._means.clear()
        pushed = super().push_messages(listed)
        if now == self.kill:
            self.kill = None
            raise KeyboardInterrupt
        return pushed

    def answer(self, message: Message) -> Message:
        reply, self.asked = super().answer(message), message
        phase = message.metadata.message_type
        if not reply.has_content() or phase == "query.identify":
            return reply
        (answer,) = unpack_answers(reply.content)
        batch, client = unpack_tasks(message.content), str(answer.client)
        central = json.loads(batch.settings)["privacy"]["name"] == "central"
        if phase != "train":
            for array in answer.arrays:
                self.note(client, REPORT, array)
        elif not central:
            places = batch.plan.tasks[0].models
            for place, array in zip(places, answer.arrays, strict=True):
                self.note(client, MODEL, array - batch.models[place])
        if "representation" in answer.metrics:
            told = np.frombuffer(answer.metrics["representation"], np.float32)
            self.note(client, REPORT, told)
        return self.spoil(phase, batch.round, client, reply)


def account(run: Run) -> dict[str, float]:
    """Return what the server counts for each client, as sums of 1 / z^2."""
    squares = run.state.privacy.squares
    largest = max(squares.values())
    assert run.rounds[-1]["epsilon"] == pytest.approx(epsilon_of(largest, 1e-5))
    return dict(squares)


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
    return Ledger(tmp_path, monkeypatch)


def compare(grid: Ledger, run: Run, equal: bool = True) -> None:
    counted = account(run)
    for client, told in grid.told.items():
        true = sum(cost for cost, _ in told)
        assert counted[client] >= true - 1e-9, client
        assert not equal or counted[client] == pytest.approx(true), client


@EACH
@BOTH
def test_what_arrives_is_counted_once(method, privacy, grid, run_small):
    """A device whose data change, and a newcomer, among it."""
    grid.before["evaluate", 2] = lambda: grid.put("site-b")
    grid.before["evaluate", 1] = lambda: grid.add_node(grid.device("site-f"))
    run = run_small(*METHODS[method], *SIZE, *NOISE, privacy, grid=grid)
    assert "site-f" in grid.told
    compare(grid, run)


@EACH
@BOTH
@pytest.mark.parametrize("how", ["lost", "refused"])
def test_what_does_not_arrive_is_counted(how, method, privacy, grid, run_small):
    def spoil(phase: str, round: int, client: str, reply: Message) -> Message:
        if (round, client) != (2, "site-b"):
            return reply
        if how == "lost":
            return Message(Error(3, "lost on its way"), reply_to=grid.asked)
        rows = json.loads(str(reply.content.config_records["answers"]["rows"]))
        rows[0][1 if phase == "train" else 2] = float("nan")
        reply.content.config_records["answers"]["rows"] = json.dumps(rows)
        return reply

    grid.spoil = spoil
    grid.before["evaluate", 2] = lambda: grid.put("site-b")
    run = run_small(*METHODS[method], *SIZE, *NOISE, privacy, grid=grid)
    failed = {(f["client"], f["phase"]) for f in run.rounds[1]["failures"]}
    assert ("site-b", "evaluate") in failed
    # A mean without it tells nothing of it, and was paid for; a report that is sent
    # again, as the server does not hold it, is paid for again.
    compare(grid, run, equal=privacy == "privacy=local" and method != "fielding")


@pytest.mark.parametrize("other", ["privacy.noise_multiplier=100", "privacy.clip=9"])
def test_nobody_goes_on_with_other_noise_once_devices_have_answered(
    other, grid, run_small
):
    options = [*METHODS["fedavg"], *SIZE, "privacy=local"]
    grid.kill = "train", 1
    with pytest.raises(KeyboardInterrupt):
        run_small(*options, "privacy.noise_multiplier=0.01", grid=grid)
    told = {client: len(each) for client, each in grid.told.items()}
    assert told
    with pytest.raises(ConfigError, match=f"holds another run .*{other[8:12]}"):
        run_small(*options, other, "resume=true", grid=grid)
    assert told == {client: len(each) for client, each in grid.told.items()}
    # A run that begins anew is another one to the devices: these draw other noise.
    run_small(*options, other, "rounds=1", grid=grid)
    assert all(len(grid.told[client]) > count for client, count in told.items())


KILLS = [("query", 1), ("train", 1), ("evaluate", 1), ("train", 3), ("evaluate", 3)]

PAIRS = [
    ("nothing", "fedavg", "local"),
    ("nothing", "fielding", "central"),
    ("nothing", "stocfl", "central"),
    ("other data", "fedavg", "central"),
    ("other data", "fielding", "local"),
    ("other data", "stocfl", "central"),
    ("one is away", "fedavg", "local"),
    ("one is away", "fielding", "central"),
    ("one is away", "stocfl", "local"),
]
"""Every two of what happens meanwhile, of a method and of a kind of noise."""


@pytest.mark.parametrize("pair", sample(PAIRS, [PAIRS[1], PAIRS[4], PAIRS[8]]), ids=str)
def test_a_server_that_dies_forgets_nothing_that_was_told(pair, grid, run_small):
    """It dies five times while it waits, and goes on from its checkpoint."""
    meanwhile, method, kind = pair
    options = [*METHODS[method], *SIZE, *NOISE, f"privacy={kind}"]
    away = dict(grid.node_configs)
    for kill in KILLS:
        grid.kill = kill
        with pytest.raises(KeyboardInterrupt):
            run_small(*options, "resume=true", grid=grid)
        if meanwhile == "other data":
            for name in grid.told:
                grid.put(name)
        if meanwhile == "one is away":
            grid.node_configs = dict(away)
            grid.remove_node(1000 + KILLS.index(kill))
    run = run_small(*options, "resume=true", grid=grid)
    compare(grid, run, equal=meanwhile == "nothing")
