"""The methods that others are measured by, and which of their runs is a reference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cfl_flower.errors import ConfigError
from cfl_flower.runs.reading import MAY_DIFFER
from cfl_flower.settings import require
from cfl_flower.types import Json

REFERENCE_METHOD = "fedavg"
"""The single global model, which other methods are timed against."""

REFERENCES = (REFERENCE_METHOD, "fedavg_ft", "fedavg_ls", "local")
"""References that a method should beat, in the order of all pages."""

BOUND = "oracle"
"""The upper bound: clusters by the true concepts."""


def find_reference_runs(
    configs: Sequence[Mapping[str, Json]], method: str = REFERENCE_METHOD
) -> list[int | None]:
    """Return the index of each run's reference: a method's of its seed and settings.

    All settings outside of `strategy` that affect numbers are equal. Where several such
    runs of the method differ in their local training, that is equal, too. A run of the
    method is its own reference. Where this leaves a choice, there is no reference. The
    configurations are resolved ones.

    Examples
    --------
    >>> one, two = ({"name": "fedavg", "local": {"epochs": e}} for e in (1, 5))
    >>> other = {"name": "ifca", "local": {"epochs": 5}}
    >>> find_reference_runs([{"strategy": s, "seed": 0} for s in (one, two, other)])
    [0, 1, 1]
    >>> seeds = {"strategy": one, "seed": 0}, {"strategy": other, "seed": 1}
    >>> find_reference_runs(seeds)
    [0, None]
    """
    settings = [_settings_outside_the_method(config) for config in configs]
    found = []
    for index, config in enumerate(configs):
        candidates = [
            other
            for other, each in enumerate(configs)
            if each["strategy"]["name"] == method and settings[other] == settings[index]
        ]
        own = index in candidates
        found.append(index if own else _choose(config, candidates, configs))
    return found


def require_reference(configs: Sequence[Mapping[str, Json]], method: str) -> None:
    """Refuse a reference that no other method of the runs can be compared with.

    Raises `ConfigError`. The configurations are resolved ones. FedAvg may be absent.
    """
    if method == REFERENCE_METHOD:
        return
    names = list(dict.fromkeys(str(each["strategy"]["name"]) for each in configs))
    require(method in names, "reference", method, f"one of {', '.join(names)}")
    found = enumerate(find_reference_runs(configs, method))
    led = any(place not in (None, index) for index, place in found)
    if len(names) > 1 and not led:
        raise ConfigError(
            f"reference={method} is not one run for each seed: settings of {method} "
            "are swept; compare with one value of each"
        )


def _choose(
    config: Mapping[str, Json],
    candidates: list[int],
    configs: Sequence[Mapping[str, Json]],
) -> int | None:
    """Return the only candidate, or the one with the same local training."""
    if not _are_alike(candidates, configs):
        local = config["strategy"].get("local")
        candidates = [c for c in candidates if configs[c]["strategy"]["local"] == local]
    return candidates[0] if _are_alike(candidates, configs) else None


def _are_alike(candidates: list[int], configs: Sequence[Mapping[str, Json]]) -> bool:
    """Return whether there are candidates, all with the same settings of the method."""
    methods = [configs[candidate]["strategy"] for candidate in candidates]
    return bool(methods) and all(method == methods[0] for method in methods)


def _settings_outside_the_method(config: Mapping[str, Json]) -> dict[str, Json]:
    # A run of fewer rounds ends at another accuracy.
    ignored = (MAY_DIFFER | {"strategy"}) - {"rounds"}
    found = {key: value for key, value in config.items() if key not in ignored}
    # Means over tested rounds are of other rounds.
    return found | {"tested": config.get("system", {}).get("evaluate_every")}
