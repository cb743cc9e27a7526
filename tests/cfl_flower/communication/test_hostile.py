"""A device that answers with whatever it likes, among honest ones."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from cfl_flower.client_app import app
from simulations.engines.inprocess import InProcessGrid
from tests.conftest import app_of

VILLAIN = 3
FLOATS = 650
DEVICES = [{"client-id": client} for client in range(4)]
RUN = ["clients=4", "participants=4", "clusters=2", "drift.rounds=[3]"]
RUN += [f"partition.{own}" for own in ("groups=2", "samples=20", "test_samples=20")]

Attack = Callable[[RecordDict], RecordDict]
Attacks = list[tuple[str, Attack]]
"""The reason of a refusal, and what a hostile device makes of its answer."""


def rows(content: RecordDict) -> list[Any]:
    """Return the rows of a reply: client, count, loss, metrics, error, lengths."""
    read: list[Any] = json.loads(str(content.config_records["answers"]["rows"]))
    return read


def with_rows(content: RecordDict, value: Any, raw: bool = False) -> RecordDict:
    text = value if raw or isinstance(value, str) else json.dumps(value)
    content["answers"] = ConfigRecord({"rows": text})
    return content


def rewritten(change: Callable[[list[Any]], list[Any]]) -> Attack:
    def attack(content: RecordDict) -> RecordDict:
        (row,) = rows(content)
        return with_rows(content, change(row))

    return attack


def with_cell(column: int, value: Any) -> Attack:
    return rewritten(lambda row: [[*row[:column], value, *row[column + 1 :]]])


def with_metrics(**told: Any) -> Attack:
    return rewritten(lambda row: [[*row[:3], {**row[3], **told}, *row[4:]]])


def with_record(name: str, record: dict[str, Any]) -> Attack:
    def attack(content: RecordDict) -> RecordDict:
        content[name] = ConfigRecord(record)
        return content

    return attack


def with_array(array: Any) -> Attack:
    """Return an attack that sends another array, or bytes that are none."""

    def attack(content: RecordDict) -> RecordDict:
        sent = array if isinstance(array, Array) else Array(np.asarray(array))
        content["arrays"] = ArrayRecord({"all": sent})
        (row,) = rows(content)
        return with_rows(content, [[*row[:5], [int(np.prod(sent.shape))]]])

    return attack


def raw(data: bytes, stype: str = "numpy.ndarray") -> Array:
    return Array(dtype="float32", shape=(FLOATS,), stype=stype, data=data)


def promise(count: int) -> bytes:
    """Return an array's header that promises more than follows."""
    buffer = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + bytes(64)


class Bomb:
    """Whoever unpickles it, writes a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path(self.path),)


def pickled(path: Path) -> bytes:
    buffer = io.BytesIO()
    bomb = np.array([Bomb(str(path))], dtype=object)
    np.save(buffer, bomb, allow_pickle=True)
    return buffer.getvalue()


def silent(content: RecordDict) -> RecordDict:
    content["arrays"] = ArrayRecord({"all": Array(np.zeros(0, np.float32))})
    content["bytes"] = ConfigRecord()
    return with_rows(content, [])


def attacks(folder: Path) -> Attacks:
    ones = np.ones(FLOATS, np.float32)
    return [
        ("oversized", with_array(np.zeros(2**19, np.float32))),
        ("oversized", lambda content: with_rows(content, " " * 2**21)),
        ("oversized", with_record("bytes", {"0.representation": bytes(2**21)})),
        ("oversized", lambda content: with_rows(content, [0] * 2**18, raw=True)),
        ("oversized", with_record("more", {f"{i:0{2**13}}": 0 for i in range(2**8)})),
        ("shape", with_array(np.zeros(FLOATS + 1, np.float32))),
        ("shape", with_array(np.zeros((FLOATS, 1), np.float32))),
        ("shape", with_array(np.zeros(FLOATS))),
        ("shape", with_array(raw(b"no array"))),
        ("shape", with_array(raw(b""))),
        ("shape", with_array(raw(promise(10**13)))),
        ("shape", with_array(raw(promise(-1)))),
        ("shape", with_array(raw(pickled(folder / "unpickled")))),
        ("shape", with_array(raw(promise(FLOATS), "torch.tensor"))),
        ("shape", lambda content: with_rows(content, "[" * 100_000)),
        ("shape", lambda content: with_rows(content, 7)),
        ("shape", lambda content: with_rows(content, [[VILLAIN]])),
        ("shape", lambda content: with_rows(content, "no json")),
        ("shape", lambda content: with_rows(content, [1, 2, 3], raw=True)),
        ("raised", with_cell(4, ["raised", "\ud800\nclient 0, train: x" * 10_000])),
        ("other", with_cell(4, ["strange\x1b[31m", "words"])),
        ("other", with_cell(4, [None, "words"])),
        ("other", with_cell(4, [["raised"], "words"])),
        ("other", with_cell(4, ["replayed", "as if the server had said so"])),
        ("shape", with_cell(4, ["raised"])),
        ("shape", with_cell(0, None)),
        ("shape", with_cell(3, [1, 2])),
        ("shape", with_cell(5, [-1, FLOATS + 1])),
        ("shape", with_cell(5, ["1"])),
        ("shape", with_cell(3, {"correct": [1]})),
        ("shape", with_cell(2, "low")),
        ("shape", with_record("bytes", {"7.correct": b""})),
        ("shape", lambda content: RecordDict({"mark": content["mark"]})),
        ("count", with_cell(1, -1)),
        ("count", with_cell(1, 10**400)),
        ("non-finite", with_cell(2, 1e308)),
        ("non-finite", with_cell(2, float("nan"))),
        ("non-finite", with_cell(3, {"correct": 1, "samples": 2**70})),
        ("foreign", rewritten(lambda row: [[0, *row[1:]]])),
        ("foreign", rewritten(lambda r: [r, *([c, *r[1:5], []] for c in range(3))])),
        ("foreign", rewritten(lambda row: [row, [*row[:5], []]])),
        ("replayed", lambda content: RecordDict()),
        ("missing", silent),
        ("non-finite", with_array(ones * np.float32("nan"))),
    ]


def hostile_app(spoil: Callable[[Message, Message], Message]) -> ClientApp:
    """Return a client app of which one device spoils its replies to what is asked."""

    def answer(message: Message, context: Any) -> Message:
        reply: Message = app(message, context)
        hostile = context.node_config["client-id"] == VILLAIN
        return spoil(reply, message) if hostile else reply

    return app_of(answer)


class HostileGrid(InProcessGrid):
    """Devices of which one is hostile, or without `tried` just fails in every round."""

    def __init__(self, tried: Attacks) -> None:
        self._tried = tried
        self._old: dict[str, RecordDict] = {}
        super().__init__(DEVICES, hostile_app(self._spoil))

    def _spoil(self, reply: Message, asked: Message) -> Message:
        """Try another attack in every round; at last send the first answer again."""
        round, phase = int(asked.metadata.group_id or 0), asked.metadata.message_type
        if phase == "query.identify" or (phase, round) == ("query", 1):
            return reply  # or nobody would know the device
        if not self._tried:
            raise RuntimeError("nothing comes of it")
        if round > len(self._tried):
            return Message(self._old[phase], reply_to=asked)
        self._old.setdefault(phase, RecordDict(dict(reply.content)))
        _, attack = self._tried[round - 1]
        return Message(attack(reply.content), reply_to=asked)


def without_failures(run: Any) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "failures"} for row in run.numbers]


def test_hostile_device_costs_what_a_failing_one_costs(run_small, tmp_path, caplog):
    """Each attack, in training and in the test, is refused, named and counted."""
    tried = attacks(tmp_path)
    asked = [*RUN, "strategy=fielding", f"rounds={len(tried) + 1}"]
    run = run_small(*asked, grid=HostileGrid(tried))
    quiet = run_small(*asked, grid=HostileGrid([]), folder="quiet")
    assert without_failures(run) == without_failures(quiet)
    assert all(np.isfinite(model).all() for model in run.state.models)
    assert not (tmp_path / "unpickled").exists()
    reasons = [*(reason for reason, _ in tried), "replayed"]
    for row, reason in zip(run.rounds, reasons, strict=True):
        found = {f["phase"]: f["reason"] for f in row["failures"]}
        assert {f["client"] for f in row["failures"]} == {VILLAIN}
        assert found["train"] == reason, row["failures"]
        assert "evaluate" in found, row["failures"]
        assert len(row["failures"]) == 2
    lines = [record.getMessage() for record in caplog.records]
    said = [line for line in lines if "devices here" not in line]
    assert all(line.startswith("client 3, ") for line in said)
    assert all(line.isprintable() and len(line) < 250 for line in said)
    of_quiet = sum("nothing comes of it" in line for line in said)
    assert len(said) - of_quiet == len(run.failures)


UPLOADS: Attacks = [
    ("test", with_metrics(before_tested="x")),
    ("test", with_metrics(before_tested=3, before_correct=4)),
    ("test", with_metrics(after_tested=1, after_correct="1")),
    ("test", with_metrics(after_loss="low")),
    ("stamp", with_metrics(stamp=10**6)),
    ("stamp", with_metrics(stamp="0")),
]


def losses(reason: str, **told: Any) -> Attacks:
    return [(reason, with_metrics(**told))] * 3


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("options", "tried"),
    [
        (["strategy=ccfl"], UPLOADS),
        (["strategy=fedsoft"], UPLOADS),
        (["strategy=local_async"], UPLOADS),
        (["selection=oort"], losses("representation", start_rms="x")),
        (["selection=oort"], losses("representation", start_rms=-1.0)),
        (["server_optimizer=qfedavg"], losses("representation", start_loss="x")),
        (["server_optimizer=qfedavg"], losses("shape", start_loss=None)),
    ],
)
def test_metrics_that_somebody_reads_are_checked(options, tried, run_small, caplog):
    asked = [*RUN, "strategy=fedavg", f"rounds={len(tried)}", *options]
    run = run_small(*asked, grid=HostileGrid(tried))
    assert {f["client"] for f in run.failures} == {VILLAIN}
    assert {f["reason"] for f in run.failures} == {reason for reason, _ in tried}
    if tried is UPLOADS:
        assert "stamp=1000000," in caplog.text


def test_additional_metrics_of_an_upload_are_checkpointed(run_small):
    """Answers wait in the checkpoint: with bytes, and under any name."""
    beside = with_record("bytes", {"0.zz\ud800": b"abc"})
    asked = [*RUN, "strategy=local_async", "participants=1", "resume=true"]
    for rounds in (3, 6):
        grid = HostileGrid([("", beside)] * 9)
        run = run_small(*asked, f"rounds={rounds}", grid=grid)
        assert len(run.rounds) == rounds


def test_representation_that_is_no_distribution_is_refused(run_small):
    wrong = np.full(10, 0.2, np.float32).tobytes()
    spoil = with_record("bytes", {"0.representation": wrong})

    def lie(reply: Message, asked: Message) -> Message:
        """Lie from the first question on, in which others tell the truth."""
        if asked.metadata.message_type == "query.identify":
            return reply
        return Message(spoil(reply.content), reply_to=asked)

    grid = InProcessGrid(DEVICES, hostile_app(lie))
    run = run_small(*RUN, "strategy=fielding", "rounds=2", grid=grid)
    assert {f["client"] for f in run.failures} == {VILLAIN}
    assert {f["reason"] for f in run.failures} == {"representation"}
    assert {row["client"] for row in run.clients} == {0, 1, 2}
