"""Published tables: composed as they are, and run on a small one."""

import json
import re
import shutil
import subprocess
import sys
from argparse import Namespace
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from cfl_flower.analysis.saved import SavedRun
from cfl_flower.config.compose import compose_config
from cfl_flower.data.datasets.images import Mnist
from cfl_flower.environment.plugins import CONF
from cfl_flower.errors import ConfigError
from cfl_flower.run_config import RunConfig
from simulations.papers import published, recorded
from simulations.papers.measured import Outcome, find_row_leads
from simulations.papers.published import Cell, PublishedTable, load_tables
from simulations.reproduce import Reproduction, main
from tests.docs import scoreboard

TABLES = load_tables()
PRESETS = {
    str(path.relative_to(CONF / "experiment").with_suffix(""))
    for path in (CONF / "experiment").rglob("*.yaml")
}


def options(output: Path, **other: object) -> Namespace:
    """Return a command line that asks for this folder."""
    plain = {"scale": 1, "data_dir": None, "download": False, "gpus": 0.0}
    return Namespace(output=output, **(plain | other))


def compose_cell(cell: Cell, seed: int, options: Namespace) -> RunConfig:
    """Return the configuration of a run of a table."""
    return Reproduction(options).job(cell, seed).config


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


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the small tables where the published ones are looked for."""
    path = tmp_path / "published.yaml"
    path.write_text(SMALL)
    monkeypatch.setattr(published, "PUBLISHED", path)
    return path


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


@pytest.mark.slow
@pytest.mark.parametrize("name", NEW)
def test_every_setting_of_a_table_composes_if_its_data_are_present(name):
    for cell in NEW[name]:
        try:
            config = compose_config(cell.overrides)
        except ConfigError as error:
            assert re.search("data_dir=", str(error)), cell
        else:
            assert f"strategy={config.names['strategy']}" in cell.overrides


BASES = {"ccfl", "flexcfl", "stocfl", "stocfl_mnist"}
"""Presets that only others start from."""
STREAMS = {
    *("us_accidents", "flights", "employment", "fedccfa_augmented"),
    *("clusters/all_labels", "clusters/labels", "clusters/two_labels"),
}
"""Presets of real data, of the authors' code or our map, that no paper's table has."""


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


def test_an_outcome_prints_the_published_figure_and_the_difference():
    table = PublishedTable("", "", "", "best", 1.5, {"a": []}, ["a"], {})
    cell = Cell("row", "a", 90.0, [])
    ours = Outcome({0: 91.0, 1: 92.0}, {0: 90.0, 1: 91.0})
    assert ours.line(table, cell, "+2.5") == [
        *("row", "a", "91.5", "90.5", "+2.5", "90.0", "+1.5"),
        "reproduced",
    ]
    # Half the 95% interval of three is 2.48 times their deviation, 4 here.
    three = Outcome({0: 96.0, 1: 100.0, 2: 104.0}).line(table, cell)
    assert three[2:] == [*("100.0 ± 9.9", "-", "-", "90.0", "+10.0"), "above"]
    wide = Outcome({0: 95.0, 1: 100.0, 2: 104.0}).line(table, cell)
    assert wide[2:] == [*("99.7 ± 11.2", "-", "-", "90.0", "+9.7"), "reproduced"]
    failed = Outcome(reasons=["why"]).line(table, cell)
    assert failed[2:] == ["failed", "-", "-", "90.0", "-", ""]
    diverged = ["round 3: none of 4 clients; client 0: non-finite: arrays with NaN"]
    assert Outcome(reasons=diverged).line(table, cell)[2] == "collapsed"
    assert Outcome(reasons=[*diverged, "why"]).line(table, cell)[2] == "failed"
    part = Outcome({0: 80.0}, {}, ["why"]).line(table, cell)
    assert part[2:] == [*("80.0", "-", "-", "90.0", "-10.0"), "below, without 1 failed"]
    scaled = Outcome({0: 90.0}).line(table, cell, scale=0.5)
    assert scaled[-2:] == ["-", "not comparable"]
    unknown = Outcome({0: 80.0}).line(table, replace(cell, published=None))
    assert unknown[2:] == ["80.0", "-", "-", "-", "-", "no published figure"]
    faster = replace(table, measure="speed-up accuracy", against="b", tolerance=0.2)
    some = Outcome({0: 1.3, 1: None}).line(faster, replace(cell, published=1.27))
    assert some[2:] == [
        *("1.30", "-", "-", "1.27", "+0.03"),
        "reproduced, without 1 never",
    ]
    never = Outcome({0: None, 1: None}).line(faster, cell)
    assert never[2:] == ["never", "-", "-", "90.00", "-", ""]


def test_the_methods_of_a_row_are_tested_together():
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


def test_the_best_round_is_one_after_everyone_could_take_part(tmp_path):
    asked = ["clients=6", "participants=3", "partition.groups=3", "rounds=4"]
    config = compose_config([*asked, f"output_dir={tmp_path}"])
    row = {"cluster_sizes": [6], "failures": [], "bytes_up": 1, "bytes_down": 1}
    accuracies = (0.9, 0.8, 0.6, None)
    lines = [{"round": t, "accuracy": a, **row} for t, a in enumerate(accuracies, 1)]
    run = SavedRun(tmp_path, [], config.resolved, lines, [])
    table = TABLES["flexcfl_table4"]
    assert table.value(run) == pytest.approx(60.0)
    few = replace(run, resolved={**config.resolved, "participants": 1})
    assert table.value(few) == pytest.approx(60.0)


def test_bytes_are_compared_with_the_models_of_fedavg(tmp_path):
    figure = TABLES["flexcfl_figure6"]
    config = compose_config(["model=mclr", "rounds=4", "participants=5"])
    # 650 parameters, to and from five clients in four rounds.
    equal = {"bytes_up": 52_000, "bytes_down": 52_000}
    run = SavedRun(tmp_path, [], config.resolved, [], [], equal)
    assert figure.value(run) == 100
    more = replace(run, summary={"bytes_up": 52_000, "bytes_down": 78_000})
    assert figure.value(more) == 125
    assert figure.unit == "bytes in % of FedAvg's"
    assert TABLES["flexcfl_table4"].unit == "accuracy in %, best"


def test_the_cost_of_drift_is_the_difference_of_two_tables():
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


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_reproduce_runs_keeps_and_prints_a_table_with_its_failures(tmp_path, capsys):
    command = ["tiny", "--rows", "digits", "--output", str(tmp_path), "--markdown"]
    assert main([*command, "--scale", "0.5", "--jobs", "2"]) == 1
    out, _ = capsys.readouterr()
    table = [line.split(" | ") for line in out.splitlines()]
    assert table[2][:2] == ["| digits", "fedavg"]
    assert table[2][7] == "not comparable |"
    assert table[3][2] == "failed"
    (reason,) = (line for line in out.splitlines() if "none of 6 clients" in line)
    assert reason.startswith(f"digits {table[3][1]} seed 0 failed: ")
    kept = tmp_path / "tiny" / "digits" / "fedavg-s0-x0.5" / "rounds.jsonl"
    assert len(kept.read_text().splitlines()) == 2
    stamp = kept.stat().st_mtime_ns
    assert main([*command, "--scale", "0.5", "--methods", "fedavg"]) == 0
    assert kept.stat().st_mtime_ns == stamp


@pytest.mark.usefixtures("small")
def test_figures_are_kept_by_seed_and_written_into_pages_as_they_were(
    tmp_path, capsys, monkeypatch
):
    path = tmp_path / "recorded.json"  # which an installed package does not have
    monkeypatch.setattr(recorded, "RECORDED", path)
    command = ["gain", "--output", str(tmp_path / "runs"), "--markdown", "-q"]
    for seeds in ("2", "1"):  # the second seed of before stays
        assert main([*command, "--seeds", seeds, "--scale", "0.5", "--record"]) == 0
        printed = capsys.readouterr().out
        figures = recorded.load()["figures"]
        page = "".join(scoreboard.of_table(published.load_tables()["gain"], figures))
        assert "0.5 of the rounds" in page
        (row,) = (line for line in page.splitlines() if "| local |" in line)
        assert row.endswith(" | 2 |")
        if seeds == "2":
            # The page leaves out columns in which nothing is said.
            (line,) = (line for line in printed.splitlines() if "| local |" in line)
            said = line.removesuffix(" |").split(" | ")
            assert row.removesuffix(" | 2 |").split(" | ") == [
                word for word in said if word != "-"
            ]
    kept = json.loads(path.read_text())
    assert [*kept["figures"]] == ["gain/digits/local-x0.5"]
    assert [*kept["figures"]["gain/digits/local-x0.5"]["values"]] == ["0", "1"]
    assert len(kept["runs"]) == 4
    run = kept["runs"]["gain/digits/local-s0-x0.5"]
    assert run["rounds"] == 2
    # Folders, workers and engines do not tell; seeds, methods and rounds do.
    digests = [each["settings"] for each in kept["runs"].values()]
    assert len({*digests}) == 4
    asked = ["gain", "--output", str(tmp_path / "others"), *command[3:]]
    assert main([*asked, "--scale", "0.5", "--jobs", "1", "--record"]) == 0
    again = recorded.load()["runs"]
    assert [each["settings"] for each in again.values()] == digests
    assert main([*asked, "--scale", "0.75", "--record"]) == 0
    assert len({each["settings"] for each in recorded.load()["runs"].values()}) == 6


@pytest.mark.usefixtures("small")
def test_a_check_runs_again_what_was_recorded(tmp_path, capsys, monkeypatch):
    path = tmp_path / "recorded.json"
    monkeypatch.setattr(recorded, "RECORDED", path)
    output = tmp_path / "runs"
    command = ["tiny", "--methods", "fedavg", "fedavg_ls", "--output", str(output)]
    command += ["--rows", "digits", "--scale", "0.5", "-q", "--markdown"]
    assert main([*command, "--check"]) == 2
    assert re.search("--check=tiny .*recorded", capsys.readouterr().err)
    assert main([*command, "--record"]) == 0
    rows = capsys.readouterr().out.splitlines()[2:4]
    assert [row.split(" | ")[1] for row in rows] == ["fedavg", "fedavg_ls"]
    shutil.rmtree(output)
    assert main([*command, "--check"]) == 0
    assert "2 figures of tiny are the same" in capsys.readouterr().out
    assert not output.exists()
    known = recorded.load()
    figure = known["figures"]["tiny/digits/fedavg_ls-x0.5"]["values"]
    figure["0"] += 0.0001
    path.write_text(recorded.text(known))
    assert main([*command, "--check"]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("tiny/digits/fedavg_ls-x0.5, seed 0: ")
    assert line.endswith(f"recorded {figure['0']}")
    assert main([*command, "--check", "--seeds", "2"]) == 2
    assert re.search("--check=.*seed 1", capsys.readouterr().err)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_a_figure_can_be_relative_to_another_run(tmp_path, capsys):
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


def test_missing_data_can_be_named_or_fetched(monkeypatch, tmp_path, capsys):
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
    config = compose_cell(cell, 0, here)
    assert fetched == [config.data_dir] == [str(tmp_path)]
    assert not config.dataset.download, "the same run as without"
    assert compose_cell(cell, 1, here).data_dir == str(tmp_path)
    assert len(fetched) == 1, "once"


@pytest.mark.usefixtures("small")
def test_the_list_names_tables_rows_and_data(tmp_path, capsys):
    assert main(["--list", "--output", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "tiny" in out
    assert "TABLE --list says" in out
    assert "picture: in the report" in out
    assert main(["tiny", "--rows", "others", "--list", "--output", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "digits: here" in out
    assert "4 x 3" in out


def test_the_list_of_all_tables_composes_nothing():
    words = "import sys; from simulations import reproduce; reproduce.main(['--list'])"
    slow = "assert not {'torch', 'pandas', 'sklearn'} & sys.modules.keys()"
    asked = [sys.executable, "-c", f"{words}; {slow}"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in TABLES)


def test_bad_arguments_give_one_line(capsys):
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


def test_what_many_rows_lack_is_said_once(tmp_path, capsys):
    assert main(["flexcfl_table1", "--list", "--data-dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.count("not here: note 1") == 4
    assert out.count("name their folder by --data-dir, or add --download") == 1
