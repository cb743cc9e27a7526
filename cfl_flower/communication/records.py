"""Messages: the only module that knows record keys and bytes.

A message carries a batch of tasks for one node: each distinct model once, the tasks as
JSON rows, and the settings a client needs. A reply carries one JSON row per task, all
arrays end to end as one float32 vector, sums of arrays, and representations as bytes.
Nothing is ever unpickled.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from typing import Any, TypeAlias

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from cfl_flower.communication.exact_sum import ExactSum
from cfl_flower.errors import InvalidResultError
from cfl_flower.types import (
    OTHER,
    SAID,
    Answer,
    IntArray,
    Json,
    Plan,
    SumSpec,
    Task,
    Trace,
    Vector,
    Version,
)


@dataclass(frozen=True)
class TaskBatch:
    """The tasks of one message, as a client app reads them."""

    phase: str
    round: int
    settings: str
    plan: Plan
    """The tasks; the models stand apart."""
    models: dict[int, Vector]
    """The models that these tasks use, by their numbers in the server's plan."""
    sharers: dict[int, int]
    """Number of clients of the whole phase that receive each model."""
    summed: Collection[Version]
    """Versions that this node adds up."""


Encoded: TypeAlias = Mapping[int, tuple[str, Array]]
"""The models that a plan sends, by their number, with their names in a message."""


def encode_models(plan: Plan) -> Encoded:
    """Encode each model that a plan sends once, to be shared by all its messages.

    Clusters may have the same model, as all have that nobody trained yet.
    """
    distinct: dict[int, tuple[str, Array]] = {}
    used = {index for task in plan.tasks for index in task.models}
    for index in used:
        model = plan.models[index]
        if id(model) not in distinct:
            distinct[id(model)] = str(index), _encode(model.shape, [model])
    return {index: distinct[id(plan.models[index])] for index in used}


def _encode(shape: tuple[int, ...], parts: Sequence[Vector | IntArray]) -> Array:
    """Encode arrays end to end, as Flower would one of this shape, but copy once."""
    # Concatenating them and writing the result to a stream holds four times the bytes.
    header = io.BytesIO()
    dtype = parts[0].dtype if parts else np.dtype(np.float32)
    described = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, described)
    raw = [np.ascontiguousarray(part).data for part in parts]
    data = b"".join([header.getvalue(), *raw])
    return Array(dtype.name, shape, "numpy.ndarray", data)


def pack_tasks(
    phase: str,
    server_round: int,
    settings: str,
    plan: Plan,
    tasks: Sequence[Task],
    encoded: Encoded,
    summed: Collection[Version] = (),
) -> RecordDict:
    """Pack some of a plan's tasks for one node, with the models that they use.

    Models have their number in the plan. ``summed`` is what the node is to add up.
    """
    used = sorted({index for task in tasks for index in task.models})
    spec = plan.sum_spec if summed else None
    header = {
        "phase": phase,
        "round": server_round,
        "config": plan.config,
        "tasks": [
            [task.client, task.models, task.config, task.round] for task in tasks
        ],
        "models": [[index, encoded[index][0], plan.sharers[index]] for index in used],
        "reply": plan.reply,
        "keep_from": plan.keep_from,
        "sum_spec": None if spec is None else asdict(spec),
        "summed": sorted(summed),
    }
    arrays = ArrayRecord(dict(encoded[index] for index in used))
    batch = ConfigRecord({"header": json.dumps(header), "settings": settings})
    return RecordDict({"models": arrays, "batch": batch})


def unpack_tasks(content: RecordDict) -> TaskBatch:
    """Read what `pack_tasks` wrote."""
    batch = content.config_records["batch"]
    header = json.loads(str(batch["header"]))
    # All clients of a worker receive the same array: one that writes into it fails.
    arrays = {k: _decode(array) for k, array in content.array_records["models"].items()}
    # A view for each: how many clients receive a model is known by the object.
    models = {index: arrays[name].view() for index, name, _ in header["models"]}
    sharers = {index: count for index, _, count in header["models"]}
    tasks = [
        Task(client, tuple(places), config, own)
        for client, places, config, own in header["tasks"]
    ]
    sent = header["sum_spec"]
    spec = None
    if sent is not None:
        spec = SumSpec(**(sent | {"bases": tuple(sent["bases"])}))
    plan = Plan(
        tasks,
        config=header["config"],
        reply=tuple(header["reply"]),
        sum_spec=spec,
        keep_from=header["keep_from"],
    )
    return TaskBatch(
        phase=header["phase"],
        round=header["round"],
        settings=str(batch["settings"]),
        plan=plan,
        models=models,
        sharers=sharers,
        summed={(array, model) for array, model in header["summed"]},
    )


HEADER_LENGTH = 2**10
"""Bytes in which the header of an array ends."""

HEADER_BYTES = 2**20
"""Bytes of an answer beside its arrays and representations."""


def mark(content: RecordDict, run: str, phase: str, server_round: int) -> None:
    """Say which tasks a reply answers, and of which run."""
    content["mark"] = ConfigRecord({"run": run, "phase": phase, "round": server_round})


def check_reply(
    content: RecordDict, run: str, phase: str, server_round: int, limit: int
) -> None:
    """Raise `InvalidResultError` if a reply is too large, or answers another task.

    Nothing of it has been parsed before. Names and lists count as well: whatever did
    not count would have no bound. ``run`` is the run's token, ``limit`` the bytes that
    all answers may take.
    """
    size = sum(map(len, content)) + sum(
        weigh(key) + weigh(value)
        for record in content.values()
        for key, value in record.items()
    )
    if size > limit:
        raise InvalidResultError("oversized", f"{size} bytes, at most {limit} expected")
    found = dict(content.config_records.get("mark", {}))
    if found != {"run": run, "phase": phase, "round": server_round}:
        raise InvalidResultError("replayed", f"an answer to {found}, not to this task")


def weigh(value: object) -> int:
    """Return about how many bytes a value of a record takes.

    Examples
    --------
    >>> weigh("four"), weigh(7), weigh([1.0, 2.0]), weigh(["a", "bc"])
    (4, 8, 16, 19)
    """
    if isinstance(value, bytes | str):
        return len(value)
    if isinstance(value, Array):
        names = len(value.dtype) + len(value.stype)
        return len(value.data) + names + 8 * len(value.shape)
    if isinstance(value, Sequence):
        texts = (len(each) for each in value if isinstance(each, bytes | str))
        return 8 * len(value) + sum(texts)
    return 8


def pack_answers(
    answers: Iterable[Answer],
    sums: Mapping[tuple[int, int], ExactSum] | None = None,
    shares: Mapping[str, list[bytes]] | None = None,
) -> RecordDict:
    """Pack the answers of one node, and the sums of what is missing in them.

    ``shares`` has what a device that masked its sums encrypted for others.
    """
    rows = []
    raw = ConfigRecord()
    vectors = list[Vector]()
    for index, answer in enumerate(answers):
        plain = {}
        for name, value in answer.metrics.items():
            if isinstance(value, bytes):
                raw[f"{index}.{name}"] = value
            else:
                plain[name] = value
        row: list[Json] = [answer.client, answer.num_examples, answer.loss, plain]
        row += [answer.error, [len(array) for array in answer.arrays]]
        if answer.trace is not None:
            row += [answer.trace.kind, answer.trace.text]
        rows.append(row)
        vectors.extend(answer.arrays)
    added = sums or {}
    summed = [[*key, each.terms, each.weight] for key, each in added.items()]
    limbs = {
        str(place): _encode(each.limbs.shape, [each.limbs])
        for place, each in enumerate(added.values())
    }
    # One array for all: Flower takes 0.1 ms for each, at both ends.
    together = _encode((sum(map(len, vectors)),), vectors)
    return RecordDict(
        {
            "answers": ConfigRecord({"rows": json.dumps(rows)}),
            "bytes": raw,
            "arrays": ArrayRecord({"all": together}),
            "sums": ArrayRecord(limbs),
            "summed": ConfigRecord({"rows": json.dumps(summed)}),
            SHARES: ConfigRecord(dict(shares or {})),
        }
    )


def unpack_sums(content: RecordDict) -> dict[tuple[int, int], ExactSum]:
    """Read the sums that `pack_answers` wrote, by array and model.

    Raises `InvalidResultError` if they cannot be read.
    """
    try:
        arrays = content.array_records["sums"]
        sums = {}
        for place, row in enumerate(_parse_rows(content, "summed")):
            array, model, terms, weight = map(int, row)
            # A copy, to which others are added.
            limbs = _decode(arrays[str(place)]).copy()
            if limbs.dtype != np.int64 or limbs.ndim != 2 or len(limbs) != 2:
                kind = f"{limbs.dtype}{limbs.shape}"
                raise ValueError(f"limbs {kind}, not two rows of int64")
            sums[array, model] = ExactSum(limbs, terms, weight)
        return sums
    except Exception as error:
        detail = f"the sums cannot be read: {type(error).__name__}: {error}"
        raise InvalidResultError("shape", detail) from error


SHARES = "shares"
"""Name of the record with what a device encrypted for others of its group."""


def unpack_shares(content: RecordDict) -> dict[int, list[bytes]]:
    """Read, for each array, what a device encrypted for each member of its group.

    Raises `InvalidResultError` if it cannot be read.
    """
    found: dict[int, list[bytes]] = {}
    for array, texts in content.config_records.get(SHARES, ConfigRecord()).items():
        listed = isinstance(texts, list) and all(isinstance(t, bytes) for t in texts)
        # A number of thousands of digits is no number to Python.
        if not re.fullmatch("[0-9]{1,4}", array) or not listed:
            raise InvalidResultError("shape", "shares of masks that cannot be read")
        found[int(array)] = list(texts)  # type: ignore[arg-type]
    return found


def unpack_answers(content: RecordDict) -> list[Answer]:
    """Read what `pack_answers` wrote, trusting nothing but its form.

    Raises `InvalidResultError` if the reply as a whole cannot be read.
    """
    try:
        rows = _parse_rows(content, "answers")
        raw = content.config_records["bytes"]
        answers = [_read_row(row) for row in rows]
        for key, value in raw.items():
            place, _, name = key.partition(".")
            answers[int(place)].metrics[name] = value  # type: ignore[assignment]
        vectors: Vector = _decode(content.array_records["arrays"]["all"])
        kind = f"{vectors.dtype}{vectors.shape}"
        lengths = [row[5] for row in rows]
        if vectors.dtype != np.float32 or vectors.ndim != 1:
            raise ValueError(f"an array {kind}, not a float32 vector")
        if any(length < 0 for row in lengths for length in row):
            raise ValueError("an array of negative length")
        if sum(map(sum, lengths)) != len(vectors):
            raise ValueError(f"{len(vectors)} floats for arrays of {lengths}")
        # Each answer gets its part of all vectors, as views.
        start = 0
        for answer, row in zip(answers, lengths, strict=True):
            stops = list(accumulate(row, initial=start))
            answer.arrays = [vectors[a:b] for a, b in pairwise(stops)]
            start = stops[-1]
    except Exception as error:
        detail = f"the reply cannot be read: {type(error).__name__}: {error}"
        raise InvalidResultError("shape", detail) from error
    return answers


def _parse_rows(content: RecordDict, name: str) -> Json:
    rows = content.config_records[name]["rows"]
    if not isinstance(rows, str):
        raise TypeError(f"rows are of type {type(rows).__name__}, not text")
    return json.loads(rows)


def _read_row(row: Json) -> Answer:
    client, num_examples, loss, metrics, error, _, *trace = row
    if not isinstance(client, int | str) or not isinstance(metrics, dict):
        raise ValueError(f"malformed row of client {client!r}")
    problem = None
    if error is not None:
        word, detail = error
        problem = (word if word in SAID else OTHER, str(detail))
    found = Trace(*map(str, trace)) if trace else None
    return Answer(client, (), num_examples, loss, metrics, problem, found)


def _decode(array: Array) -> Any:
    """Return an array as a view of its bytes, which cannot be written into.

    Raises `ValueError` for a header that promises something else than there is.
    """
    # Flower's way would copy all of it.
    stream = io.BytesIO(array.data[:HEADER_LENGTH])
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("an array in another format than numpy's 1.0")
    shape, by_columns, dtype = np.lib.format.read_array_header_1_0(stream)
    there = len(array.data) - stream.tell()
    if dtype.hasobject or math.prod(shape) * dtype.itemsize != there:
        raise ValueError(f"an array {dtype}{shape} of {there} bytes")
    if by_columns:
        raise ValueError("an array by columns")
    return np.frombuffer(array.data, dtype, offset=stream.tell()).reshape(shape)
