from cfl_flower.config.reference import attribute_docstrings
from cfl_flower.settings import Count, settings
from tests.docs.settings_tables import method_settings


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


def test_docstrings_below_fields_are_inherited_and_overridden():
    assert attribute_docstrings(Base) == {"rounds": "Rounds of the base."}
    assert attribute_docstrings(Derived) == {
        "rounds": "Rounds of the base.",
        "silent": "No longer `silent`.",
    }


def test_a_group_with_options_lists_the_settings_of_all(tmp_path, monkeypatch):
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
