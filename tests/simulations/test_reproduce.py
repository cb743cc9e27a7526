"""Published tables: composed as they are, and run on a small one."""

from __future__ import annotations

import io
import json
import re
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from cfl_flower.config.compose import compose_config
from cfl_flower.config.composition import compose_plain
from cfl_flower.data.datasets.images import Mnist
from cfl_flower.environment.plugins import CONF
from cfl_flower.errors import ConfigError
from cfl_flower.runs.console import Verbosity
from cfl_flower.runs.reading import Finished, finished, read_finished
from simulations import reproduce
from simulations.batch.jobs import Job, carry_out
from simulations.papers import published
from simulations.papers.published import (
    Cell,
    PublishedTable,
    load_elsewhere,
    load_tables,
)
from simulations.reproduce import Outcome, find_row_leads, main

TABLES = load_tables()
PRESETS = {
    str(path.relative_to(CONF / "experiment").with_suffix(""))
    for path in (CONF / "experiment").rglob("*.yaml")
}


def options(output: Path, **other: object) -> Namespace:
    """Return a command line that asks for this folder."""
    plain = {"scale": 1, "data_dir": None, "download": False}
    return Namespace(output=output, **(plain | other))


SMALL = """
tiny:
  title: A small table
  source: nobody
  measure: best
  tolerance: 50
  methods:
    fedavg: [strategy=fedavg]
    wrong: [strategy=fedavg, faults.raises=1]
  columns: [fedavg, wrong]
  rows:
    digits:
      overrides: [clients=6, participants=3, rounds=4, drift=none, clusters=2]
      values: [80.0, 90.0]
    others:
      overrides: [clients=6, participants=3, rounds=4, drift=none]
      values: [80.0, null]
gain:
  title: The same rounds, against another method
  source: nobody
  measure: last accuracy_mean
  against: fedavg
  tolerance: 100
  methods: &pair
    fedavg: [strategy=fedavg]
    local: [strategy=local]
  columns: [local]
  rows: &rows
    digits:
      overrides: [clients=6, participants=3, rounds=4, drift=none, clusters=2]
      values: [0.0]
gain_time:
  title: How much sooner
  source: nobody
  measure: speed-up accuracy_mean
  runs: gain
  against: fedavg
  tolerance: 100
  methods: *pair
  columns: [local]
  rows: *rows
gain_table:
  title: Against another table
  source: nobody
  measure: final
  against: gain
  tolerance: 100
  methods: {local: [strategy=local, strategy.local.epochs=1]}
  columns: [local]
  rows: *rows
elsewhere:
  - name: picture
    where: in the report
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_every_setting_of_a_table_composes_if_its_data_are_present(name: str) -> None:
    seen = set[str]()
    for cell in TABLES[name].cells([], []):
        if seen.issuperset(cell.overrides):
            continue  # All of its settings were in cells before.
        seen.update(cell.overrides)
        try:
            config = compose_config(cell.overrides)
        except ConfigError as error:
            assert re.search("data_dir=", str(error)), cell
        else:
            assert f"strategy={config.names['strategy']}" in cell.overrides


BASES = {"ccfl", "fielding", "flexcfl", "stocfl", "stocfl_mnist"}
"""Presets that only others start from."""


def test_every_cell_starts_from_a_preset_and_every_preset_serves_a_cell() -> None:
    used = set()
    for table in TABLES.values():
        for row in table.rows:
            for method in table.methods:
                first, *others = table.cell(row, method).overrides
                assert first.startswith("experiment=")
                assert not any(each.startswith("experiment=") for each in others)
                used.add(first.removeprefix("experiment="))
    assert used | BASES == PRESETS
    assert not used & BASES


@pytest.mark.parametrize("name", TABLES)
def test_a_column_named_as_a_method_is_the_preset_with_that_method(name: str) -> None:
    for method, overrides in TABLES[name].methods.items():
        if f"strategy={method}" in overrides:
            assert overrides == [f"strategy={method}"]


FEDCCFAS_BASELINES = {
    "fedprox": {"local.mu": 0.01, "local.momentum": 0.9},
    "scaffold": {"weighting": "plain", "local.momentum": 0, "local.weight_decay": 0},
    "pfedme": {"tested": "local", "local.momentum": 0, "local.weight_decay": 0},
    "ditto": {"regularisation": 5, "weighting": "samples"},
    "ifca": {"tested": "best", "clusters": 4},
    "fedccfa": {"start": 20, "local.momentum": 0.9},
}


@pytest.mark.parametrize("name", FEDCCFAS_BASELINES)
@pytest.mark.parametrize("number", [1, 2, 13])
def test_a_preset_has_the_tables_settings_of_each_baseline(
    number: int, name: str
) -> None:
    preset = [f"experiment=fedccfa_table{number}", f"strategy={name}"]
    node = compose_plain(preset).settings["strategy"]
    for key, value in FEDCCFAS_BASELINES[name].items():
        first, _, second = key.partition(".")
        assert (node[first][second] if second else node[first]) == value, key


def test_methods_that_are_compared_are_weighted_as_in_the_authors_code() -> None:
    for table, row, weighting in (
        ("fielding_figure4", "fashion_mnist", "plain"),
        ("fielding_figure7", "mnist_50", "plain"),
        ("fielding_figure10", "mnist_01", "plain"),
        ("stocfl_table4", "femnist", "plain"),
    ):
        for method in TABLES[table].methods:
            plain = compose_plain(TABLES[table].cell(row, method).overrides).settings
            assert plain["strategy"]["weighting"] == weighting, (table, method)


@pytest.mark.parametrize("method", ["fielding", "static"])
def test_fieldings_presets_choose_clusters_by_algorithm_3(method: str) -> None:
    for name in sorted(PRESETS):
        if name.startswith("fielding"):
            preset = [f"experiment={name}", f"strategy={method}"]
            node = compose_plain(preset).settings["strategy"]
            assert (node["scan"]["substantial"], node["significance"]) == (0, 0), name
    ours = TABLES["fielding_figure4"].cell("mnist", "fielding_substantial").overrides
    node = compose_plain(ours).settings["strategy"]
    default = compose_plain(["strategy=fielding"]).settings["strategy"]
    assert node["scan"] == default["scan"], "our rule, beside the paper's"
    assert node["significance"] == default["significance"]


def test_every_row_has_a_value_per_column() -> None:
    for table in TABLES.values():
        for row in table.rows.values():
            assert len(row["values"]) == len(table.columns)


def test_tables_of_the_same_runs_have_the_same_overrides() -> None:
    shared = [table for table in TABLES.values() if table.runs]
    assert len(shared) >= 10
    for table in shared:
        other = TABLES[str(table.runs)]
        for row in table.rows:
            for method in table.methods.keys() & other.methods.keys():
                mine, theirs = table.cell(row, method), other.cell(row, method)
                assert (mine.folder, mine.overrides) == (
                    theirs.folder,
                    theirs.overrides,
                )


SETTINGS = {
    # clients, m, rounds, learning rate, mu of FedProx
    "mnist_mclr": (1000, 3, 300, 0.03, 1),
    "mnist_mlp": (1000, 3, 300, 0.03, 1),
    "mnist_cnn": (1000, 3, 300, 0.03, 1),
    "femnist_mclr": (200, 5, 300, 0.003, 1),
    "femnist_mlp": (200, 5, 300, 0.003, 1),
    "femnist_cnn": (200, 5, 300, 0.003, 1),
    "synthetic_mclr": (100, 5, 300, 0.01, 1),
    "fashion_mnist_cnn": (500, 5, 300, 0.005, 1),
    "sent140_gru": (772, 5, 800, 0.3, 0.01),
    "sent140_lstm": (772, 5, 800, 0.3, 0.01),
}


@pytest.mark.parametrize("row", SETTINGS)
def test_every_row_of_flexcfls_table_has_the_papers_settings(row: str) -> None:
    clients, clusters, rounds, rate, mu = SETTINGS[row]
    (cell,) = TABLES["flexcfl_table3"].cells([row], ["fedprox"])
    plain = compose_plain(cell.overrides).settings
    found = plain["clients"], plain["clusters"], plain["rounds"], plain["participants"]
    assert found == (clients, clusters, rounds, 20)
    local = plain["strategy"]["local"]
    assert (local["epochs"], local["batch_size"]) == (10, 10)
    assert (local["learning_rate"], local["mu"]) == (rate, mu)
    # Keras' l2(0.001) of the softmax regression and of the perceptrons.
    decays = row.endswith(("mclr", "mlp"))
    assert local["weight_decay"] == (0.002 if decays else 0)


@pytest.mark.parametrize(
    ("number", "rounds"), [(2, [101]), (9, [101, 111, 121]), (10, [101, 151])]
)
def test_fedccfas_drifts_are_in_the_authors_rounds(
    number: int, rounds: list[int]
) -> None:
    table = TABLES[f"fedccfa_table{number}"]
    assert len(table.rows) == 6
    for row in table.rows:
        plain = compose_plain(table.cell(row, "fedavg").overrides).settings
        assert plain["drift"]["rounds"] == rounds
        assert plain["clients"] == int(row.rpartition("_")[2])


def test_flexcfls_samples_arrive_every_50_rounds() -> None:
    table = TABLES["flexcfl_table4"]
    rows = [row for row in table.rows if row.endswith("incremental")]
    assert len(rows) == 10
    for row in rows:
        overrides = table.cell(row, "fedavg").overrides
        assert overrides[-3:] == [
            "drift=incremental",
            "drift.every=50",
            "strategy=fedavg",
        ]


def test_synthetic_composes_as_in_the_paper() -> None:
    (cell,) = TABLES["flexcfl_table3"].cells(["synthetic"], ["flexcfl_mixing"])
    assert cell.published == 80.3
    config = compose_config(cell.overrides)
    assert (config.clients, config.participants, config.rounds) == (100, 20, 300)
    assert config.strategy.clusters == 5
    assert config.strategy.mixing == 0.1


def test_results_of_other_settings_are_not_used(tmp_path: Path) -> None:
    cell = Cell("digits", "fedavg", None, ["strategy=fedavg", "clients=6"])
    small = [*cell.overrides, "participants=3", "rounds=2", "drift=none"]
    config = reproduce.compose_cell(
        replace(cell, overrides=small), 0, options(tmp_path)
    )
    assert carry_out([Job("digits", config)], 1, Verbosity.QUIET, "") == {}
    assert finished(config)
    other = [*small, "strategy.local.mu=1"]
    changed = reproduce.compose_cell(
        replace(cell, overrides=other), 0, options(tmp_path)
    )
    assert finished(changed) is None
    reasons = carry_out([Job("digits", changed)], 1, Verbosity.QUIET, "")
    assert "another run" in reasons[changed.output_dir]
    assert finished(changed) is None, "the other run's numbers are not this one's"
    assert finished(config)


def test_rotated_mnist_is_stocfls_setting() -> None:
    table = TABLES["stocfl_table1"]
    cell = table.cells(["rotated_mnist_1200_10"], ["stocfl"])[0]
    assert cell.published == 96.71
    try:
        config = compose_config(cell.overrides)
    except ConfigError as error:
        pytest.skip(str(error))
    assert (config.clients, config.participants, config.rounds) == (1200, 120, 100)
    assert config.strategy.threshold == 0.5
    assert config.strategy.regularisation == 0.05
    assert config.strategy.local.epochs == 5
    assert config.strategy.local.batch_size >= 200
    assert config.model.hidden == 2048


def test_rows_are_selected_by_name_or_by_the_beginning_of_their_names() -> None:
    # rotated_mnist_1200_100 starts so, too.
    table = TABLES["stocfl_table1"]
    for given, found in (
        (["rotated_mnist_1200_10"], ["rotated_mnist_1200_10"]),
        (
            ["rotated_mnist_1200", "rotated_cifar_10"],
            ["rotated_mnist_1200_10", "rotated_mnist_1200_100", "rotated_cifar_10"],
        ),
    ):
        cells = table.cells(given, ["stocfl"])
        assert [cell.row for cell in cells] == found


def test_unknown_rows_and_methods_are_named_in_the_error() -> None:
    for rows, methods in ((["nothing"], []), (["synthetic"], ["fedavg", "fedAvg"])):
        with pytest.raises(ConfigError, match="synthetic_mclr"):
            TABLES["flexcfl_table3"].cells(rows, methods)


def test_an_outcome_prints_the_published_figure_and_the_difference() -> None:
    table = PublishedTable("", "", "", "best", 1.5, {"a": []}, ["a"], {})
    cell = Cell("row", "a", 90.0, [])
    ours = Outcome({0: 91.0, 1: 92.0}, {0: 90.0, 1: 91.0})
    assert ours.line(table, cell, "+2.5") == [
        *("row", "a", "91.5 ± 0.7", "90.5 ± 0.7", "+2.5", "90.0", "+1.5"),
        "reproduced",
    ]
    failed = Outcome(reasons=["why"]).line(table, cell)
    assert failed[2:] == ["failed", "-", "-", "90.0", "-", ""]
    diverged = ["round 3: none of 4 clients; client 0: non-finite: arrays with NaN"]
    assert Outcome(reasons=diverged).line(table, cell)[2] == "collapsed"
    assert Outcome(reasons=[*diverged, "why"]).line(table, cell)[2] == "failed"
    part = Outcome({0: 80.0}, {}, ["why"]).line(table, cell)
    assert part[2:] == [
        *("80.0", "-", "-", "90.0", "-10.0"),
        "below, without 1 failed",
    ]
    unknown = Outcome({0: 80.0}).line(table, replace(cell, published=None))
    assert unknown[2:] == ["80.0", "-", "-", "-", "-", "no published figure"]
    faster = replace(table, measure="speed-up accuracy", against="b", tolerance=0.2)
    some = Outcome({0: 1.3}, never=1).line(faster, replace(cell, published=1.27))
    assert some[2:] == [
        *("1.30", "-", "-", "1.27", "+0.03"),
        "reproduced, without 1 never",
    ]
    never = Outcome(never=2).line(faster, cell)
    assert never[2:] == ["never", "-", "-", "90.00", "-", ""]


def test_the_methods_of_a_row_are_tested_together() -> None:
    table = PublishedTable("", "", "", "final", 1.5, {"a": []}, ["a"], {})
    values = {
        ("mnist", "fedavg"): {0: 90.0, 1: 90.0, 2: 90.0},
        ("mnist", "a"): {0: 93.0, 1: 94.0, 2: 93.5},
        ("mnist", "b"): {0: 91.0, 1: 92.0, 2: 91.2, 3: 70.0},
        ("mnist", "c"): {0: 80.0, 1: 92.0, 2: 91.2},
        ("other", "a"): {0: 93.0},
    }
    outcomes = [(Cell(*at, None, []), Outcome(some)) for at, some in values.items()]
    assert find_row_leads(table, outcomes) == {
        ("mnist", "a"): "+3.5 ± 1.2",
        ("mnist", "b"): "+1.4 ± 1.3, no lead",  # it is one beside fewer methods
        ("mnist", "c"): "-2.3 ± 16.7, no lead",
    }
    # A difference is relative already.
    relative = replace(table, against="other table")
    (_, _, other, _, _) = outcomes
    assert find_row_leads(relative, [other])["mnist", "b"].startswith("+86.")


def test_the_best_round_is_one_after_everyone_could_take_part(tmp_path: Path) -> None:
    asked = ["clients=6", "participants=3", "partition.groups=3", "rounds=4"]
    config = compose_config([*asked, f"output_dir={tmp_path}"])
    row = {"cluster_sizes": [6], "failures": [], "bytes_up": 1, "bytes_down": 1}
    accuracies = (0.9, 0.8, 0.6, None)
    lines = [{"round": t, "accuracy": a, **row} for t, a in enumerate(accuracies, 1)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "rounds.jsonl").write_text(text)
    table = TABLES["flexcfl_table4"]
    assert table.value(Finished(config, {})) == pytest.approx(60.0)
    few = Finished(replace(config, participants=1), {})
    assert table.value(few) == pytest.approx(60.0)


def test_bytes_are_compared_with_the_models_of_fedavg() -> None:
    figure = TABLES["flexcfl_figure6"]
    config = compose_config(["model=mclr", "rounds=4", "participants=5"])
    # 650 parameters, to and from five clients in four rounds.
    run = Finished(config, {"bytes_up": 52_000, "bytes_down": 52_000})
    assert figure.value(run) == 100
    more = Finished(config, {"bytes_up": 52_000, "bytes_down": 78_000})
    assert figure.value(more) == 125
    assert figure.unit == "bytes in % of FedAvg's"
    assert TABLES["flexcfl_table4"].unit == "accuracy in %, best"


def test_the_cost_of_drift_is_the_difference_of_two_tables() -> None:
    without, sudden, costs = (TABLES[f"fedccfa_table{i}"] for i in (1, 2, 8))
    for cell in costs.cells([], []):
        other = costs.reference(cell, TABLES)
        assert other is not None
        assert other == without.cell(cell.row, cell.method)
        mine = sudden.cell(cell.row, cell.method)
        assert (cell.folder, cell.overrides) == (mine.folder, mine.overrides)
        # The paper's own subtraction, but for its rounding.
        gap = (mine.published or 0) - (other.published or 0)
        assert cell.published == pytest.approx(gap, abs=0.006), cell


def test_fieldings_figures_are_those_of_its_text() -> None:
    gain, time = TABLES["fielding_figure4"], TABLES["fielding_figure4_time"]
    rows = ("fmow", "cityscapes", "waymo", "open_images", "mnist", "cifar10")
    gains = [gain.cell(row, "fielding").published for row in rows]
    assert gains == [5.9, 1.9, 3.4, None, None, None]
    times = [time.cell(row, "fielding").published for row in rows]
    assert times == [1.27, 1.16, 2.23, None, None, None]
    cell = gain.cell("fmow", "fielding")
    reference = gain.reference(cell, TABLES)
    assert reference == gain.cell("fmow", "fedavg")
    assert reference.published is None
    assert gain.unit == "accuracy in %, last accuracy_mean, less that of fedavg"
    assert time.unit == "times as fast as fedavg to its last accuracy_mean"


def test_all_representations_in_one_cluster_are_the_single_model(
    tmp_path: Path,
) -> None:
    one = TABLES["fielding_figure5_nearest"].methods["one_cluster"]
    small = ["clients=10", "participants=3", "rounds=3", "drift.rounds=[2]", *one]
    cell = Cell("digits", "one_cluster", None, [*small, "selection=nearest"])
    config = reproduce.compose_cell(cell, 0, options(tmp_path))
    assert carry_out([Job("digits", config)], 1, Verbosity.QUIET, "") == {}
    run = read_finished(config)
    assert run is not None
    assert [row["num_clusters"] for row in run.rounds] == [1, 1, 1]


def test_no_name_is_both_a_table_and_shown_elsewhere() -> None:
    assert not TABLES.keys() & load_elsewhere().keys()


def test_reasons_of_failures_are_printed_below_the_table() -> None:
    console = Console(file=(out := io.StringIO()), width=60)
    row = ["row", "a", "failed", "90.0", "-", ""]
    console.print(reproduce.draw("title", [row], "row a seed 1 failed: no [/tmp/x]"))
    last = out.getvalue().splitlines()[-1]
    assert last.strip() == "row a seed 1 failed: no [/tmp/x]"


def test_a_shorter_run_aligns_features_as_early_as_the_whole_one(
    tmp_path: Path,
) -> None:
    cell = Cell("digits", "fedccfa", None, ["strategy=fedccfa", "model=mlp"])
    for scale, start in ((1, 20), (0.3, 6), (0.1, 2)):
        config = reproduce.compose_cell(cell, 0, options(tmp_path, scale=scale))
        assert config.strategy.start == start


@pytest.mark.slow
def test_reproduce_runs_keeps_and_prints_a_table_with_its_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "published.yaml"
    path.write_text(SMALL)
    monkeypatch.setattr(published, "PUBLISHED", path)
    command = ["tiny", "--rows", "digits", "--output", str(tmp_path), "--markdown"]
    assert main([*command, "--scale", "0.5", "--jobs", "2"]) == 1
    out, _ = capsys.readouterr()
    table = [line.split(" | ") for line in out.splitlines()]
    assert table[2][:2] == ["| digits", "fedavg"]
    assert table[2][7] == "reproduced |"
    assert table[3][2] == "failed"
    (reason,) = (line for line in out.splitlines() if "none of 6 clients" in line)
    assert reason.startswith(f"digits {table[3][1]} seed 0 failed: ")
    kept = tmp_path / "tiny" / "digits" / "fedavg-s0-x0.5" / "rounds.jsonl"
    assert len(kept.read_text().splitlines()) == 2
    stamp = kept.stat().st_mtime_ns
    assert main([*command, "--scale", "0.5", "--methods", "fedavg"]) == 0
    assert kept.stat().st_mtime_ns == stamp


@pytest.mark.slow
def test_a_figure_can_be_relative_to_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "published.yaml"
    path.write_text(SMALL)
    monkeypatch.setattr(published, "PUBLISHED", path)
    command = ["--output", str(tmp_path), "--markdown", "-q", "--jobs", "2"]
    values = {}
    for name in ("gain", "gain_time", "gain_table"):
        assert main([name, *command]) == 0
        line = capsys.readouterr().out.splitlines()[2]
        values[name] = line.split(" | ")[2]
    mean = {}
    for name in ("gain/digits/local", "gain/digits/fedavg", "gain_table/digits/local"):
        text = (tmp_path / f"{name}-s0" / "summary.json").read_text()
        mean[name] = json.loads(text)["final"]
    own, single, less = mean.values()
    gain = 100 * (own["accuracy_mean"] - single["accuracy_mean"])
    assert values["gain"] == f"{gain:.1f}"
    assert values["gain_table"] == f"{100 * (less['accuracy'] - own['accuracy']):.1f}"
    assert (values["gain_time"] == "never") == (gain < 0)
    assert not (tmp_path / "gain_time").exists(), "the runs of gain"
    assert not (tmp_path / "gain_table" / "digits" / "fedavg-s0").exists()


def test_unreadable_and_unwritable_files_give_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "published.yaml"
    path.write_text(SMALL)
    monkeypatch.setattr(published, "PUBLISHED", path)
    run = tmp_path / "tiny" / "digits" / "fedavg-s0"
    run.mkdir(parents=True)
    for text in ("{", "[]", "{}", ""):
        (run / "summary.json").write_text(text)
        assert main(["tiny", "--list", "--output", str(tmp_path)]) == 2
        *_, line = capsys.readouterr().err.splitlines()
        assert line.startswith("cfl-flower error: ")
        assert "fedavg-s0/summary.json cannot be read" in line
    assert main(["tiny", "--methods", "fedavg", "--output", str(tmp_path)]) == 2
    file = tmp_path / "a-file"
    file.touch()
    assert main(["tiny", "--output", str(file / "below")]) == 2
    torn, unwritable = capsys.readouterr().err.splitlines()
    assert "repeat the run" in torn
    assert "cannot be written" in unwritable


def test_missing_data_can_be_named_or_fetched(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = ["flexcfl_table1", "--rows", "labels_1", "--output", str(tmp_path / "out")]
    assert main([*row, "--data-dir", str(tmp_path)]) == 2
    assert main([*row, "--data-dir", str(tmp_path / "nowhere")]) == 2
    missing, nowhere = capsys.readouterr().err.splitlines()
    assert missing.endswith("name their folder by --data-dir, or add --download")
    assert f"data_dir={tmp_path}:" in missing
    assert "nowhere is not allowed" in nowhere
    cell = TABLES["flexcfl_table1"].cell("labels_1", "fedavg")
    fetched = []

    def fetch(dataset: Mnist, data_dir: str) -> None:
        assert dataset.download
        fetched.append(data_dir)
        raw = Path(data_dir, dataset.folder)
        raw.mkdir(parents=True)
        for name in dataset.stems:
            (raw / name).touch()

    monkeypatch.setattr(Mnist, "load", fetch)
    here = options(tmp_path / "out", data_dir=tmp_path, download=True)
    config = reproduce.compose_cell(cell, 0, here)
    assert fetched == [config.data_dir] == [str(tmp_path)]
    assert not config.dataset.download, "the same run as without"
    assert reproduce.compose_cell(cell, 1, here).data_dir == str(tmp_path)
    assert len(fetched) == 1, "once"


def test_the_list_names_tables_rows_and_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "published.yaml"
    path.write_text(SMALL)
    monkeypatch.setattr(published, "PUBLISHED", path)
    run = tmp_path / "tiny" / "others"
    for name, seconds in (("fedavg-s0", 60), ("fedavg-s1", 70), ("fedavg-s0-x0.1", 1)):
        (run / name).mkdir(parents=True)
        (run / name / "summary.json").write_text(f'{{"seconds": {seconds}}}')
    assert main(["--list", "--output", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "tiny" in out
    assert "digits: here" in out
    assert "4 x 3" in out
    assert "1:05, as here" in out
    assert "not run here" in out
    assert "picture: in the report" in out
    assert main(["tiny", "--rows", "others", "--list", "--output", str(tmp_path)]) == 0
    assert "not run here" not in capsys.readouterr().out


def test_bad_arguments_give_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flexcfl_table3", "--rows", "nowhere"]) == 2
    assert main(["flexcfl_table3", "--rows", "nowhere", "--list"]) == 2
    assert main(["flexcfl_table3", "--seeds", "0"]) == 2
    assert main(["flexcfl_table3", "--jobs", "0"]) == 2
    assert main(["flexcfl_table3", "--seed"]) == 2
    assert main(["fedccfa_table12"]) == 2
    assert main(["nothing"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 7
    assert "scale.md" in lines[-2]
    assert "flexcfl_table3, flexcfl_table4" in lines[-1]
