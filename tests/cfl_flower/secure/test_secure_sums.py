"""privacy.secure_sums in whole runs: the same numbers, and nothing but sums to read."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict

from cfl_flower.client.node_config import LEAST_MEMBERS, SECURE_SUMS
from cfl_flower.communication.partial_sums import add_result, groups_of
from cfl_flower.communication.records import unpack_answers, unpack_sums
from cfl_flower.communication.results import Results
from cfl_flower.communication.task_records import unpack_tasks
from cfl_flower.errors import NoValidResultError
from cfl_flower.secure.groups import GROUPS, REVEAL, SIGNED, Groups, from_text
from cfl_flower.secure.server import large_enough, open_sums
from cfl_flower.types import LEFT_OUT, OUTCOMES, Plan, Result, SumSpec, Task
from simulations.engines.inprocess import InProcessGrid
from tests.conftest import WHOLE, Run, sample
from tests.docs.test_security import OFTEN, by_shared_model
from tests.docs.test_security import RUNS as RUNS_OF_SECURITY

MANY = ["clients=30", "participants=24"]
SECURE = "privacy.secure_sums=true"
EVERYONE = [*("strategy=fedavg", SECURE, "participants=12", "rounds=1", "drift=none")]
RUNS = {
    "fedavg": ["strategy=fedavg"],
    "fielding": ["strategy=fielding", "strategy.scan.largest=6", *MANY],
    "stocfl": ["strategy=stocfl", "strategy.threshold=0.3", *MANY],
    "fedrep": ["strategy=fedrep", "model=mlp"],
    "ifca": ["strategy=ifca", "strategy.clusters=2", *MANY],
    "fesem": ["strategy=fesem", "strategy.clusters=2", *MANY],
    "feddrift": [
        *("strategy=feddrift", "strategy.form=eager", "strategy.local.epochs=10"),
        *("partition.groups=1", "drift=sudden", "drift.rounds=[3]", "rounds=4", *MANY),
    ],
    "scaffold": ["strategy=scaffold"],
    **{
        name: [f"strategy={name}"]
        for name in ("ditto", "pfedme", "apfl", "fedem", "fedrc")
    },
}


class Devices(InProcessGrid):
    """Devices of their own, whose replies of a phase can be looked at and changed."""

    def __init__(self, folder: Path, count: int = 12, **own: Any) -> None:
        configs = [
            {"client-id": client, "state-dir": str(folder / f"device-{client}"), **own}
            for client in range(count)
        ]
        super().__init__(configs)
        self.trained: list[RecordDict] = []
        self.left: list[RecordDict] = []
        self.tell: Callable[[Message], None] = lambda message: None
        """Changes what a device is asked in training."""
        self.change: Callable[[RecordDict, str], None] = lambda content, phase: None
        """Changes what a device answers in a phase."""

    def answer(self, message: Message) -> Message:
        phase = message.metadata.message_type
        if phase == "train":
            self.tell(message)
        reply = super().answer(message)
        if phase != "query.identify":
            self.left.append(deepcopy(reply.content))
        if phase == "train":
            self.trained.append(deepcopy(reply.content))
        self.change(reply.content, phase)
        return reply


def row_of(content: RecordDict) -> list[Any]:
    """Return the only row of an answer: client, count, loss, metrics, and others."""
    record = content.config_records.get("answers", {"rows": "[]"})
    rows: list[list[Any]] = json.loads(str(record["rows"]))
    return rows[0] if rows else [None] * 4


def write_row(content: RecordDict, *rows: list[Any]) -> None:
    content.config_records["answers"]["rows"] = json.dumps(rows)


@pytest.fixture(autouse=True)
def wait_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs begin without devices that never come, or are refused."""
    monkeypatch.setattr("cfl_flower.communication.nodes.JOIN_TIMEOUT", 0.1)


@pytest.mark.parametrize(
    "name", sample(RUNS, ["fedavg", "fielding", "stocfl", "scaffold"])
)
def test_masked_devices_give_the_numbers_of_a_simulation(
    name, run_small, undisturbed, tmp_path
):
    options = ["rounds=2", "drift.rounds=[2]", *RUNS[name]]
    count = 30 if MANY[0] in options else 12
    simulated = run_small(*options, SECURE)
    plain = undisturbed(*options)
    grid = Devices(tmp_path, count)
    behind = run_small(*options, SECURE, folder="devices", grid=grid)
    rows = zip(behind.rounds, simulated.rounds, plain.rounds, strict=True)
    for one, other, open_one in rows:
        assert not one["failures"]
        for key in ("accuracy", "loss", "cluster_sizes", "bytes_up", "left_out"):
            assert one.get(key) == other.get(key)
        # A mean of single models is rounded once more often, or once less.
        assert one["loss"] == pytest.approx(open_one["loss"], rel=1e-4)
    # Of a model's numbers each has 16 bytes instead of 4.
    assert behind.rounds[0]["bytes_up"] >= 3 * plain.rounds[0]["bytes_up"]
    losses = [row["loss"] for row in behind.rounds]
    assert len(set(losses)) == len(losses)
    for hidden, seen in zip(behind.state.models, plain.state.models, strict=True):
        assert np.allclose(hidden, seen, rtol=1e-4, atol=1e-6)
    if name == "feddrift":
        assert behind.state.steps.tolist() == plain.state.steps.tolist()


def test_with_a_quarter_lost_the_means_are_those_of_the_others(run_small, tmp_path):
    def lose(name: str, clients: set[int], *more: str) -> Run:
        """Lose the first answers of some clients, masked, on their way."""
        left = set(clients)

        def change(content: RecordDict, phase: str) -> None:
            client = row_of(content)[0]
            if phase == "train" and client in left:
                left.remove(client)
                del content["answers"]

        grid = Devices(tmp_path / name)
        grid.change = change
        return run_small(*EVERYONE, *more, folder=name, grid=grid)

    lost = {1, 4, 9}
    behind = lose("masked", lost)
    shown = lose("plain", lost, "privacy.secure_sums=false")
    assert {f["client"] for f in behind.rounds[0]["failures"]} == lost
    assert behind.rounds[0]["loss"] == pytest.approx(shown.rounds[0]["loss"], rel=1e-5)
    # One more, and it is too small a part of the group.
    reasons = [f["reason"] for f in lose("fewer", lost | {2}).rounds[0]["failures"]]
    assert sorted(reasons) == ["incomplete"] * 8 + ["shape"] * 4


HUGE = (
    b"\x93NUMPY\x01\x00v\x00{'descr': '<i8', 'fortran_order': False, "
    b"'shape': (2, 1125899906842624), }".ljust(128)
)


def garble(content: RecordDict) -> None:
    texts: Any = content.config_records["shares"]["0"]
    content.config_records["shares"]["0"] = [bytes(len(text)) for text in texts]


def add(content: RecordDict) -> None:
    ((key, hidden),) = unpack_sums(content).items()
    assert key == (0, 0)
    hidden.limbs[0, 0] += 1 << 60
    array = content.array_records["sums"]["0"]
    array.data = array.data[: -hidden.limbs.nbytes] + hidden.limbs.tobytes()


def count(told: object) -> Callable[[RecordDict], None]:
    def change(content: RecordDict) -> None:
        row = row_of(content)
        write_row(content, [row[0], told, *row[2:]])

    return change


SUMS = ("[[0,0,2,40]]", "[[0,0,1,1000000]]", "[]", "[" * 200_000)
COUNTS = ("many", {}, float("nan"), 2**63, None, [3], True, 2.5, 0, -1)
SPOILT: dict[str, tuple[Callable[[RecordDict], None], dict[str, int]]] = {
    **{
        rows[:20]: (lambda c, rows=rows: c["summed"].update(rows=rows), {"shape": 1})
        for rows in SUMS
    },
    "a promise": (lambda c: setattr(c["sums"]["0"], "data", HUGE), {"shape": 1}),
    "a name": (lambda c: c["shares"].update({"9" * 5000: [b"x"]}), {"shape": 1}),
    "short": (lambda c: c["shares"].update({"0": [b"x"] * 12}), {"shape": 1}),
    "a text": (lambda c: c["shares"].update({"0": "text"}), {"shape": 1}),
    **{f"samples: {told}": (count(told), {"count": 1}) for told in COUNTS},
    "shares of nothing": (garble, {"shape": 1, "incomplete": 11}),
    "another sum": (add, {"incomplete": 12}),
}
"""What the first device makes of its answer, and the failures of the round."""


RARE = {f"samples: {told}" for told in COUNTS[4:]}


@pytest.mark.parametrize("kind", sample(SPOILT, SPOILT.keys() - RARE))
def test_a_spoilt_answer_costs_its_result_or_the_sum(kind, run_small, tmp_path):
    grid = Devices(tmp_path)
    spoil, reasons = SPOILT[kind]

    def change(content: RecordDict, phase: str) -> None:
        if phase == "train" and len(grid.trained) == 1:
            spoil(content)

    grid.change = change
    run = run_small(*EVERYONE, grid=grid)
    assert Counter(each["reason"] for each in run.failures) == reasons
    assert len(run.clients) == 12, "everyone is tested, with a model of the round"
    if spoil is garble:
        (told,) = (f["detail"] for f in run.failures if f["reason"] == "shape")
        assert "no other device of its group can read" in told
    # Its devices sign no other senders for that model: a server that goes on knows it.
    if spoil is add:
        more = [*EVERYONE, "rounds=2", "resume=true"]
        run = run_small(*more, grid=Devices(tmp_path))
        assert not run.rounds[1]["failures"]
        assert run.rounds[1]["loss"] < run.rounds[0]["loss"]


def rate(header: Any, settings: Any) -> None:
    settings["strategy"]["local"]["learning_rate"] = 1e-30


VIEWS: dict[str, Callable[[Any, Any], None]] = {
    "another weight": lambda header, _: header["sum_spec"].update(most=2**20),
    "a request": lambda header, _: header["config"].update(rate=0.0),
    "a request of one": lambda header, _: header["tasks"][0][2].update(rate=0.0),
    "a step of nothing": rate,
    "other labels": lambda _, settings: settings.update(seed=settings["seed"] + 1),
    "nothing else": lambda header, settings: None,
}
"""What a server can say to all devices but one, to know what they send."""


@pytest.mark.parametrize("view", [*VIEWS, "another model"])
def test_sums_of_devices_that_were_told_other_things_stay_closed(
    view, run_small, tmp_path
):
    grid = Devices(tmp_path)
    asked: list[int] = []

    def tell(message: Message) -> None:
        asked.append(message.metadata.dst_node_id)
        if len(asked) == 1:
            return
        batch = message.content.config_records["batch"]
        header = json.loads(str(batch["header"]))
        settings = json.loads(str(batch["settings"]))
        VIEWS.get(view, VIEWS["nothing else"])(header, settings)
        batch["header"] = json.dumps(header)
        batch["settings"] = json.dumps(settings)
        if view == "another model":
            models = message.content.array_records["models"]
            other = {n: Array(each.numpy() + 1) for n, each in models.items()}
            message.content["models"] = ArrayRecord(other)

    grid.tell = tell
    run = run_small("strategy=fedavg", SECURE, "rounds=1", grid=grid)
    assert len(asked) == 6
    reasons = [each["reason"] for each in run.rounds[0]["failures"]]
    assert reasons == ([] if view == "nothing else" else ["incomplete"] * 6)
    # They have revealed all that they were asked for: it opens nothing.
    revealed = [each for each in grid.left if REVEAL in row_of(each)[3]]
    assert len(revealed) == 6


def test_clusters_with_too_few_participants_do_not_train(run_small):
    options = ["strategy=fielding", "drift=none", SECURE]
    run = run_small(*options)  # Six participants for five clusters.
    assert [row["left_out"] for row in run.rounds] == [6] * 4
    assert len({row["loss"] for row in run.rounds}) == 1
    some = run_small(*options, "privacy.least_members=2", folder="two")
    for row in some.rounds:
        assert row["participants"] + row["left_out"] == 6
    assert sum(row["participants"] for row in some.rounds) > 0


def test_who_is_left_out_of_one_group_is_missing_in_its_others():
    # First x is too small, then a, then y: nobody is left. Not so with another in y.
    pairs = [("a", 0), ("a", 0), ("a", 1), ("b", 1), ("b", 1), ("b", 2), ("b", 2)]
    numbers = {"a": 8, "b": 9}
    tasks = [Task(n, (numbers[one], two)) for n, (one, two) in enumerate(pairs)]
    spec = SumSpec((0, 1), by_samples=False)
    assert large_enough(tasks, spec, 3) == []
    more = [*tasks, Task(7, (9, 1))]
    assert [task.client for task in large_enough(more, spec, 3)] == [3, 4, 7]


@pytest.mark.parametrize(
    ("unopened", "left"),
    [([], range(10)), ([(0, 2)], [8, 9]), ([(1, 0)], [8, 9]), ([(0, 3)], range(8))],
)
def test_a_sum_that_stays_closed_takes_along_what_shares_its_clients(unopened, left):
    # Two clusters have model 0 in common, which is enough without the small one.
    models = [*[(1, 0)] * 6, *[(2, 0)] * 2, *[(3, 4)] * 2]
    tasks = [Task(client, each) for client, each in enumerate(models)]
    spec = SumSpec((0, 1), by_samples=False)
    arrays = [np.zeros(1, np.float32)] * 5
    sent = [(task, Result(int(task.client), 1, arrays[:2])) for task in tasks]
    results = Results(replace(result, arrays=[]) for _, result in sent)
    for task, result in sent:
        add_result(results.sums, task, result, spec)
    for version in unopened:
        del results.sums[version]
    plan = Plan(tasks, arrays, {}, (1, 1), replace(spec, masked=True))
    kept, failures, _ = open_sums(plan, results, 2, None)
    assert [each.client for each in kept] == list(left)
    assert {each.client for each in failures} == {*range(10)}.difference(left)
    # No sum has a result of anybody who is left out.
    assert (
        kept.sums.keys() == groups_of([tasks[client] for client in left], spec).keys()
    )


def test_a_device_with_another_secret_costs_the_others_nothing(run_small, tmp_path):
    grid = Devices(tmp_path)
    files: list[Path] = []

    def forget(content: RecordDict, phase: str) -> None:
        if len(grid.trained) == 6:
            files.extend((tmp_path / "device-0").glob("*/key-*"))
            files[0].write_bytes(bytes(range(32)))

    grid.change = forget
    run = run_small(*EVERYONE, "rounds=3", grid=grid)
    reasons = [{f["reason"] for f in row["failures"]} for row in run.rounds]
    # Not connected until it has said anew who it is.
    assert reasons[1] == {"identity", "node"}
    assert reasons[2] == {"node"}, "the key that it announced first is its key"
    assert {f["client"] for f in run.rounds[2]["failures"]} == {0}
    assert [oct(each.stat().st_mode)[-3:] for each in files] == ["600"]


STRICT = [
    pytest.param(options, marks=[] if options in OFTEN else WHOLE)
    for options in RUNS_OF_SECURITY
    if not any(each.startswith(("privacy=", "dataset.")) for each in options)
]
ALLOWED = {
    *("correct", "own_correct", "own_tested", "empty"),
    *("validation_correct", "validation_tested", "representation", "samples"),
}
"""Of its data, beside losses and numbers of samples."""


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("options", STRICT, ids=" ".join)
def test_strict_devices_send_nothing_else_to_any_server(options, run_small, tmp_path):
    grid = Devices(tmp_path, **{SECURE_SUMS: True})
    more = ["model=mlp", "rounds=2"]
    if by_shared_model(options):
        np.save(tmp_path / "shared.npy", np.zeros(650, np.float32))
        more[0] = f"strategy.representation.shared.path={tmp_path}/shared.npy"
    with suppress(NoValidResultError):
        run_small(*more, *options, grid=grid)
    assert grid.left
    for content in grid.left:
        for answer in unpack_answers(content):
            assert not np.concatenate([*answer.arrays, []]).size
            told = answer.metrics.keys() - {REVEAL, SIGNED}
            if answer.metrics.get(OUTCOMES) == LEFT_OUT:
                told -= {OUTCOMES}
            assert told <= ALLOWED
            if "strategy/privacy=laplace" in options:
                continue
            assert (
                answer.error
                or told.isdisjoint({"representation"})
                or (counts_labels(answer.metrics))
            )
        for hidden in unpack_sums(content).values():
            assert not hidden.is_possible()


def counts_labels(metrics: Mapping[str, Any]) -> bool:
    """Return whether a report is of shares of whole samples, and of nothing else."""
    shares = np.frombuffer(metrics["representation"], np.float32).astype(float)
    counts = shares * metrics["samples"]
    whole = bool((abs(counts - np.rint(counts)) < 1e-4).all())
    return whole and len(shares) == 10 and abs(shares.sum() - 1) < 1e-6


@pytest.mark.parametrize("metrics", ["[macro_f1]", "[balanced_accuracy,calibration]"])
def test_a_device_that_leaves_counts_out_is_tested(metrics, run_small, tmp_path):
    options = ["strategy=fedavg", "partition.validation=0.2", f"metrics={metrics}"]
    options += ["rounds=1", "drift=none"]
    plain = run_small(*options, folder="plain", grid=Devices(tmp_path / "a"))
    grid = Devices(tmp_path / "b")
    for node in list(grid.node_configs)[:5]:
        grid.node_configs[node][SECURE_SUMS] = True
    strict = run_small(*options, folder="strict", grid=grid)
    # Its training is lost, as it leaves behind masks alone; its test is not.
    assert len(strict.clients) == len(plain.clients) == 12
    name = metrics.strip("[]").split(",")[0]
    known = [name in row and row[name] is not None for row in strict.clients]
    assert 0 < sum(known) == 7
    assert strict.rounds[0][name] is not None


def test_strict_devices_take_part_in_runs_with_masks(run_small, tmp_path):
    grid = Devices(tmp_path, 30, **{SECURE_SUMS: True, LEAST_MEMBERS: 4})
    options = [*RUNS["fielding"], SECURE, "privacy.least_members=4", "rounds=2"]
    run = run_small(*options, grid=grid)
    assert not any(row["failures"] for row in run.rounds)


@pytest.mark.parametrize("signed", ["[]", f'"{"00" * 64}"', "[" * 200_000, None])
def test_a_device_that_signs_nothing_costs_only_itself(signed, run_small, tmp_path):
    whole = run_small(*EVERYONE, folder="whole", grid=Devices(tmp_path / "a"))
    grid = Devices(tmp_path / "b")

    def forge(content: RecordDict, phase: str) -> None:
        row = row_of(content)
        if row[0] == 7 and SIGNED in row[3]:
            row[3][SIGNED] = signed
            write_row(content, *([row] if signed else []))

    grid.change = forge
    run = run_small(*EVERYONE, folder="forged", grid=grid)
    assert run.rounds[0]["loss"] == whole.rounds[0]["loss"]
    failures = [(f["client"], f["phase"], f["reason"]) for f in run.failures]
    assert failures == [(7, "query", "shape" if signed else "missing")]


@pytest.mark.parametrize("key", [bytes(32), None])
def test_a_bad_or_copied_key_leaves_out_who_told_it_alone(key, run_small, tmp_path):
    grid = Devices(tmp_path)
    keys: list[Any] = []

    def forge(content: RecordDict, phase: str) -> None:
        if phase == "query.identify":
            record = content.config_records["identity"]
            keys.append(record["key"])
            if record["client-id"] == 7:
                record["key"] = keys[0] if key is None else key

    grid.change = forge
    run = run_small(*EVERYONE, grid=grid)
    failed = {f["client"] for f in run.rounds[0]["failures"] if f["phase"] == "train"}
    assert failed == ({7} if key is None else set())
    trained = {
        each.client for content in grid.trained for each in unpack_answers(content)
    }
    assert trained == set(range(12)) - {7}


SIX = [*EVERYONE, "rounds=4", "clients=6", "participants=6", "resume=true"]


class Mortal(Devices):
    """Devices, what they added masks to, and a server that dies while they answer."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, 6)
        self.kill = 0
        self.sent: dict[tuple[Any, int], list[Groups]] = defaultdict(list)

    def push_messages(self, messages: Any) -> list[str]:
        listed = list(messages)
        pushed = super().push_messages(listed)
        now = listed[0].metadata.message_type, listed[0].metadata.group_id
        if now == ("train", str(self.kill)):
            raise KeyboardInterrupt
        return pushed

    def answer(self, message: Message) -> Message:
        reply = super().answer(message)
        if message.metadata.message_type == "train" and unpack_sums(reply.content):
            batch = unpack_tasks(message.content)
            (task,) = batch.plan.tasks
            groups = from_text(Groups, task.config[GROUPS])
            self.sent[task.client, batch.round].append(groups)
        return reply


@pytest.mark.parametrize("away", [False, True])
def test_no_device_is_in_two_sums_of_a_round(away, run_small, tmp_path):
    """Not even if another one is away, whose result would be their difference."""
    grid = Mortal(tmp_path)
    nodes = dict(grid.node_configs)
    for grid.kill in range(1, 5):
        with pytest.raises(KeyboardInterrupt):
            run_small(*SIX, grid=grid)
        grid.node_configs = dict(nodes)
        if away:
            grid.remove_node(1000 + grid.kill)
    grid.kill = 0
    run = run_small(*SIX, grid=grid)
    assert len(run.rounds) == 4
    assert {round for _, round in grid.sent} == {1, 2, 3, 4}
    for groups in grid.sent.values():
        assert len({each.digest() for each in groups}) == 1
        assert len({each.salt for each in groups}) == len(groups)
    # The same devices are asked again, and other ones refuse.
    assert (max(map(len, grid.sent.values())) > 1) != away
