"""Seeded mutations of real messages and files."""

import json
import random
import struct
from collections.abc import Callable
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as WireRecords

FLOATS = [float("nan"), float("inf"), -float("inf"), 3.4e38, -3.4e38, 1e-45, -0.0, 1e16]

ODD: list[Any] = [
    *(None, True, -1, 0, 2**31, 2**63, -(2**63), 1e308, -1e308, 1e-320, 0.5),
    *("", "NaN", "../../x", "\x00", "é" * 50, "9" * 400, [], {}, [[[]]], {"a": {}}),
    *(float("nan"), float("inf"), -float("inf")),
]
"""Values of JSON, and what Python's reader takes besides."""


class Mutator:
    """Changes what it is given, in the same way for the same seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def wire(self, data: bytes) -> bytes:
        """Return bytes with one to four changes."""
        changed = bytearray(data)
        for _ in range(self.rng.randint(1, 4)):
            self.rng.choice([self._flip, self._cut, self._copy, self._insert])(changed)
        return bytes(changed)

    def _place(self, data: bytearray) -> int:
        return self.rng.randrange(len(data) + 1)

    def _flip(self, data: bytearray) -> None:
        if data:
            data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)

    def _cut(self, data: bytearray) -> None:
        start = self._place(data)
        length = self.rng.choice([1, 4, 64, len(data)])
        del data[start : start + length]

    def _copy(self, data: bytearray) -> None:
        start, length = self._place(data), self.rng.choice([1, 4, 64, 512])
        place = self._place(data)
        data[place:place] = data[start : start + length]

    def _insert(self, data: bytearray) -> None:
        place = self._place(data)
        data[place:place] = self.rng.randbytes(self.rng.choice([1, 4, 16]))

    def floats(self, data: bytes) -> bytes:
        """Return an array's bytes with some numbers that are none, or huge."""
        changed = bytearray(data)
        for _ in range(self.rng.randint(1, 3)):
            if len(data) >= 8:
                place = len(data) - 4 * self.rng.randint(1, len(data) // 4)
                number = struct.pack("<f", self.rng.choice(FLOATS))
                changed[place : place + 4] = number
        return bytes(changed)

    def text(self, text: str) -> str:
        """Return JSON with one value that is another; or text that is none."""
        if self.rng.random() < 0.2:
            return self.wire(text.encode()).decode("utf-8", "replace")
        try:
            value = json.loads(text)
        except ValueError:
            return text
        return json.dumps(self._value(value))

    def _value(self, value: Any) -> Any:
        if not isinstance(value, list | dict) or not value or self.rng.random() < 0.15:
            return self.rng.choice(ODD)
        return (self._row if isinstance(value, list) else self._object)(value)

    def _object(self, value: dict[str, Any]) -> dict[str, Any]:
        key, change = self.rng.choice(sorted(value)), self.rng.random()
        if change < 0.15:
            return {name: each for name, each in value.items() if name != key}
        if change < 0.3:
            return {**value, "odd": self.rng.choice(ODD)}
        return {**value, key: self._value(value[key])}

    def _row(self, value: list[Any]) -> list[Any]:
        place, change = self.rng.randrange(len(value)), self.rng.random()
        if change < 0.15:
            return value[:place] + value[place + 1 :]
        if change < 0.3:
            return [*value, value[place]]
        return [*value[:place], self._value(value[place]), *value[place + 1 :]]

    def records(self, content: RecordDict) -> RecordDict:
        """Return a message's records after a change.

        Raises what Flower raises where it cannot decode them.
        """
        data = recorddict_to_proto(content).SerializeToString()
        changes: list[Callable[[RecordDict], None]] = [
            *([self._change_array] * 2),
            *([self._change_value] * 4),
            self._drop,
        ]
        if self.rng.random() < 0.4:
            data = self.wire(data)
            changes = []
        read = recorddict_from_proto(WireRecords.FromString(data))
        if changes:
            self.rng.choice(changes)(read)
        return read

    def _change_array(self, content: RecordDict) -> None:
        for record in content.array_records.values():
            for key, array in list(record.items()):
                change = self.rng.choice([self.floats, self.wire])
                shape, dtype = list(array.shape), array.dtype
                if self.rng.random() < 0.2:
                    shape = [self.rng.choice([-1, 0, 2**40])]
                if self.rng.random() < 0.2:
                    dtype = self.rng.choice(["int64", "float64", "object", ""])
                record[key] = Array(dtype, shape, array.stype, change(array.data))

    def _change_value(self, content: RecordDict) -> None:
        records = [*content.config_records.values(), *content.metric_records.values()]
        record = self.rng.choice(records)
        if not record:
            record["odd"] = self.rng.choice([1, 2.5])
            return
        key = self.rng.choice(sorted(record))
        value = record[key]
        if isinstance(value, str):
            record[key] = self.text(value)
        elif isinstance(value, bytes):
            record[key] = self.rng.choice([self.floats, self.wire])(value)
        elif isinstance(record, MetricRecord):
            record[key] = self.rng.choice(FLOATS)
        else:
            record[key] = self.rng.choice([0, -1, 2**40, 0.5, "odd", b"odd", [1], True])

    def _drop(self, content: RecordDict) -> None:
        key = self.rng.choice(sorted(content))
        record = content.pop(key)
        if self.rng.random() < 0.5:
            content["odd"] = record
        elif self.rng.random() < 0.5:
            kinds: list[Any] = [ArrayRecord(), ConfigRecord(), MetricRecord()]
            content[key] = self.rng.choice(kinds)
