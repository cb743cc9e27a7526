"""Answers as messages: what a node replies to a batch of tasks.

A reply carries one JSON row per task, all arrays end to end as one float32 vector, sums
of arrays, and representations as bytes. Nothing is ever unpickled. Only this module and
`task_records` know record keys and bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain, pairwise

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from cfl_flower.communication.array_bytes import decode, encode
from cfl_flower.communication.exact_sum import ExactSum
from cfl_flower.errors import InvalidResultError
from cfl_flower.types import (
    OTHER,
    SAID,
    Answer,
    Json,
    Trace,
    Vector,
)

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
    pairs = (pair for record in content.values() for pair in record.items())
    size = sum(map(len, content)) + sum(map(weigh, chain.from_iterable(pairs)))
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
        str(place): encode(each.limbs.shape, [each.limbs])
        for place, each in enumerate(added.values())
    }
    # One array for all: Flower takes 0.1 ms for each, at both ends.
    together = encode((sum(map(len, vectors)),), vectors)
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
            limbs = decode(arrays[str(place)]).copy()
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
        vectors: Vector = decode(content.array_records["arrays"]["all"])
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
