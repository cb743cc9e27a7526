"""Atomic save, load and resume of a strategy's state.

A checkpoint is a file for each large array, one safetensors file of all others and one
JSON file that names them. The JSON is replaced last and in one step, so that the folder
holds one whole checkpoint at every moment, whenever the process is killed. The name of
a large array's file is the digest of its content: what has not changed since the last
checkpoint is there already, and what several places of a state share is one file.

A state is a dataclass of plain values, arrays, bytes, lists, mappings and further
dataclasses, which are restored by the annotations of their fields. A field that was
added since, with a default, may be missing; one that means something else now needs
another name, or `FORMAT`.
"""

from __future__ import annotations

import hashlib
import json
import types
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
from pydantic import ConfigDict, TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load, save

from cfl_flower.environment.files import write_atomically
from cfl_flower.errors import CheckpointError, ConfigError, one_line
from cfl_flower.runs.reading import effective_differences
from cfl_flower.types import Json

FORMAT = 4
"""Number of this file format, and of what the fields of states mean."""

LARGE = 2**20
"""Bytes from which an array has a file of its own."""

SUFFIX = ".array"

State = TypeVar("State")


TYPES = ConfigDict(arbitrary_types_allowed=True, extra="forbid")
"""How a state's fields are checked: arrays by their class, and no other fields."""

OTHER_FIELDS = ("missing", "unexpected_keyword_argument")
"""What is wrong with a dataclass of another version of this code."""


def pack(value: Any, arrays: dict[str, np.ndarray], path: str = "") -> Json:
    """Turn a value into JSON, and put its arrays into ``arrays`` under their path.

    Dataclasses, lists, tuples and mappings are followed; mappings keep the type of
    their keys.
    """
    if isinstance(value, np.ndarray):
        # Safetensors writes the memory of an array, whatever its strides say.
        arrays[path] = np.asarray(value, order="C")
        return {"array": path}
    if isinstance(value, bytes):
        arrays[path] = np.frombuffer(value, np.uint8)
        return {"bytes": path}
    if is_dataclass(value):
        own = {each.name: getattr(value, each.name) for each in fields(value)}
        packed = {n: pack(v, arrays, f"{path}.{n}") for n, v in own.items()}
        return {"class": type(value).__name__, "fields": packed}
    if isinstance(value, Mapping):
        # A client can choose a key: keys name no arrays.
        items = enumerate(value.items())
        return {"pairs": [[k, pack(v, arrays, f"{path}.{i}")] for i, (k, v) in items]}
    if isinstance(value, list | tuple):
        return [pack(item, arrays, f"{path}.{i}") for i, item in enumerate(value)]
    plain = value.item() if isinstance(value, np.generic) else value
    if not (plain is None or isinstance(plain, bool | int | float | str)):
        raise TypeError(
            f"state{path} is a {type(value).__name__}, which no checkpoint can hold; "
            "use numpy arrays, numbers, texts, bytes, lists, mappings and dataclasses"
        )
    return plain


def unpack(node: Json, arrays: Mapping[str, np.ndarray]) -> Any:
    """Return what was packed; a dataclass is a mapping of its fields' names."""
    if isinstance(node, list):
        return [unpack(item, arrays) for item in node]
    if not isinstance(node, dict):
        return node
    if "bytes" in node:
        return arrays[node["bytes"]].tobytes()
    if "array" in node:
        return arrays[node["array"]]
    pairs = node["fields"].items() if "fields" in node else node["pairs"]
    return {key: unpack(value, arrays) for key, value in pairs}


def _digest(packed: Json) -> str:
    return hashlib.sha256(json.dumps(packed).encode()).hexdigest()


def _write_large(
    folder: Path, arrays: Mapping[str, np.ndarray]
) -> dict[str, dict[str, Any]]:
    """Write contiguous arrays that are not there yet; return what is saved of each.

    The names of the files are not synced to disk, because a later one is.
    """
    # One object is often in many places: of all clusters that nobody trained yet.
    digests: dict[int, str] = {}
    saved = {}
    for name, array in arrays.items():
        if id(array) not in digests:
            content = array.reshape(-1).view(np.uint8).data
            digests[id(array)] = hashlib.sha256(content).hexdigest()
            path = folder / f"{digests[id(array)]}{SUFFIX}"
            if not path.exists():
                write_atomically(path, content, sync_name=False)
        shape = list(array.shape)
        digest = digests[id(array)]
        saved[name] = {"digest": digest, "dtype": array.dtype.str, "shape": shape}
    return saved


def _read_large(
    folder: Path, saved: Mapping[str, Mapping[str, Any]]
) -> dict[str, np.ndarray]:
    """Read what `_write_large` wrote.

    Equal float32 vectors are one object, as models and directions are never changed in
    place; all else is an array of its own. Raises `OSError` if a file is missing, and
    `ValueError` if it does not have the content that its name says.
    """
    vectors: dict[str, np.ndarray] = {}
    arrays = {}
    for name, row in saved.items():
        digest = row["digest"]
        if digest in vectors:
            arrays[name] = vectors[digest]
            continue
        # A name, not a path: no file outside of the folder is read.
        path = folder / Path(f"{digest}{SUFFIX}").name
        array = np.fromfile(path, np.dtype(row["dtype"]))
        if hashlib.sha256(array.view(np.uint8).data).hexdigest() != digest:
            raise ValueError(f"{path} is not the array that was saved")
        arrays[name] = array.reshape(row["shape"])
        if array.dtype == np.float32 and len(row["shape"]) == 1:
            vectors[digest] = arrays[name]
    return arrays


TORN = (
    *(OSError, MemoryError, RecursionError, SafetensorError),
    *(ValueError, LookupError, TypeError, AttributeError),
)
"""Errors of reading files that are not as they were saved."""


@dataclass(frozen=True)
class Checkpoint:
    """The folder that holds the last checkpoint of a run."""

    folder: Path
    resolved: Mapping[str, Json]
    """The run's configuration, to recognise the checkpoint of another run."""

    @property
    def _header(self) -> Path:
        return self.folder / "checkpoint.json"

    @property
    def states(self) -> Path:
        """Folder with a folder for each simulated client that keeps a state."""
        return self.folder.parent / "clients"

    def lost_states(self) -> tuple[int, int]:
        """Return how many clients' states are missing, and how many there were."""
        found = self.states.glob("[!.]*/**/*.safetensors")
        kept = {path.relative_to(self.states).parts[0] for path in found}
        there: int = self.read_header().get("states", 0)
        return max(there - len(kept), 0), there

    def save(self, server_round: int, state: Any) -> None:
        """Replace the checkpoint by the state after a round."""
        self.folder.mkdir(parents=True, exist_ok=True)
        arrays: dict[str, np.ndarray] = {}
        packed = pack(state, arrays)
        large = {k: v for k, v in arrays.items() if v.nbytes >= LARGE}
        saved = _write_large(self.folder, large)
        data = save({k: v for k, v in arrays.items() if k not in large})
        name = f"round-{server_round:08d}.safetensors"
        header = {
            "format": FORMAT,
            "round": server_round,
            "arrays": name,
            "large": saved,
            "sha256": hashlib.sha256(data).hexdigest(),
            "config": self.resolved,
            "states": len([*self.states.glob("[!.]*")]),
            "state": packed,
            "state_sha256": _digest(packed),
        }
        write_atomically(self.folder / name, data)
        write_atomically(self._header, json.dumps(header).encode())
        kept = {name} | {f"{each['digest']}{SUFFIX}" for each in saved.values()}
        for pattern in ("round-*.safetensors", f"*{SUFFIX}"):
            for old in self.folder.glob(pattern):
                if old.name not in kept:
                    old.unlink()

    def exists(self) -> bool:
        """Return whether there is a checkpoint."""
        return self._header.exists()

    def check_state(self, state_class: type[State]) -> None:
        """Raise the `ConfigError` of a state of other versions, without its arrays."""
        nothing = np.zeros(0, np.uint8)
        self._unpack(self.read_header(), defaultdict(lambda: nothing), state_class)

    def load(self, state_class: type[State]) -> tuple[int, State]:
        """Return the round and the state of the checkpoint.

        Raises `CheckpointError` if it is damaged, or of a run with other settings, and
        `ConfigError` if another version of this project wrote it.
        """
        header = self.read_header()
        arrays = self._read_arrays(header)
        for key, old, new in effective_differences(header["config"], self.resolved):
            raise self._refusal(f"is of another run: {key} was {old}, is {new}")
        state = self._unpack(header, arrays, state_class)
        # By name: commands that only look for a checkpoint need none of what trains.
        if hasattr(state, "check"):
            with self._whole():
                state.check()
        return header["round"], state

    def _unpack(
        self,
        header: Mapping[str, Json],
        arrays: Mapping[str, np.ndarray],
        state_class: type[State],
    ) -> State:
        with self._whole():
            values = unpack(header["state"], arrays)
            name = header["state"]["class"]
        if name != state_class.__name__:
            self._refuse_version(f"another version of cfl-flower's {name}")
        # Within a tuple the dataclass, which has none, follows these rules of types.
        only: Any = types.GenericAlias(tuple, (state_class,))
        adapter: TypeAdapter[tuple[State]] = TypeAdapter(only, config=TYPES)
        with self._whole():
            try:
                (state,) = adapter.validate_python((values,))
            except ValidationError as error:
                problem = error.errors()[0]
                place = ".".join(map(str, problem["loc"][1:]))
                if problem["type"] in OTHER_FIELDS:
                    self._refuse_version(f"another version of cfl-flower's {place}")
                raise ValueError(f"{place}: {problem['msg']}") from error
            if header["state_sha256"] != _digest(header["state"]):
                raise ValueError("the state is not that which was saved")
        return state

    def _read_arrays(self, header: Mapping[str, Json]) -> dict[str, np.ndarray]:
        with self._whole("arrays"):
            # A name, not a path: no file outside of the folder is read.
            data = (self.folder / Path(header["arrays"]).name).read_bytes()
            if hashlib.sha256(data).hexdigest() != header["sha256"]:
                raise ValueError("the arrays are not those that were saved")
            # Copies: what is loaded is not to be changed in place.
            small = {name: array.copy() for name, array in load(data).items()}
            return small | _read_large(self.folder, header["large"])

    def read_header(self) -> dict[str, Json]:
        """Read what names all else, or raise the `ConfigError` of another format."""
        with self._whole():
            header: dict[str, Json] = json.loads(self._header.read_text())
            if header.get("format", 1) != FORMAT:
                self._refuse_version("another version of cfl-flower")
            for key, kind in (("round", int), ("config", dict), ("state", dict)):
                if type(header[key]) is not kind:
                    raise TypeError(f"{key} is not what it should be")
        return header

    @contextmanager
    def _whole(self, part: str = "checkpoint.json") -> Iterator[None]:
        """Turn what a torn checkpoint makes a reader raise into a `CheckpointError`."""
        try:
            yield
        except TORN as error:
            why = one_line(f"{part}: {type(error).__name__}: {error}")
            raise self._refusal(f"is torn ({why})") from error

    def _refuse_version(self, version: str) -> NoReturn:
        raise ConfigError(
            f"checkpoint {self.folder} was written by {version} and cannot be resumed; "
            "start anew in another output_dir"
        )

    def _refusal(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"checkpoint {self.folder} {what}; use the run's own settings, or another "
            "output_dir"
        )
