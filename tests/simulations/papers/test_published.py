"""Published tables: composed as they are."""

import re
from itertools import product

import pytest

from cfl_flower.config.compose import compose_config
from cfl_flower.environment.plugins import CONF
from cfl_flower.errors import ConfigError
from simulations.papers import published
from simulations.papers.published import Cell, load_tables
from tests.conftest import sample

TABLES = load_tables()
PRESETS = {
    str(path.relative_to(CONF / "experiment").with_suffix(""))
    for path in (CONF / "experiment").rglob("*.yaml")
}


def with_new_settings() -> dict[str, list[Cell]]:
    """Return the cells by table that have settings which no cell before them has."""
    seen = set[str]()
    found: dict[str, list[Cell]] = {}
    for name, table in TABLES.items():
        for cell in table.cells([], []):
            if not seen.issuperset(cell.overrides):
                found.setdefault(name, []).append(cell)
            seen.update(cell.overrides)
    return found


NEW = with_new_settings()
OF_EACH_PAPER = ["fielding_figure4", "flexcfl_table3", "stocfl_table1", "ccfl_table1"]


@pytest.mark.slow
@pytest.mark.parametrize("name", sample(NEW, OF_EACH_PAPER))
def test_every_setting_of_a_table_composes_if_its_data_are_present(name):
    for cell in NEW[name]:
        try:
            config = compose_config(cell.overrides)
        except ConfigError as error:
            assert re.search("data_dir=", str(error)), cell
        else:
            assert f"strategy={config.names['strategy']}" in cell.overrides


BASES = {"ccfl", "feddag/common", "flexcfl", "stocfl", "stocfl_mnist"}
"""Presets that only others start from."""
STREAMS = {
    *("us_accidents", "flights", "employment", "fedccfa_augmented"),
    *("clusters/all_labels", "clusters/labels", "clusters/two_labels"),
    *("labels", "meanings"),
}
"""Presets of real data, of the authors' code or our own, that no paper's table has."""


def test_every_cell_starts_from_a_preset_and_every_preset_serves_a_cell():
    used = set()
    for table in TABLES.values():
        for row in table.rows:
            for method in table.methods:
                first, *others = table.cell(row, method).overrides
                assert first.startswith("experiment=")
                assert not any(each.startswith("experiment=") for each in others)
                used.add(first.removeprefix("experiment="))
    assert used | BASES | STREAMS == PRESETS
    assert not used & (BASES | STREAMS)


FLEXCFL = {
    **dict.fromkeys(["mnist_mclr", "femnist_mclr", "synthetic_mclr"], ""),
    **{"mnist_mlp": "model.hidden=128", "femnist_mlp": "model.hidden=512"},
    # Without Keras' l2(0.001) of the others.
    **dict.fromkeys(["mnist_cnn", "femnist_cnn"], "strategy.local.weight_decay=0.0"),
    **{"fashion_mnist_cnn": "", "sent140_gru": "", "sent140_lstm": "model=lstm"},
}
"""What a row has beside the preset of its data: tests/cfl_flower/config/resolved.json
has what that says."""


def test_rows_are_runs_of_what_their_names_say():
    def said(table: str, row: str, method: str = "fedavg") -> list[str]:
        return TABLES[table].cell(row, method).overrides[:-1]

    assert TABLES["flexcfl_table3"].rows.keys() == FLEXCFL.keys()
    for row, last in FLEXCFL.items():
        own = said("flexcfl_table3", row)
        preset = f"experiment=flexcfl_table3/{row.rpartition('_')[0]}"
        assert (own[0], own[-1]) == (preset, last or preset)
        # The first row starts from a preset of its own.
        own = own if row != "mnist_mclr" else ["experiment=flexcfl_table4"]
        drifts = ["drift=incremental", "drift.every=50"]
        assert said("flexcfl_table4", f"{row}_incremental") == [*own, *drifts]
    for number in (2, 9, 10):
        name = f"fedccfa_table{number}"
        assert len(TABLES[name].rows) == 6
        for row in TABLES[name].rows:
            own = said(name, row)
            assert own[0] == f"experiment={name}"
            assert ("clients=20" in own) == row.endswith("_20")
    own = ["clients=1200", "participants=120"]
    assert said("stocfl_table1", "rotated_mnist_1200_10")[1:] == own


def test_tables_fit_together():
    assert not TABLES.keys() & published.load_elsewhere().keys()
    for name, table in TABLES.items():
        assert {*table.columns} <= table.methods.keys(), name
        assert {len(row.values) for row in table.rows.values()} == {len(table.columns)}
        assert table.against in table.methods.keys() | TABLES.keys() | {None}, name
        if table.runs is None:
            continue
        other = TABLES[table.runs]
        for row, method in product(table.rows, table.methods.keys() & other.methods):
            theirs = other.cell(row, method).overrides
            assert table.cell(row, method).overrides == theirs, (name, row, method)


def test_rows_are_selected_by_name_or_by_the_beginning_of_their_names():
    # rotated_mnist_1200_100 starts so, too.
    table = TABLES["stocfl_table1"]
    given = ["rotated_mnist_1200", "rotated_cifar_10"]
    two = ["rotated_mnist_1200_10", "rotated_mnist_1200_100"]
    assert [each.row for each in table.cells(two[:1], ["stocfl"])] == two[:1]
    assert [each.row for each in table.cells(given, ["stocfl"])] == [*two, given[1]]


def test_the_cost_of_drift_is_the_difference_of_two_tables():
    without, sudden, costs = (TABLES[f"fedccfa_table{i}"] for i in (1, 2, 8))
    for cell in costs.cells([], []):
        other = costs.reference(cell, TABLES)
        assert other == without.cell(cell.row, cell.method)
        mine = sudden.cell(cell.row, cell.method)
        assert (cell.folder, cell.overrides) == (mine.folder, mine.overrides)
        # The paper's own subtraction, but for its rounding.
        gap = (mine.published or 0) - (other.published or 0)
        assert cell.published == pytest.approx(gap, abs=0.006), cell
