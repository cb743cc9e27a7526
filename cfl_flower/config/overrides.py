"""Hydra's grammar: from a line of overrides to the overrides of every run."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from itertools import product
from pathlib import Path
from threading import RLock

from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException
from omegaconf import DictConfig

from cfl_flower.environment.plugins import CONF, conf_folders
from cfl_flower.errors import ConfigError, refused

FOLDER = "output_dir"
"""The setting of a run's folder."""

OVERRIDES = "overrides"
"""The key of Flower's run-config that carries overrides."""

COMPOSING = RLock()
"""Held by the one thread that uses Hydra, whose state is that of the process."""


@contextmanager
def hydra_here() -> Iterator[None]:
    """Let Hydra find this project's configuration, in one thread at a time.

    A program of the user's may be one with Hydra itself: its state is put back.
    """
    with COMPOSING:
        outer = GlobalHydra.instance().hydra
        GlobalHydra.instance().clear()
        try:
            with initialize_config_dir(str(CONF), version_base="1.3"):
                yield
        finally:
            GlobalHydra.instance().hydra = outer


def split(text: str) -> list[str]:
    """Split a line as a shell would, or raise `ConfigError`."""
    with refused(f"overrides {text!r} cannot be read", "close the quotation"):
        return shlex.split(text)


def parse(overrides: Iterable[str]) -> list[Override]:
    """Read overrides, or raise `ConfigError` for one that cannot be read."""
    return list(map(_read, overrides))


@lru_cache(maxsize=1024)
def _read(override: str) -> Override:
    """Read one override; once, because each step of a command asks for it."""
    with hydra_here():
        loader = GlobalHydra.instance().config_loader()
        parser = OverridesParser.create(config_loader=loader)
        try:
            (found,) = parser.parse_overrides([override])
        except HydraException as error:
            remedy = (
                "in quotes where the value has odd characters, as in "
                "\"dataset.file='a[1].csv'\""
                if "=" in override
                else "without spaces around the equals sign"
            )
            said = f"{override!r} cannot be read; use key=value, {remedy}"
            raise ConfigError(said) from error
    return found


def apply_override(override: Override, settings: DictConfig) -> None:
    """Set, add or delete what an override says, or raise as Hydra does.

    Hydra has no public function for it. No other line uses a private name of Hydra's.
    """
    ConfigLoaderImpl._apply_overrides_to_config([override], settings)


def swept_keys(overrides: Sequence[str]) -> set[str]:
    """Return the keys that Hydra's grammar gives more than one value."""
    parsed = parse(overrides)
    return {item.get_key_element() for item in parsed if item.is_sweep_override()}


def refuse_nothing(overrides: Sequence[str]) -> None:
    """Raise a `ConfigError` for a sweep over no value: `glob` may match none."""
    for item in parse(overrides):
        _one_by_one(item)


def _one_by_one(item: Override) -> list[str]:
    """Return an override for each value of a sweep, or raise `ConfigError`."""
    line = item.input_line or ""
    if not item.is_sweep_override():
        return [line]
    if item.is_interval_sweep():
        fault = f"{line} names no values"
        remedy = "list some, as in 0.01,0.1, or search as docs/how-to/run.md does"
        raise ConfigError(f"{fault}; {remedy}")
    try:
        key = item.get_key_element()
        found = [f"{key}={value}" for value in item.sweep_string_iterator()]
    except HydraException as error:
        raise ConfigError(f"{line}: {first_line(error)}") from error
    if not found:
        fault = f"{line} matches nothing"
        remedy = f"see conf/{item.key_or_group} for what there is, or name values"
        raise ConfigError(f"{fault}; {remedy}")
    return found


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """Expand Hydra's sweep grammar into one list of overrides per run.

    Runs of one explicit output_dir go to folders below it, named by what they sweep.
    Raises `ConfigError` if an override cannot be read or names no values, or a run
    occurs twice.

    Examples
    --------
    >>> expand(["seed=0,1", "rounds=5", "output_dir=/tmp/a"])[1]
    ['seed=1', 'rounds=5', 'output_dir=/tmp/a/seed1']
    """
    swept = swept_keys(overrides)
    if not swept:
        return [list(overrides)]
    last = {item.get_key_element(): item for item in parse(overrides)}
    jobs = list(map(list, product(*map(_one_by_one, last.values()))))
    keys = ", ".join(sorted(swept))
    if len(set(map(tuple, jobs))) < len(jobs):
        raise ConfigError(f"{keys}: the same run occurs twice; name each value once")
    found = [own_folder(job, swept) for job in jobs]
    # A run's own folder is what differs from the job as it was asked for.
    pairs = zip(found, jobs, strict=True)
    places = Counter(each for own, job in pairs for each in {*own} - {*job})
    if twice := [place for place, count in places.items() if count > 1]:
        told = f"two runs would have {twice[0]}; run them one by one"
        raise ConfigError(f"{keys}: {told}")
    return found


def own_folder(job: Sequence[str], swept: set[str]) -> list[str]:
    """Add a run of a sweep's own folder to an explicit output_dir."""
    words = []
    place = None
    for item in parse(job):
        key = item.key_or_group
        if key == FOLDER:
            place = item
        elif item.get_key_element() in swept:
            name = "" if key == "strategy" else key
            words.append(name + item.get_value_element_as_str())
    if place is None or not words or not place.value():
        return list(job)
    folder = "-".join(re.sub(r"[^\w.-]", "_", word) for word in words)
    own = f"{place.get_key_element()}={quoted(f'{place.value()}/{folder}')}"
    return [own if item == place.input_line else item for item in job]


def with_folder(
    overrides: Sequence[str], word: str = "sweep", always: bool = False
) -> list[str]:
    """Add a common output_dir to a sweep without one, or ``always``.

    The default folders of its runs would differ by strategy, drift and seed only.
    """
    placed = any(item.key_or_group == FOLDER for item in parse(overrides))
    if placed or not (always or swept_keys(overrides)):
        return list(overrides)
    path = Path(f"outputs/{datetime.now():%Y-%m-%d/%H-%M-%S}-{word}").absolute()
    return [*overrides, f"output_dir={quoted(str(path))}"]


def quoted(text: str) -> str:
    """Quote a value for Hydra's grammar; a plain path stays as it is.

    Examples
    --------
    >>> quoted("/tmp/a run"), quoted("/tmp/a-run")
    ("'/tmp/a run'", '/tmp/a-run')
    """
    if re.fullmatch(r"/[A-Za-z0-9_./-]+", text):
        return text
    return QuotedString(text, Quote.single).with_quotes()


def search_path() -> str:
    """Return the override by which Hydra finds the user's own options."""
    own = ",".join(quoted(f"file://{folder}") for folder in conf_folders()[1:])
    return f"hydra.searchpath=[{own}]"


def first_line(error: BaseException) -> str:
    """Return the first non-empty line of a message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
