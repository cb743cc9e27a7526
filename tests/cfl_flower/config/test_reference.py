from __future__ import annotations

from pathlib import Path

import pytest

from cfl_flower.config.reference import Setting, attribute_docstrings
from cfl_flower.settings import Count, settings
from tests.docs.settings_tables import method_settings, updated_page, write_table


@settings("example")
class Base:
    """A base."""

    rounds: Count = 1
    """Rounds of the
    base."""
    silent: int = 0


@settings("example")
class Derived(Base):
    """A class that redeclares a default, and explains one more setting."""

    rounds: Count = 5
    silent: int = 2
    """No longer ``silent``."""


def test_docstrings_below_fields_are_inherited_and_overridden() -> None:
    assert attribute_docstrings(Base) == {"rounds": "Rounds of the base."}
    assert attribute_docstrings(Derived) == {
        "rounds": "Rounds of the base.",
        "silent": "No longer `silent`.",
    }


def test_a_table_escapes_the_bars_of_its_cells() -> None:
    row = Setting("tau", "0.5", "a number", "|a - b|")
    assert write_table([row]).splitlines()[-1] == (
        r"| `tau` | 0.5 | a number | \|a - b\| |"
    )


def test_shared_settings_are_listed_where_a_method_has_its_own_default() -> None:
    rows = {row.key: row for row in method_settings("fedprox")}
    assert set(rows) == {"local.mu"}
    assert rows["local.mu"].default == "0.1"
    assert rows["local.mu"].allowed == "a number of at least 0"


def test_nested_settings_are_listed_by_their_path() -> None:
    rows = {row.key: row for row in method_settings("fielding")}
    assert rows["scan.smallest"].allowed == "a whole number of at least 2"
    assert rows["privacy.epsilon"].default == "1"


def test_a_group_with_options_lists_the_settings_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "_target_: cfl_flower.clustering.algorithms.KMeansScan\n"
    values = "smallest: 3\nlargest: 9\nrestarts: 1\n"
    (tmp_path / "conf/strategy/shift").mkdir(parents=True)
    (tmp_path / "conf/strategy/shift/scan.yaml").write_text(other + values)
    monkeypatch.chdir(tmp_path)
    rows = {row.key: row for row in method_settings("ifca")}
    assert rows["strategy/shift"].default == "counts"
    assert rows["strategy/shift"].allowed == "counts or scan"
    assert rows["shift.smallest"].default == "3"
    assert rows["shift.smallest"].meaning.startswith("Of `scan`: The smallest K")


def test_a_page_keeps_its_text_around_the_tables(tmp_path: Path) -> None:
    page = tmp_path / "fedprox.md"
    page.write_text("# A\n\n<!-- settings -->\nold\n<!-- end of settings -->\n\nB\n")
    text = updated_page(page)
    assert text.startswith("# A\n\n<!-- settings -->\n\n| setting |")
    assert text.endswith("|\n\n<!-- end of settings -->\n\nB\n")
    assert "old" not in text
    page.write_text(text)
    assert updated_page(page) == text
