"""The private name of Hydra's stands in one file, and does what overrides need.

It holds with the locked version of Hydra, which is the newest, and with the oldest that
pyproject.toml admits.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra.errors import ConfigCompositionException
from omegaconf import DictConfig, OmegaConf

from cfl_flower.config.overrides import apply_override, parse

ROOT = Path(__file__).parents[3]


def test_one_file_uses_private_names() -> None:
    paths = [
        p
        for name in ("cfl_flower", "simulations")
        for p in ROOT.glob(f"{name}/**/*.py")
    ]
    found = [path.name for path in paths if "hydra._internal" in path.read_text()]
    assert found == ["overrides.py"]


@pytest.fixture
def settings() -> DictConfig:
    found = OmegaConf.create({"a": 1, "b": {"c": [2], "d": None}})
    OmegaConf.set_struct(found, True)
    return found


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("a=3", {"a": 3, "b": {"c": [2], "d": None}}),
        ("b.c=[4,5]", {"a": 1, "b": {"c": [4, 5], "d": None}}),
        ("b.d=${a}", {"a": 1, "b": {"c": [2], "d": 1}}),
        ("+b.e=6", {"a": 1, "b": {"c": [2], "d": None, "e": 6}}),
        ("++a=7", {"a": 7, "b": {"c": [2], "d": None}}),
        ("~b.c", {"a": 1, "b": {"d": None}}),
    ],
)
def test_an_override_is_applied(
    override: str, expected: dict[str, object], settings: DictConfig
) -> None:
    apply_override(*parse([override]), settings)
    assert OmegaConf.to_container(settings, resolve=True) == expected


@pytest.mark.parametrize(
    ("override", "said"),
    [("e=3", "Could not override 'e'"), ("+a=3", "already at 'a'"), ("~e", "'e' does")],
)
def test_what_cannot_be_applied_is_told_in_words_that_are_read(
    override: str, said: str, settings: DictConfig
) -> None:
    with pytest.raises(ConfigCompositionException, match=said):
        apply_override(*parse([override]), settings)
