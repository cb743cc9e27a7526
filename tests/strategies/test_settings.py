"""Settings that a method cannot work with are named in one line, before any run."""

from __future__ import annotations

import pytest

from cfl_flower.config.compose import compose_config
from cfl_flower.errors import ConfigError


@pytest.mark.parametrize(
    ("strategy", "overrides", "words"),
    [
        ("auxo", "strategy.split_rounds=[0]", "at least 1"),
        ("auxo", "strategy.smallest=1", "at least 2"),
        ("auxo", "strategy.reward=0", "a number above 0"),
        ("auxo", "strategy.exploration=2", "a number from 0 to 1"),
        ("ccfl", "strategy.c1=0.8", r"strategy\.c1 \+ c2=1.05"),
        ("ccfl", "strategy.amplifiers=[]", r"strategy\.amplifiers="),
        ("ccfl", "strategy.stream=cycles", "stream=cycles is not allowed; use rounds"),
        ("feddrift", "strategy.delta=0", r"strategy\.delta=0 .*above 0"),
        ("flexcfl", "clients=12 clusters=13", "clusters=13 .*at most the 12 clients"),
        ("ifca", "strategy.tested=now", r"strategy\.tested="),
        ("ifca", "strategy.tested=best strategy.migration=true", r"strategy\.tested="),
        ("pfedme", "strategy.tested=global", "tested=global .*personal or local"),
        ("scaffold", "strategy.local.momentum=0.9", "momentum=0.9 .*; use 0"),
    ],
)
def test_bad_settings_are_one_line(strategy: str, overrides: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        compose_config([f"strategy={strategy}", *overrides.split()])
    assert "\n" not in str(error.value)
