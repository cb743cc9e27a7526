"""Which run of the single global model another run is timed against."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cfl_flower.runs.differences import MAY_DIFFER
from cfl_flower.types import Json

MARK = "fedavg"
"""The single global model, which others are timed against."""


def find_marks(configs: Sequence[Mapping[str, Json]]) -> list[int | None]:
    """Return the place of each run's mark: fedavg of its seed, with its settings.

    All settings outside of `strategy` are equal that change a number. Where several
    such runs of fedavg differ in their local training, that is equal, too. A run of
    fedavg is its own mark. What is not settled so has no mark, rather than any.

    Parameters
    ----------
    configs : sequence of mappings
        The resolved configuration of each run.

    Examples
    --------
    >>> one, two = ({"name": "fedavg", "local": {"epochs": e}} for e in (1, 5))
    >>> other = {"name": "ifca", "local": {"epochs": 5}}
    >>> find_marks([{"strategy": s, "seed": 0} for s in (one, two, other)])
    [0, 1, 1]
    >>> find_marks([{"strategy": one, "seed": 0}, {"strategy": other, "seed": 1}])
    [0, None]
    """
    surroundings = [_surroundings(config) for config in configs]
    found = []
    for place, config in enumerate(configs):
        near = [
            other
            for other, each in enumerate(configs)
            if each["strategy"]["name"] == MARK
            and surroundings[other] == surroundings[place]
        ]
        found.append(place if place in near else _choose(config, near, configs))
    return found


def _choose(
    config: Mapping[str, Json], near: list[int], configs: Sequence[Mapping[str, Json]]
) -> int | None:
    """Return the only candidate, or the one with the same local training."""
    if not _are_one(near, configs):
        local = config["strategy"].get("local")
        near = [each for each in near if configs[each]["strategy"]["local"] == local]
    return near[0] if _are_one(near, configs) else None


def _are_one(places: list[int], configs: Sequence[Mapping[str, Json]]) -> bool:
    """Return whether there are candidates, which repeat the very same method."""
    methods = [configs[place]["strategy"] for place in places]
    return bool(methods) and all(method == methods[0] for method in methods)


def _surroundings(config: Mapping[str, Json]) -> dict[str, Json]:
    """Return what is set outside of the method, with an effect on a run's numbers."""
    # A run of fewer rounds ends at another accuracy.
    ignored = (MAY_DIFFER | {"strategy"}) - {"rounds"}
    return {key: value for key, value in config.items() if key not in ignored}
