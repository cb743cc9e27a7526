"""`cfl_flower.strategies`, `.clients`, `.conf` and `.simulations`.

Flower bundles an app's packages by their top-level names, so these lie beside
`cfl_flower`. Below it they are the very same modules: a class is one object, however it
was imported. Whoever has folders of these names can import the modules in them, too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_file_location, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import cast

from cfl_flower.errors import ConfigError

BESIDE = ("strategies", "clients", "simulations", "conf")
"""The packages beside this one."""

IMPORTED = BESIDE[:3]
"""Those that are imported; of a `conf` only the files are read."""

HOME = Path(__file__).resolve().parents[1]
"""The folder in which they lie."""

ALIAS = f"{__package__}."


class AliasFinder(MetaPathFinder, Loader):
    """Finds a module of a package beside this one below this one."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to import an alias; None for any other name."""
        # An app that Flower bundled has no `simulations`: anybody else's is found.
        if name in IMPORTED and (HOME / name).is_dir():
            return _own_package(name)
        real = name.removeprefix(ALIAS)
        if real == name or real.partition(".")[0] not in BESIDE or not find_spec(real):
            return None
        return spec_from_loader(name, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the module under its own name."""
        module = import_module(spec.name.removeprefix(ALIAS))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing but leave the module as it was: it has been executed."""
        module.__spec__ = cast(ModuleSpec, module.__spec__).loader_state


def _own_package(name: str) -> ModuleSpec | None:
    """Return how to import a package beside this one, whoever else has its name."""
    own = HOME / name
    others = [each for folder in sys.path if (each := Path(folder, name)).is_dir()]
    places = [own, *(each for each in others if each.resolve() != own)]
    return spec_from_file_location(
        name, own / "__init__.py", submodule_search_locations=list(map(str, places))
    )


def install() -> None:
    """Let Python find the aliases, before it takes their files for other modules."""
    if not any(isinstance(each, AliasFinder) for each in sys.meta_path):
        sys.meta_path.insert(0, AliasFinder())


def require_own_packages() -> None:
    """Raise `ConfigError` if another package has the name of one beside this one."""
    for name in IMPORTED:
        known = sys.modules.get(name)
        spec = known.__spec__ if known else find_spec(name)
        place = spec.origin if spec else None
        if place is None or Path(place).resolve().parents[1] != HOME:
            raise ConfigError(
                f"{name} is {place or 'a folder'} here, and not cfl-flower's package "
                "of this name; import cfl_flower before it"
            )
