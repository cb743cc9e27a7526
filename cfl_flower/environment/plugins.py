"""Parts from outside of this project: which may be imported, and where settings are.

Settings name classes by their paths, and naming one imports its module. What may be
imported is decided by who runs a command or owns a device, never by a file or a message
that they received:

* this project's packages;
* packages with an entry point of the group ``cfl_flower.plugins``;
* packages in the environment variable ``CFL_PLUGINS``, separated by commas;
* packages that the overrides or configuration files of one's own command name;
* packages that a Flower app of one's own brings along (`add_app`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

from cfl_flower.aliases import HOME
from cfl_flower.errors import ConfigError
from cfl_flower.types import Json

PACKAGES = ("cfl_flower", "strategies", "clients")
"""This project's packages with classes that settings name."""

GROUP = "cfl_flower.plugins"
"""Entry points of installed packages whose classes settings may name."""

ALLOWED = "CFL_PLUGINS"
"""Environment variable: further packages, separated by commas."""

CONFIGURATION = "CFL_CONF"
"""Environment variable: a folder of configuration groups beside this project's."""

MODULE = Path(__file__).resolve().relative_to(HOME)
"""Where in such a folder this module is."""

CONF = HOME / "conf"
"""This project's configuration."""

_named: set[str] = set()
"""Parts that this process' own commands named."""


@cache
def _installed() -> list[str]:
    found = entry_points(group=GROUP)
    return sorted({entry.module.partition(".")[0] for entry in found})


def allowed_packages() -> list[str]:
    """Return the packages that may be imported by name, this project's first."""
    words = os.environ.get(ALLOWED, "").split(",")
    given = filter(None, (word.strip().partition(".")[0] for word in words))
    return list(dict.fromkeys((*PACKAGES, *_installed(), *given, *sorted(_named))))


def allow(settings: Mapping[str, Json]) -> None:
    """Allow the packages that the settings of one's own command name."""
    named = {path.partition(".")[0] for path in targets(settings)}
    _named.update(named.difference(allowed_packages()))


def add_app(folder: Path, *packages: str) -> None:
    """Allow the packages of a Flower app, and find the options in its ``conf``.

    For the modules of an app of one's own, which Flower runs from a copy: whoever lets
    it run there runs its code. In the environment, as Ray's workers inherit that alone.
    """
    known = os.environ.get(ALLOWED)
    os.environ[ALLOWED] = ",".join(filter(None, [known, *packages]))
    if (folder / "conf").is_dir():
        os.environ.setdefault(CONFIGURATION, str(folder / "conf"))


def targets(settings: object) -> Iterator[str]:
    """Yield the paths of classes in settings, however deep they are.

    Examples
    --------
    >>> list(targets({"steps": [{"_target_": "own.Step"}], "client": "clients.A"}))
    ['own.Step', 'clients.A']
    """
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            if key in ("_target_", "client") and isinstance(value, str):
                yield value
            yield from targets(value)
    elif isinstance(settings, list | tuple):
        for each in settings:
            yield from targets(each)


def from_outside(part: object) -> bool:
    """Return whether the class of an object is not one of this project's."""
    return type(part).__module__.partition(".")[0] not in PACKAGES


def conf_folders() -> list[Path]:
    """Return the folders of configuration groups: this project's, then the user's.

    The user's is that of ``CFL_CONF``, or ``conf`` in the current folder. Raises
    `ConfigError` if ``CFL_CONF`` names no folder.
    """
    named = os.environ.get(CONFIGURATION)
    own = Path(named or "conf").expanduser().absolute()
    if named and not own.is_dir():
        fault = f"{CONFIGURATION}={named} is no folder"
        remedy = "name one with groups such as strategy/, or unset it"
        raise ConfigError(f"{fault}; {remedy}")
    return [CONF, own] if own.is_dir() and not _of_this_project(own) else [CONF]


def _of_this_project(conf: Path) -> bool:
    """Tell whether a folder is this project's ``conf``, of this copy or of another.

    Flower runs an app from a copy while its SuperLink stands in a checkout, and an
    installed command may be started in one.
    """
    return conf == CONF or (conf.resolve().parent / MODULE).is_file()


def environment() -> dict[str, str]:
    """Return variables by which a process in another folder finds the same parts."""
    own = ",".join(allowed_packages()[len(PACKAGES) :])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    here = str(Path.cwd())
    found = {}
    for folder in conf_folders()[1:]:
        found[CONFIGURATION] = str(folder)
    if own:
        found[ALLOWED] = own
        paths = [path for path in paths if path not in ("", here)]
        found["PYTHONPATH"] = os.pathsep.join([*paths, here])
    return found
