"""Every option and every experiment resolves to the settings that were published.

`resolved.json` has a line for each case: its overrides, the case that it builds on, and
the settings, by their dotted keys, in which it differs from that.

    python -m tests.cfl_flower.config.test_resolved

writes the file anew, after a change of a default that is meant.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from cfl_flower.building import build
from cfl_flower.config.compose import build_settings
from cfl_flower.config.composition import compose_plain
from cfl_flower.config.options import GROUPS, list_options
from cfl_flower.config.overrides import CONF
from tests.conftest import WHOLE

FIXTURE = Path(__file__).with_name("resolved.json")
GONE = "(no setting)"


def flat(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    """Yield every value in settings, those that no file names included."""
    inner = value
    if is_dataclass(value):
        yield f"{key}._target_", f"{type(value).__module__}.{type(value).__qualname__}"
        inner = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(inner, Mapping) and inner:
        for name, each in inner.items():
            yield from flat(each, f"{key}.{name}".strip("."))
    elif not is_dataclass(value):
        yield key, list(value) if isinstance(value, tuple) else value


@cache
def resolve(case: str) -> dict[str, Any]:
    """Return a run's settings as they are declared; no file of a dataset is needed."""
    composition = compose_plain(case.split())
    plain, basics, built = build_settings(composition)
    assert build(plain) == {**vars(basics), **built}
    chosen = {
        key: value for key, value in composition.choices.items() if "hydra" not in key
    }
    return dict(flat({"": basics, **built, "choices": chosen}, ""))


def difference(case: str, base: str) -> dict[str, Any]:
    before = resolve(base) if case else {}
    found = resolve(case)
    keys = before.keys() | found.keys()
    if len(case.split()) == 2 and base.startswith("strategy"):
        # The rest is in the case of the experiment alone.
        keys = {key for key in keys if key.startswith("strategy")}
    return {
        key: found.get(key, GONE)
        for key in sorted(keys)
        # A method may get settings of its own class without other values, and the
        # environment says where data are.
        if key not in ("strategy._target_", "data_dir")
        and found.get(key, GONE) != before.get(key, GONE)
    }


def methods_of(experiment: str) -> list[str]:
    """Return the methods for which an experiment, or one it builds on, has settings."""
    node = yaml.safe_load((CONF / f"experiment/{experiment}.yaml").read_text())
    found = set(node.get("options", {}).get("strategy", {}))
    for each in node.get("defaults", []):
        if isinstance(each, str) and each != "_self_":
            found.update(methods_of(each.removeprefix("/experiment/")))
    return sorted(found)


def cases() -> Iterator[tuple[str, str]]:
    """Yield every case, and the one that it builds on."""
    yield "", ""
    for group in GROUPS:
        for option in list_options(group):
            # A name must be given on the hub.
            more = " dataset.path=name" if option == "hf" else ""
            base = "strategy=fedavg" if group == "strategy" else ""
            yield f"{group}={option}{more}", base if option != "fedavg" else ""
    for group in ("representation", "trigger", "threshold_learning"):
        for option in list_options(f"strategy/{group}"):
            yield f"strategy/{group}={option}", ""
    for option in list_options("strategy/privacy"):
        yield f"strategy/privacy={option}", ""
    for experiment in list_options("experiment"):
        # Those of CCFL are for asynchronous methods alone.
        methods = ["ccfl"]
        if not experiment.startswith("ccfl"):
            yield f"experiment={experiment}", ""
            methods = methods_of(experiment)
        for method in methods:
            base = "" if method == "ccfl" else f"strategy={method}"
            yield f"experiment={experiment} strategy={method}", base


def write() -> None:
    found = [[case, base, difference(case, base)] for case, base in cases()]
    FIXTURE.write_text("[\n" + ",\n".join(map(json.dumps, found)) + "\n]\n")


SOME = {
    *(f"experiment={paper}" for paper in ("fielding", "flexcfl", "stocfl")),
    *("experiment=ccfl strategy=ccfl", "experiment=fedccfa_table1"),
}


def marks(case: str) -> list[pytest.MarkDecorator]:
    """Let `make test` resolve all options, and some of the experiments."""
    return WHOLE if "experiment=" in case and case not in SOME else []


SAVED = json.loads(FIXTURE.read_text())


@pytest.mark.parametrize(
    ("case", "base", "expected"),
    [
        pytest.param(case, base, expected, marks=marks(case))
        for case, base, expected in SAVED
    ],
    ids=[case or "default" for case, _, _ in SAVED],
)
def test_a_case_resolves_as_before(case, base, expected):
    assert difference(case, base) == expected


def test_every_case_is_saved():
    assert [tuple(each[:2]) for each in SAVED] == list(cases())


if __name__ == "__main__":
    write()
