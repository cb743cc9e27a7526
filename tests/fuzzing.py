"""Seeded mutations of real messages and files."""

import json
import random
import struct
from typing import Any

import numpy as np
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
        """Return bytes of which one to four parts are lost, copied, other or new."""
        for _ in range(self.rng.randint(1, 4)):
            start, end = (self.rng.randrange(len(data) + 1) for _ in range(2))
            length = self.rng.choice([1, 4, 64, len(data)])
            part = data[start : start + length]
            other = self.rng.randbytes(self.rng.choice([1, 4, 16]))
            rest = data[:start] + data[start + length :]
            data = self.rng.choice(
                [
                    rest,
                    rest[:start] + bytes(each ^ 1 for each in part) + rest[start:],
                    data[:end] + part[:512] + data[end:],
                    data[:end] + other + data[end:],
                ]
            )
        return data

    def floats(self, data: bytes) -> bytes:
        """Return an array's bytes with some numbers that are none, or huge."""
        changed = bytearray(data)
        for _ in range(self.rng.randint(1, 3) if len(data) >= 8 else 0):
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
        """Return a value in which one is another, is lost, or is there twice."""
        if not isinstance(value, list | dict) or not value or self.rng.random() < 0.15:
            return self.rng.choice(ODD)
        pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
        place, change = self.rng.randrange(len(pairs)), self.rng.random()
        key, inner = pairs[place]
        if change < 0.15:
            del pairs[place]
        elif change < 0.3:
            pairs.append(("odd", self.rng.choice([inner, *ODD])))
        else:
            pairs[place] = (key, self._value(inner))
        return dict(pairs) if isinstance(value, dict) else [each for _, each in pairs]

    def records(self, content: RecordDict) -> RecordDict:
        """Return a message's records after a change.

        Raises what Flower raises where it cannot decode them.
        """
        data = recorddict_to_proto(content).SerializeToString()
        if self.rng.random() < 0.4:
            return recorddict_from_proto(WireRecords.FromString(self.wire(data)))
        read = recorddict_from_proto(WireRecords.FromString(data))
        arrays, values = self._change_arrays, self._change_value
        self.rng.choice([arrays, arrays, *[values] * 4, self._drop])(read)
        return read

    def _change_arrays(self, content: RecordDict) -> None:
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
        key = self.rng.choice([*sorted(record), "odd"])
        value = record.get(key)
        if isinstance(value, str):
            record[key] = self.text(value)
        elif isinstance(value, bytes):
            record[key] = self.rng.choice([self.floats, self.wire])(value)
        elif isinstance(record, MetricRecord):
            record[key] = self.rng.choice(FLOATS)
        else:
            record[key] = self.rng.choice([0, -1, 2**40, 0.5, "odd", b"odd", [1], True])

    def _drop(self, content: RecordDict) -> None:
        """Take a record away, rename it, or put an empty one of a kind in its place."""
        key = self.rng.choice(sorted(content))
        record = content.pop(key)
        kinds: list[Any] = [ArrayRecord(), ConfigRecord(), MetricRecord()]
        name, left = self.rng.choice([("odd", record), (key, self.rng.choice(kinds))])
        if self.rng.random() < 0.75:
            content[name] = left


VIEWS = {
    "transposed": lambda x: x.T,
    "every other": lambda x: x[:, ::2],
    "backwards": lambda x: x[::-1],
    "repeated": lambda x: np.broadcast_to(x[0], (4, *x.shape[1:])),
    "one number": lambda x: x[0, :1].reshape(()),
    "none": lambda x: x[:0],
}
"""Arrays whose memory is not in the order of their values, and of odd shapes."""
