"""The rounds of a synchronous method: who takes part, device time, what is noted."""

import itertools
import random
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from cfl_flower.communication.fleet import Fleet
from cfl_flower.config.compose import compose_config
from cfl_flower.engine.declarations import check_plan
from cfl_flower.engine.round_measures import note_empty
from cfl_flower.engine.simulated_devices import Devices
from cfl_flower.errors import ConfigError
from cfl_flower.learning.gradients import TRAINING_PASSES
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.selection import RandomSelection
from cfl_flower.runs.checkpoint import Checkpoint
from cfl_flower.runs.record import RoundRecord
from cfl_flower.server_app import open_stream
from cfl_flower.state import ClusteredState
from cfl_flower.types import Plan, Result, Task
from simulations.engines.inprocess import InProcessGrid
from simulations.run import check, run
from strategies.fedavg import FedAvg
from tests.conftest import open_method

QUIET = ["strategy=fedavg", "drift.rounds=[]", "rounds=2"]
MODEL_BYTES = 4 * 650


@pytest.mark.parametrize("every", [1, 2])
def test_a_rounds_time_is_that_of_its_slowest_participant_without_tests(
    every, run_small
):
    run = run_small(*QUIET, "participants=12", f"system.evaluate_every={every}")
    stream = open_stream(run.config)
    local, device_of = LocalTraining(epochs=1), Devices().open(seed=0)
    slowest = max(
        device_of(client).seconds(
            TRAINING_PASSES * local.count_samples(len(stream.view(client, 1).labels)),
            2 * MODEL_BYTES,
        )
        for client in range(12)
    )
    times = [row["virtual_seconds"] for row in run.rounds]
    assert times == pytest.approx([slowest, slowest])
    assert run.summary["virtual_seconds"] == pytest.approx(2 * slowest)


def test_a_client_counts_for_the_samples_that_it_can_train_on(tmp_path):
    """FedScale's utility: rms loss times min(n, steps x batch size)."""
    found = []
    for steps, size in ((1, 3), (2, 3), (1, 6)):
        few = [f"strategy.local.steps={steps}", f"strategy.local.batch_size={size}"]
        options = ["strategy=fedavg", "selection=oort", "rounds=1", *few]
        strategy = open_method(tmp_path, *options)
        strategy.engine.run()
        found.append(strategy.state.history.utility)
    assert found[0].max() > 0
    for twice in found[1:]:
        assert twice == pytest.approx(2 * found[0])


def test_class_agreement_is_noted_where_clients_mean_different_things(run_small):
    sudden = ["drift=sudden", "drift.rounds=[3]", "partition.purity=0"]
    for name, expected in (("fedavg", [1, 0]), ("oracle", [0, None])):
        rows = run_small(f"strategy={name}", *sudden, folder=name).rounds
        assert "class_ari" not in rows[1]
        assert rows[2]["class_meanings"] == [1, 2, 2, 2, 2, 2, 2, 1, 1, 1]
        found = rows[2]["class_ari"]
        alone, shared = expected
        assert found[0] == alone
        assert shared is None or found[1:7] == [shared] * 6
        # Finer than it need be, but nobody is with somebody who means something else.
        assert name == "fedavg" or all(0 < each < 1 for each in found[1:7])
    ours = run_small(
        "strategy=fedccfa", "model=mlp", "model.hidden=8", *sudden, folder="ccfa"
    )
    assert {row["ari"] for row in ours.rounds} == {None}
    assert len(ours.rounds[0]["class_ari"]) == 10


def test_who_has_left_has_no_meaning_of_a_class(run_small):
    """One client of four calls labels by other names; two leave in round 4."""
    data = ["partition=iid", "drift=concept_half", "drift.rounds=[1]", "drift.ids=[0]"]
    fleet = ["clients=4", "participants=3", "devices.leaves=[4]", "devices.leaving=0.5"]
    method = ["strategy=ifca", "clusters=2", "rounds=6", "seed=1"]
    run = run_small(*method, *data, *fleet)
    world = run.config.timeline.world(1)
    there = run.config.devices.open_presence(4, 1)
    for row in run.rounds:
        held = world.meanings[there.there(row["round"])]
        counts = [len(set(column)) for column in held.T.tolist()]
        assert row.get("class_meanings", [1] * 10) == counts
    assert max(run.rounds[0]["class_meanings"]) == 2
    assert "class_ari" not in run.rounds[-1]


def test_a_round_in_which_nobody_has_samples_says_what_to_change(tmp_path):
    days = [1, 2, 3, 4, 298, 299] * 10
    lines = [f"{k % 7},{'ab'[k % 2]},{k % 3},{day}" for k, day in enumerate(days)]
    path = tmp_path / "days.csv"
    path.write_text("\n".join(["x,y,who,day", *lines]))
    asked = ["label=y", "owner=who", "time=day", f"file={path}"]
    window = ["drift=timestamps", "drift.periods=3", "drift.window=1", "rounds=5"]
    (config,) = check(
        [
            *("strategy=fedavg", "dataset=csv", *(f"dataset.{a}" for a in asked)),
            *("partition=natural", "clients=3", "participants=3", *window),
            *("engine=inprocess", f"output_dir={tmp_path / 'run'}"),
        ]
    )
    with pytest.raises(ConfigError, match=r"samples .* in round 2.*drift\.window"):
        run(config)
    assert not (tmp_path / "run" / "rounds.jsonl").exists()
    # Who waits for nobody goes on with what comes later.
    (waits,) = check([*config.overrides, "strategy=fedasync", f"output_dir={tmp_path}"])
    run(waits)
    assert len((tmp_path / "rounds.jsonl").read_text().splitlines()) == 5


@dataclass
class CountingState(ClusteredState):
    plans: int = 0


class Counting(FedAvg):
    """Changes its state in plan_train, and dies in the fourth round."""

    State = CountingState

    def plan_train(self, server_round: int) -> Plan:
        self.state.plans += 1
        self.state.clusters[0] = 0
        if server_round == 4:
            raise RuntimeError("it dies")
        return super().plan_train(server_round)


def test_a_checkpoint_has_its_round_and_nothing_of_the_next(tmp_path):
    size = ["clients=6", "participants=3", "rounds=5"]
    config = compose_config([*QUIET, *size, f"output_dir={tmp_path / 'run'}"])
    checkpoint = Checkpoint(tmp_path / "checkpoint", config.resolved)
    saved: list[int] = []

    def save(record: RoundRecord, rows: Any, state: Any) -> None:
        checkpoint.save(record.round, state)
        saved.append(checkpoint.load(CountingState)[1].plans)

    fleet = Fleet(InProcessGrid(), config)
    fleet.discover()
    method = Counting(config, fleet, config.timeline, [save])
    with pytest.raises(RuntimeError, match="it dies"):
        method.engine.run()
    # All three rounds that were done are saved, each as it was.
    assert saved == [1, 2, 3]


@pytest.mark.parametrize(
    ("every", "done", "number", "kept"),
    [
        *((1, 0, 1, 0), (1, 0, 5, 3)),
        *((3, 0, 4, 0), (3, 0, 5, 3), (3, 0, 7, 3), (3, 0, 8, 6)),
        *((3, 4, 5, 4), (3, 4, 8, 6)),
    ],
)
def test_devices_keep_what_the_newest_checkpoint_that_is_sure_to_be_there_needs(
    every, done, number, kept, tmp_path
):
    # The one of the round before is written in the course of a round.
    asked = ["strategy=fedavg", f"system.checkpoint_every={every}"]
    context = open_method(tmp_path, *asked).engine.context
    context.done = done
    context.begin(number)
    assert context.keep_from == kept


def test_who_may_not_take_part_is_never_chosen(tmp_path):
    method = open_method(tmp_path, "strategy=fedavg", "clients=8", "participants=6")
    method.state.clients = list(range(8))
    method.state.clusters = np.zeros(8, np.int64)
    method.state.empty = [2]
    able = np.arange(8) % 2 == 0
    late = np.arange(8) < 6
    participants = method.run.participants
    participants.eligible += [lambda: able, lambda: late]
    for server_round in range(1, 5):
        assert participants.choose(server_round) == [0, 4]


def test_who_says_nothing_has_as_many_samples_as_before(tmp_path):
    method = open_method(tmp_path, "strategy=fedavg")
    method.state.clients = list(range(5))
    method.state.empty = [0, 1]
    told = [Result(0, 1), Result(2, 1, metrics={"empty": True}), Result(4, 1)]
    note_empty(method.state, told)
    assert method.state.empty == [1, 2]


def test_the_last_round_is_tested_in_any_case(run_small):
    run = run_small("strategy=fedavg", "system.evaluate_every=3", "rounds=5")
    tested = [row["round"] for row in run.rounds if row["accuracy"] is not None]
    assert tested == [3, 5]


MODEL = np.zeros(3, np.float32)


def test_numbers_of_numpy_are_pythons():
    task = Task(np.int64(4), (np.int64(0),))  # type: ignore[arg-type]
    (found,) = check_plan(Plan([task], [MODEL]), "plan_train", [4]).tasks
    assert type(found.client) is int
    assert [type(index) for index in found.models] == [int]
    assert found == Task(4, (0,))


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        (None, "plan_train returned None, not a Plan"),
        (Plan([], [MODEL.astype(float)]), "model 0 is no float32 vector"),
        (Plan([Task(1), Task(1)]), "several tasks of one client"),
        (Plan([Task(9)]), r"unknown clients: \[9\]"),
        (Plan([Task(1, (1,))], [MODEL]), r"client 1 models \(1,\) of 1"),
        (Plan([Task(1, (-1,))], [MODEL]), r"client 1 models \(-1,\) of 1"),
    ],
)
def test_a_plan_that_makes_no_sense_names_the_step(plan, words):
    with pytest.raises((TypeError, ValueError), match=words):
        check_plan(plan, "plan_train", [1, 2])


def test_whoever_is_new_may_be_asked():
    assert check_plan(Plan([Task("site-a")]), "hello", None).tasks == [Task("site-a")]


def test_a_plan_has_a_list_of_models_of_its_own():
    models = [np.zeros(2, np.float32)]
    rows = Plan([], np.ones((2, 3), np.float32))  # type: ignore[arg-type]
    assert rows.models[0] is rows.models[0]
    plan = Plan([], models)
    plan.models.append(np.ones(2, np.float32))
    assert len(models) == 1
    assert plan.models[0] is models[0]


TURNS = itertools.count()


class Own(RandomSelection):
    """A selection of one's own, by a function of members and count."""

    made: Any = None

    def choose(self, members: Any, count: int, rng: Any, known: Any) -> Any:
        """Return what the function makes."""
        return self.made(members, count)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda rows, n: np.repeat(rows[0], n), "choose returned"),
        (lambda rows, n: rows, "not at most 3 of the members"),
        (lambda rows, n: [99], "choose returned"),
        (lambda rows, n: rows[:n] + 0.5, "choose returned"),
        (lambda rows, n: rows[:n].astype(float), "choose returned"),
        (lambda rows, n: rows[:n, None], "choose returned"),
        (lambda rows, n: [True, False], "choose returned"),
        (lambda rows, n: None, "choose returned None, not at most 3"),
        (lambda rows, n: rows[0], "choose returned"),
        (lambda rows, n: (row for row in rows), "choose returned"),
        (lambda rows, n: np.random.permutation(rows)[:n], "np.random"),
        (lambda rows, n: random.sample(rows.tolist(), n), "asked the same again"),
        (lambda rows, n: rows[torch.randperm(len(rows))[:n]], "asked the same again"),
        (lambda rows, n: np.random.default_rng().permutation(rows)[:n], "again"),
        (lambda rows, n: np.roll(rows, next(TURNS))[:n], "asked the same again"),
        (lambda rows, n: rows[:n].tolist(), ""),
        (lambda rows, n: rows[:0], ""),
    ],
)
def test_a_selection_of_one_s_own_that_is_wrong_is_told(made, told, tmp_path):
    method = open_method(tmp_path, "clients=6", "participants=3", "strategy=fedavg")
    method.welcome(1, [Result(client, 1) for client in range(6)])
    config = replace(method.run.config, selection=Own())
    method.engine.context.config = config
    with patch.object(Own, "made", staticmethod(made)):
        if not told:
            assert len(method.run.participants.choose(1)) in (0, 3)
            return
        with pytest.raises(ConfigError, match=told):
            method.run.participants.choose(1)


def test_a_method_that_forgets_to_return_a_result_is_told(run_small, monkeypatch):
    monkeypatch.setattr(FedAvg, "read_result", lambda *_: None)
    with pytest.raises(TypeError, match="read_result returned None, not a Result"):
        run_small("strategy=fedavg", "rounds=1")
