"""Atomic save, load and resume of a strategy's state.

A checkpoint is a file for each large array, one safetensors file of all others and one
JSON file that names them. The JSON is replaced last and in one step, so that the folder
holds one whole checkpoint at every moment, whenever the process is killed. The name of
a large array's file is the digest of its content: what has not changed since the last
checkpoint is there already, and what several places of a state share is one file.

A state is a dataclass of plain values, arrays, bytes, lists, mappings and further
dataclasses. Each is saved with the name of its class, and restored as the class of that
name in the annotation of its field. A field that was added since, with a default, may
be missing; one that means something else now needs another name, or `FORMAT`.
"""

from __future__ import annotations

import hashlib
import json
import types
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
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


class OtherVersionError(Exception):
    """A saved dataclass is not the one that this code declares."""


def pack(value: Any, arrays: dict[str, np.ndarray], path: str = "") -> Json:
    """Turn a value into JSON, and put its arrays into ``arrays`` under their path.

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
        return {
            "class": type(value).__name__,
            "fields": {
                n: pack(getattr(value, n), arrays, f"{path}.{n}") for n in names
            },
        }
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


def unpack(node: Json, arrays: Mapping[str, np.ndarray], annotation: Any = Any) -> Any:
    """Rebuild what `pack` made.

    The annotation is what is expected; a dataclass is found in it by its name, in
    unions, lists and mappings, too: ``dict[ClientId, Result | Failure]``. Raises
    `OtherVersionError` if it has no such dataclass, or one with other fields, and
    TypeError for any other value that is not of the annotation.
    """
    value = _unpack(node, arrays, annotation)
    if not any(_is_a(value, each) for each in _alternatives(annotation)):
        raise TypeError(f"{value!r:.40} is no {annotation}")
    return value


def _unpack(node: Json, arrays: Mapping[str, np.ndarray], annotation: Any) -> Any:
    if isinstance(node, list):
        inner = _element_type(annotation, Sequence)
        return [unpack(item, arrays, inner) for item in node]
    if not isinstance(node, dict):
        return node
    if "bytes" in node:
        return arrays[node["bytes"]].tobytes()
    if "array" in node:
        return arrays[node["array"]]
    if "fields" in node:
        return _restore_dataclass(node, arrays, annotation)
    inner = _element_type(annotation, Mapping)
    return {key: unpack(value, arrays, inner) for key, value in node["pairs"]}


def _restore_dataclass(
    node: Mapping[str, Json], arrays: Mapping[str, np.ndarray], annotation: Any
) -> Any:
    members: list[Any] = [m for m in _alternatives(annotation) if is_dataclass(m)]
    found = next((each for each in members if each.__name__ == node["class"]), None)
    known = {field.name for field in fields(found)} if found is not None else set()
    if found is None or not node["fields"].keys() <= known:
        raise OtherVersionError(node["class"])
    hints = get_type_hints(found)
    items = node["fields"].items()
    values = {name: unpack(item, arrays, hints[name]) for name, item in items}
    try:
        # An older checkpoint lacks fields that were added since, which have defaults.
        return found(**values)
    except TypeError as error:
        raise OtherVersionError(node["class"]) from error


def _is_a(value: Any, annotation: Any) -> bool:
    """Return whether a value is of an annotation; what it holds was looked at."""
    kind = get_origin(annotation) or annotation
    if kind is Any or not isinstance(kind, type):
        return True  # A Literal, say.
    # Types that JSON does not tell apart.
    others = {float: int, tuple: list}
    return isinstance(value, (kind, others.get(kind, kind)))


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union; of any other type, itself."""
    union = get_origin(annotation) in (Union, types.UnionType)
    return get_args(annotation) if union else (annotation,)


def _element_type(annotation: Any, container: type) -> Any:
    """Return the annotation of a sequence's items, or of a mapping's values."""
    for each in _alternatives(annotation):
        origin = get_origin(each)
        if isinstance(origin, type) and issubclass(origin, container):
            return get_args(each)[-1 if container is Mapping else 0]
    return Any


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
        try:
            with self._whole():
                state: State = unpack(header["state"], arrays, state_class)
                if header["state_sha256"] != _digest(header["state"]):
                    raise ValueError("the state is not that which was saved")
        except OtherVersionError as error:
            self._refuse_version(f"another version of cfl-flower's {error}")
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
