"""What a server that died had asked for is known to the next one."""

from __future__ import annotations

from pathlib import Path

import pytest

from cfl_flower.errors import ConfigError
from cfl_flower.runs.asked import ASKED, Asked


def test_notes_reach_back_to_the_last_checkpoint_that_there_may_be(
    tmp_path: Path,
) -> None:
    died = Asked(tmp_path, resume=False)
    for round in (1, 2, 3):
        died.note("train", round, [3, "site-a"])
    died.note("means", 3, [3], key="one")
    assert died.before("train", 3) == {}
    again = Asked(tmp_path, resume=True)
    again.note("means", 3, [3, 7], key="other")
    third = Asked(tmp_path, resume=True)
    for each in (again, third):
        assert each.before("train", 1) == {}
        assert each.before("train", 2) == {"": {3, "site-a"}}
    assert again.before("means", 3) == {"one": {3}}
    assert third.before("means", 3) == {"one": {3}, "other": {3, 7}}
    assert Asked(tmp_path, resume=False).before("train", 3) == {}


@pytest.mark.parametrize("text", ["", "[", "5", "[[1]]", '[["train",1,"",5]]'])
def test_damaged_notes_are_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / ASKED).write_text(text)
    with pytest.raises(ConfigError, match="is damaged; without it no account"):
        Asked(tmp_path, resume=True)
