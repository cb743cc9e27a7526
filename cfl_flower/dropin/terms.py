"""What a user says of a method: FedAvg's arguments, and the method's own settings.

``seed`` is of the server's draws, ``reseeded`` gives first models that differ (FeSEM),
``concepts`` the clusters of nodes in a round (Oracle), and ``checkpoint`` is a folder
in which the state is saved after every round.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias, cast

from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAvg
from pydantic import Field

from cfl_flower.config.compose import compose_config
from cfl_flower.engine.method import ClusteredStrategy
from cfl_flower.errors import ConfigError
from cfl_flower.settings import Fraction, Natural, checked, known_names, require

Reseeded: TypeAlias = Callable[[int], ArrayRecord]
"""Returns the app's initial arrays with another seed."""

Concepts: TypeAlias = Callable[[int], Mapping[int, int]]
"""Returns the cluster of each node in a round."""

PLAIN = {
    "migration": False,
    "tested": "last",
    "form": "original",
    "fine_tuning": 0,
    "label_shares": False,
    "omega": "parallel",
    "refresh": "never",
}
"""Settings that would need our own client."""

BOUNDS = {
    "fraction_train": Annotated[float, Field(gt=0, le=1)],
    "fraction_evaluate": Fraction,
}
"""Of FedAvg's arguments, what their types do not say."""

REPRESENTATIONS = ("label_histogram", "embedding")
"""What mods report of data."""


class Terms(FedAvg):
    """FedAvg's arguments, and a method's."""

    method: ClassVar[type[ClusteredStrategy]]

    @checked
    def __init__(
        self,
        *args: Any,
        seed: Natural = 0,
        reseeded: Reseeded | None = None,
        concepts: Concepts | None = None,
        checkpoint: str | Path | None = None,
        **options: Any,
    ) -> None:
        own = {each.name for each in fields(cast(Any, self.method.Settings))}
        flower = inspect.signature(FedAvg).parameters.keys()
        for name in options.keys() - own - flower:
            known = known_names(name, sorted(own | flower))
            raise ConfigError(f"{type(self).__name__}: {name} is no setting; {known}")
        usual = {name: options.pop(name) for name in flower & options.keys()}
        checked(FedAvg.__init__, **BOUNDS)(self, *args, **usual)
        for name in own & PLAIN.keys():
            value = options.setdefault(name, PLAIN[name])
            allowed = f"{PLAIN[name]} with a plain ClientApp"
            require(value == PLAIN[name], name, value, allowed)
        self.settings = self._read(options)
        self.seed = seed
        self.reseeded = reseeded
        self.concepts = concepts
        self.checkpoint = checkpoint

    def _read(self, options: dict[str, Any]) -> Any:
        """Return the method's settings, of which one may be chosen by its name."""
        settings: Any = self.method.Settings
        self.reports = is_dataclass(getattr(settings(), "representation", None))
        """Whether nodes report what represents their data, which mods do."""
        kind = options.get("representation")
        if not self.reports or kind is None:
            return settings(**options)
        allowed = " or ".join(REPRESENTATIONS)
        require(kind in REPRESENTATIONS, "representation", kind, allowed)
        chosen = [f"strategy={self.method.__name__.lower()}"]
        chosen.append(f"strategy/representation={kind}")
        found: Any = compose_config(chosen).strategy.representation
        if found.by_model:
            # The app's initial arrays are the shared model as they are.
            found = replace(found, shared=replace(found.shared, samples=0))
        return settings(**{**options, "representation": found})
