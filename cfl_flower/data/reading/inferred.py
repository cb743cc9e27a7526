"""Datasets of one's own, of which the files tell the shape and the classes."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from cfl_flower.data.reading.agreement import in_agreed_order, rescaled
from cfl_flower.data.reading.doubts import (
    dates,
    far_off,
    no_inputs,
    other_scale,
    seen_before,
)
from cfl_flower.data.reading.files import FileDataset, TestFraction, held_out
from cfl_flower.data.reading.names import NUMBER, WHOLE, numbered_names, spelling
from cfl_flower.data.reading.pool import PARTS, Arrays, Parts, Pool, divide, pools
from cfl_flower.data.reading.scaling import (
    Input,
    Scaling,
    check_scaling,
    described,
    first_inputs,
    normalised,
    refuse_two_scales,
    standardised_by_training,
    with_inputs,
)
from cfl_flower.errors import ConfigError
from cfl_flower.settings import Count, Natural, require, settings

OWN_FILE = "set dataset.file, and data_dir=. if it is in the current folder"
"""Remedy for a file that is missing."""

FOUND = ("shape", "classes", "names", "agreed")
"""The settings that the files tell where they are not set."""

LABELS_AT_MOST = 100
"""More labels than this must be fewer than half of the samples; else it is a number
that was meant to be predicted."""

FRACTIONS_AT_MOST = 20
"""Labels that are numbers, not all whole, and more than this are no classes either."""

BESIDE = ("names", "notes", "inputs")
"""Arrays that have no row for each sample."""

SHOWN = 5
"""Classes that a description names."""


@settings("dataset")
class InferredDataset(FileDataset):
    """A dataset that is described by its files, unless its settings say otherwise.

    What the files tell is filled in before a run (`complete`) and kept in the run's
    config.yaml, so that nothing but training needs the files again.
    """

    shape: tuple[Count, ...] = ()
    """Shape of one input, channels first; [] for that of the files."""
    classes: Natural = 0
    """Number of labels, L; 0 for as many as the files or `names` have."""
    names: tuple[str, ...] = ()
    """Names of the classes in the order of the labels; [] for those of the files, in
    the order of the alphabet or, if all are integers, of their size."""
    test_fraction: TestFraction = 0.2
    """Share of each owner's samples, or without owners of each label's, that is held
    out for testing where the files have no test set."""
    normalise: Scaling | None = None
    """The mean and deviation in (x - mean) / deviation, two numbers, or two lists with
    one for each channel; pixels count from 0 to 1."""
    standardise: Literal["clients", "pooled", False] = False
    """Shift and scale each input to mean 0 and deviation 1: of the training samples
    that the clients have when the run begins, by one round of sums (clients), or of the
    whole training set, which no federation has (pooled)."""
    agreed: tuple[Input, ...] = ()
    """What each input is, and how it is filled and scaled; [] for what the clients
    agree on before the first round."""
    periods = 1
    """Equal parts of the time, of which the first tells means and deviations."""

    def __post_init__(self) -> None:
        check_scaling(self.normalise, bool(self.standardise), self.shape)
        ok = len({*map(spelling, self.names)}) == len(self.names)
        require(ok, "dataset.names", list(self.names), "each name once")
        count = len(self.names)
        ok = self.classes in (0, count) if count else self.classes != 1
        allowed = f"0 or {count}, as dataset.names has" if count else "0 or at least 2"
        require(ok, "dataset.classes", self.classes, allowed)

    @property
    def called(self) -> str:
        """What errors call it: its name, and perhaps which it is."""
        return self.name

    @property
    def described(self) -> str:
        """What was found in its files, once it is complete."""
        shape = "x".join(map(str, self.shape))
        names = ", ".join(self.names[:SHOWN])
        more = ", …" if len(self.names) > SHOWN else ""
        classes = f"{self.classes} classes" + (f" ({names}{more})" if names else "")
        return f"{self.called} with {shape} inputs and {classes}"

    @abstractmethod
    def read(self, data_dir: str) -> Parts:
        """Read the training set and, if there is one, the test set.

        Returns
        -------
        Parts
            Of each part ``x`` (n, *shape), and with the shape (n,): ``y``, names or
            integers; perhaps ``owner``, the same; perhaps ``time`` and ``row``, the
            place in the part's files, integers.

        Raises `ConfigError`.
        """

    def complete(self, data_dir: str) -> Self:
        """Return the settings with what the files tell, or raise `ConfigError`."""
        if self.shape and self.classes:
            self.check(data_dir)
            return self
        train = self.stored(data_dir)["train"]
        names = self.names or tuple(train["names"].tolist())
        # A device may have one.
        if len(names) < 2:
            only = f"{self.called} has samples of one class only: {', '.join(names)}"
            raise ConfigError(f"{only}; add samples of another, or take another label")
        counted = names == tuple(map(str, range(len(names))))
        return replace(
            self,
            shape=self.shape or train["x"].shape[1:],
            classes=self.classes or len(names),
            names=() if counted or (self.classes and not self.names) else names,
        )

    def load(self, data_dir: str) -> tuple[Pool, Pool]:
        """Return the samples for training and those for testing."""
        complete = self.complete(data_dir)
        parts = self.stored(data_dir)
        if self.agreed:
            parts = in_agreed_order(parts, self.agreed, self.called)
        found = parts["train"]["x"].shape[1:]
        allowed = f"{list(found)} as in {self.called}, or []"
        require(found == complete.shape, "dataset.shape", list(complete.shape), allowed)
        number = complete.numbers(parts["train"]["names"].tolist())
        parts = {k: {**of, "y": number[of["y"]]} for k, of in parts.items()}
        scaled = self.standardise == "clients" and not self.lacks_sums
        return pools(rescaled(parts, self.agreed) if scaled else parts)

    def numbers(self, found: list[str]) -> NDArray[np.int64]:
        """Return the labels of names of classes, or raise `ConfigError`."""
        known = [*map(spelling, self.names or map(str, range(self.classes)))]
        own = [*map(spelling, found)]
        if others := sorted(set(own) - set(known)):
            key = "dataset.names" if self.names else "dataset.classes"
            raise ConfigError(
                f"{self.called} has samples of class {others[0]!r}, which is none of "
                f"{known[0]} to {known[-1]}; correct {key} or leave it out"
            )
        return np.asarray([known.index(name) for name in own], np.int64)

    def notes(self, data_dir: str) -> list[str]:
        """Return what the files hold that is not read as it is, a line each."""
        parts = self.stored(data_dir).values()
        return [*dict.fromkeys(str(n) for of in parts for n in of.get("notes", []))]

    def preprocessing(self, data_dir: str) -> dict[str, Any] | None:
        """Return what makes inputs of a row's values; None where there are no rows."""
        return None

    def recipe(self) -> tuple[object, ...]:
        """Return what the arrays depend on; labels are named when they are loaded."""
        given = asdict(self)
        return tuple(value for key, value in given.items() if key not in FOUND)

    def arrays(self, data_dir: str) -> Parts:
        """Read the files, divide them where they are not, and scale the inputs."""
        read = dict(self.read(data_dir))
        for part, arrays in read.items():
            self._require_samples(part, arrays)
        inputs = [arrays["x"] for arrays in read.values()]
        named = {f"its {part} part": x for part, x in zip(read, inputs, strict=True)}
        refuse_two_scales(self.called, named)
        shapes = [x.shape[1:] for x in inputs]
        if len(set(shapes)) > 1:
            kinds = f" in {inputs[0].dtype} and {inputs[1].dtype}"
            differ = kinds if inputs[0].dtype != inputs[1].dtype else ""
            raise ConfigError(
                f"{self.called} has inputs of shape {shapes[0]} for training, but of "
                f"shape {shapes[1]} for testing{differ}; they must be the same"
            )
        found = {k: {"row": np.arange(len(of["y"])), **of} for k, of in read.items()}
        parts = self.divided(coded(found, self.called))
        told = self._strange_classes(parts)
        train = parts["train"]
        columns = described(parts)
        told += [*no_inputs(train, columns), *dates(columns)]
        if self.standardise:
            told += far_off(first_inputs(parts, self.periods), columns)
        if "test" in read:
            both = train["x"], parts["test"]["x"]
            # The columns of a table have scales of their own.
            told += [] if columns else other_scale(*both)
            told += seen_before(*both)
        told = [*train.get("notes", ()), *(f"{self.called}: {each}" for each in told)]
        train = {**train, "notes": np.asarray(told, str)}
        parts = self.scaled({**parts, "train": train})
        # Scaled later, in float64 for inputs such as seconds since 1970.
        later = self.standardise == "clients"
        return parts if later else with_inputs(parts, _as_inputs)

    @property
    def lacks_sums(self) -> bool:
        """Whether clients have not agreed yet on means and deviations."""
        known = all("mean" in each for each in self.agreed or [Input()])
        return self.standardise == "clients" and not known

    def scaled(self, parts: Parts) -> Parts:
        """Return the parts with their inputs shifted and scaled."""
        if self.normalise is not None:
            shape = parts["train"]["x"].shape[1:]
            check_scaling(self.normalise, bool(self.standardise), shape)
            parts = normalised(parts, self.normalise)
        pooled = self.standardise == "pooled"
        return standardised_by_training(parts, self.periods) if pooled else parts

    def unscaled(self, data_dir: str) -> list[Input]:
        """Return what each input is, of what is agreed or else of the files."""
        known = list(self.agreed)
        # Those of devices are not here.
        if not known and not self.absent(data_dir):
            known = described(self.stored(data_dir))
        return known or [Input()] * math.prod(self.shape)

    def _require_samples(self, part: str, arrays: Arrays) -> None:
        x = arrays["x"]
        y = arrays["y"]
        if not x.size or y.shape != x.shape[:1] or x.ndim < 2:
            raise ConfigError(
                f"{self.called} has inputs of shape {x.shape} and labels of shape "
                f"{y.shape} for its {part} part; it needs (n, ...) and (n,), n above 0"
                f"{'; save y.argmax(axis=1)' if y.ndim == 2 else ''}"
            )
        for name in ("owner", "time"):
            found = arrays.get(name, y).shape
            if found != y.shape:
                raise ConfigError(
                    f"{self.called} has {name} of shape {found} and labels of shape "
                    f"{y.shape} for its {part} part; each sample needs one"
                )

    def _strange_classes(self, parts: Parts) -> list[str]:
        """Return a line if some classes are for testing alone.

        Raises `ConfigError` if no class is in both parts.
        """
        names = parts["train"]["names"]
        learnt, tested = (np.unique(parts[part]["y"]) for part in PARTS)
        strange = tested[~np.isin(tested, learnt)]
        if len(strange) == len(tested):
            ours, others = (", ".join(names[y][:SHOWN]) for y in (learnt, tested))
            raise ConfigError(
                f"{self.called} has no class in both parts: {ours} for training, but "
                f"{others} for testing; name the same classes alike in both"
            )
        if not len(strange):
            return []
        y = parts["test"]["y"]
        told = "classes in the test set without training samples"
        shown = ", ".join(names[strange][:SHOWN])
        return [f"{told}: {shown} ({np.isin(y, strange).sum()} of {len(y)} samples)"]

    def require_below(self, data_dir: str) -> None:
        """Require that a device's settings name its own files, and what it can have."""
        super().require_below(data_dir)
        allowed = "clients or false on a device, which has its own samples alone"
        pooled = self.standardise == "pooled"
        require(not pooled, "dataset.standardise", "pooled", allowed)

    def divided(self, parts: Parts) -> Parts:
        """Return the samples for training and testing, held out if no file has them."""
        if "test" in parts:
            return parts
        arrays = dict(parts["train"])
        beside = {key: arrays.pop(key) for key in BESIDE if key in arrays}
        test = held_out(arrays.get("owner", arrays["y"]), self.test_fraction)
        if not test.any():
            each = "owner" if "owner" in arrays else "class"
            raise ConfigError(
                f"{self.called} has one sample of each {each}, which leaves none for "
                "testing; add samples, or bring a test set of its own"
            )
        divided = divide(arrays, test)
        return {part: {**of, **beside} for part, of in divided.items()}


def noted(parts: Parts, note: str) -> Parts:
    """Return parts with a note of what is not read as it is, beside the samples."""
    return {**parts, "train": {**parts["train"], "notes": np.asarray([note])}}


def coded(parts: Mapping[str, Arrays], name: str) -> Parts:
    """Give labels and owners, which have names, their numbers over all parts.

    The names of the classes stand beside, as ``names``. Raises `ConfigError` if the
    labels are no classes.
    """
    known = [arrays["y"] for arrays in parts.values()]
    _require_classes(np.concatenate(known).astype(str), name)
    names, labels = numbered_names(known, f"{name}: the classes")
    found: dict[str, dict[str, NDArray[Any]]] = {
        part: {**arrays, "y": own, "names": names}
        for (part, arrays), own in zip(parts.items(), labels, strict=True)
    }
    if all("owner" in arrays for arrays in parts.values()):
        who = [arrays["owner"] for arrays in parts.values()]
        _, owners = numbered_names(who, f"{name}: the owners")
        for arrays, own in zip(found.values(), owners, strict=True):
            arrays["owner"] = own
    return found


def _require_classes(labels: NDArray[np.str_], name: str) -> None:
    """Raise `ConfigError` for labels that are as many as numbers to predict are."""
    names = np.unique(labels).tolist()
    most = max(LABELS_AT_MOST, len(labels) / 2)
    numbers = all(NUMBER.fullmatch(each.strip()) for each in names)
    if numbers and not all(WHOLE.fullmatch(each.strip()) for each in names):
        most = FRACTIONS_AT_MOST
    if len(names) > most:
        raise ConfigError(
            f"{name} has {len(names)} different labels in {len(labels)} samples, as "
            f"{names[0]!r:.40}; regression is not supported: set dataset.label to "
            "classes, or divide its numbers into some"
        )


def _as_inputs(x: NDArray[Any]) -> NDArray[Any]:
    """Return inputs as bytes or float32."""
    return x if x.dtype == np.uint8 else x.astype(np.float32, copy=False)
