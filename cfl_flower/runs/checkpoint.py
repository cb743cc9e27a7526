"""Atomic save, load and resume of a strategy's state.

A checkpoint is one safetensors file of arrays and one JSON file that names it. The JSON
is replaced last and in one step, so at every moment the folder holds one whole
checkpoint, whenever the process is killed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from safetensors.numpy import load, save

from cfl_flower.errors import CheckpointError
from cfl_flower.files import write_atomically
from cfl_flower.settings import differences
from cfl_flower.types import Json

SCHEMA = 1
MAY_DIFFER = frozenset(
    {
        "rounds",
        "resume",
        "workers",
        "gpus_per_worker",
        "engine",
        "output_dir",
        "data_dir",
        "system",
    }
)
"""Settings without effect on the numbers of the rounds that are done."""

State = TypeVar("State")


def pack(value: Any, arrays: dict[str, np.ndarray], path: str = "") -> Json:
    """Turn a value into JSON, putting its arrays aside under their path.

    Dataclasses, lists, tuples and mappings are followed; mappings keep the type of
    their keys.
    """
    if isinstance(value, np.ndarray):
        arrays[path] = np.ascontiguousarray(value)
        return {"array": path}
    if isinstance(value, bytes):
        arrays[path] = np.frombuffer(value, np.uint8)
        return {"bytes": path}
    if is_dataclass(value):
        names = [field.name for field in fields(value)]
        inside = {n: pack(getattr(value, n), arrays, f"{path}.{n}") for n in names}
        return {"fields": inside}
    if isinstance(value, Mapping):
        # Keys may be anybody's words: they name no arrays.
        items = enumerate(value.items())
        return {"pairs": [[k, pack(v, arrays, f"{path}.{i}")] for i, (k, v) in items]}
    if isinstance(value, list | tuple):
        return [pack(item, arrays, f"{path}.{i}") for i, item in enumerate(value)]
    return value


def unpack(node: Json, arrays: Mapping[str, np.ndarray]) -> Any:
    """Rebuild what `pack` made; a dataclass comes back as the dict of its fields."""
    if isinstance(node, list):
        return [unpack(item, arrays) for item in node]
    if not isinstance(node, dict):
        return node
    if "bytes" in node:
        return arrays[node["bytes"]].tobytes()
    if "array" in node:
        return np.array(arrays[node["array"]])
    if "fields" in node:
        return {name: unpack(value, arrays) for name, value in node["fields"].items()}
    return {key: unpack(value, arrays) for key, value in node["pairs"]}


@dataclass(frozen=True)
class Checkpoint:
    """The folder that holds the last checkpoint of a run.

    Attributes
    ----------
    folder : Path
    resolved : dict
        The run's configuration, to recognise a foreign checkpoint.
    """

    folder: Path
    resolved: Mapping[str, Json]

    @property
    def _header(self) -> Path:
        return self.folder / "checkpoint.json"

    def save(self, round: int, state: Any) -> None:
        """Replace the checkpoint by the state after a round."""
        self.folder.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, np.ndarray] = {}
        packed = pack(state, arrays)
        data = save(arrays)
        name = f"round-{round:08d}.safetensors"
        header = {
            "schema": SCHEMA,
            "round": round,
            "arrays": name,
            "sha256": hashlib.sha256(data).hexdigest(),
            "config": self.resolved,
            "state": packed,
        }
        write_atomically(self.folder / name, data)
        write_atomically(self._header, json.dumps(header).encode())
        for old in self.folder.glob("round-*.safetensors"):
            if old.name != name:
                old.unlink()

    def exists(self) -> bool:
        """Return whether there is a checkpoint."""
        return self._header.exists()

    def load(self, state_class: type[State]) -> tuple[int, State]:
        """Return the round and the state of the checkpoint.

        Raises
        ------
        CheckpointError
            If it is torn, or of a run with other settings.
        """
        try:
            header = json.loads(self._header.read_text())
            data = (self.folder / header["arrays"]).read_bytes()
            intact = hashlib.sha256(data).hexdigest() == header["sha256"]
        except (OSError, ValueError, KeyError) as error:
            raise self._refusal(f"is torn ({type(error).__name__})") from error
        if not intact:
            raise self._refusal("is torn (its arrays are not those that were saved)")
        if header["schema"] != SCHEMA:
            raise self._refusal(f"has schema {header['schema']}, not {SCHEMA}")
        self._check_config(header["config"])
        state = unpack(header["state"], load(data))
        return int(header["round"]), state_class(**state)

    def _check_config(self, saved: Mapping[str, Json]) -> None:
        for key, old, new in differences(saved, self.resolved):
            if key.partition(".")[0] not in MAY_DIFFER:
                raise self._refusal(f"is of another run: {key} was {old}, is {new}")

    def _refusal(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"checkpoint {self.folder} {what}; use the run's own settings, or another "
            "output_dir"
        )
