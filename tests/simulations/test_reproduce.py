"""Published tables: composed as they are, and run on a small one."""

from __future__ import annotations

import io
import json
import re
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from cfl_flower.config.compose import CONF, compose_config
from cfl_flower.data.images import Mnist
from cfl_flower.errors import ConfigError
from cfl_flower.runs.reading import Finished, finished, read_finished
from simulations import published, reproduce
from simulations.jobs import Job, work
from simulations.published import (
    Cell,
    Published,
    load_elsewhere,
    load_published,
)
from simulations.reproduce import Measured, lines, main

TABLES = load_published()


def asked(output: Path, **other: object) -> Namespace:
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
def test_every_cell_composes_where_its_data_are(name: str) -> None:
    for cell in TABLES[name].cells([], []):
        try:
            config = compose_config(cell.overrides)
        except ConfigError as error:
            assert re.search("data_dir=", str(error)), cell
        else:
            assert f"strategy={config.names['strategy']}" in cell.overrides


def test_every_row_is_an_experiment_and_the_other_way_round() -> None:
    used: dict[str, set[str]] = {}
    for table in TABLES.values():
        for row in table.rows.values():
            folder, _, name = row["overrides"][0].partition("=")[2].rpartition("/")
            used.setdefault(folder, set()).add(name)
        for name, row in table.rows.items() if table.runs else ():
            assert TABLES[table.runs].rows[name]["overrides"] == row["overrides"]
    preset = {"fielding", "fielding_mnist_static"}
    alone = {path.stem for path in (CONF / "experiment").glob("fielding*.yaml")}
    assert used.pop("") | preset == alone
    for folder, names in used.items():
        files = (CONF / "experiment" / folder).glob("*.yaml")
        assert {path.stem for path in files} == names
    for table in TABLES.values():
        assert all(
            len(row["values"]) == len(table.columns) for row in table.rows.values()
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
    folder = CONF / "experiment" / "flexcfl_table3"
    text = yaml.safe_load((folder / f"{row}.yaml").read_text())
    common = yaml.safe_load((CONF / "experiment" / "flexcfl.yaml").read_text())
    assert text["clients"] == clients
    assert text.get("clusters", common["clusters"]) == clusters
    assert text.get("rounds", common["rounds"]) == rounds
    assert text["strategy"]["local"]["learning_rate"] == rate
    assert common["participants"] == 20
    assert common["strategy"]["local"] == {"epochs": 10, "batch_size": 10}
    (cell,) = TABLES["flexcfl_table3"].cells([row], ["fedprox"])
    mus = [item for item in cell.overrides if item.startswith("strategy.local.mu=")]
    assert mus[-1] == f"strategy.local.mu={mu}"


@pytest.mark.parametrize(
    ("folder", "rounds"), [("2", [101]), ("9", [101, 111, 121]), ("10", [101, 151])]
)
def test_fedccfas_drifts_come_when_the_authors_do(
    folder: str, rounds: list[int]
) -> None:
    files = list((CONF / "experiment" / f"fedccfa_table{folder}").glob("*.yaml"))
    assert len(files) == 6
    for path in files:
        assert yaml.safe_load(path.read_text())["drift"] == {"rounds": rounds}


def test_flexcfls_samples_arrive_every_50_rounds() -> None:
    rows = [
        row["overrides"]
        for name, row in TABLES["flexcfl_table4"].rows.items()
        if name.endswith("incremental")
    ]
    assert len(rows) == 10
    assert all(row[1:] == ["drift=incremental", "drift.every=50"] for row in rows)


def test_synthetic_composes_as_in_the_paper() -> None:
    (cell,) = TABLES["flexcfl_table3"].cells(["synthetic"], ["flexcfl_mixing"])
    assert cell.published == 80.3
    config = compose_config(cell.overrides)
    assert (config.clients, config.participants, config.rounds) == (100, 20, 300)
    assert config.strategy.clusters == 5
    assert config.strategy.mixing == 0.1


def test_a_run_of_other_settings_is_not_taken_for_this_one(tmp_path: Path) -> None:
    cell = Cell("digits", "fedavg", None, ["strategy=fedavg", "clients=6"])
    small = [*cell.overrides, "participants=3", "rounds=2", "drift=none"]
    config = reproduce.make_job(replace(cell, overrides=small), 0, asked(tmp_path))
    assert work([Job("digits", config)]).endswith("(exit code 0)")
    assert finished(config)
    other = [*small, "strategy.local.mu=1"]
    changed = reproduce.make_job(replace(cell, overrides=other), 0, asked(tmp_path))
    assert finished(changed) is None
    assert "another run" in work([Job("digits", changed)])
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


def test_a_row_is_asked_for_by_its_name_and_several_by_how_they_start() -> None:
    # rotated_mnist_1200_100 starts so, too.
    table = TABLES["stocfl_table1"]
    for asked, found in (
        (["rotated_mnist_1200_10"], ["rotated_mnist_1200_10"]),
        (
            ["rotated_mnist_1200", "rotated_cifar_10"],
            ["rotated_mnist_1200_10", "rotated_mnist_1200_100", "rotated_cifar_10"],
        ),
    ):
        cells = table.cells(asked, ["stocfl"])
        assert [cell.row for cell in cells] == found


def test_rows_that_are_not_there_are_named() -> None:
    for rows, methods in ((["nothing"], []), (["synthetic"], ["fedavg", "fedAvg"])):
        with pytest.raises(ConfigError, match="synthetic_mclr"):
            TABLES["flexcfl_table3"].cells(rows, methods)


def test_a_line_says_what_was_published_and_how_far_it_is() -> None:
    table = Published("", "", "", "best", 1.5, {"a": []}, ["a"], {})
    cell = Cell("row", "a", 90.0, [])
    measured = {("row", "a"): Measured([91.0, 92.0])}
    assert lines(table, [cell], measured) == [
        ["row", "a", "91.5 ± 0.7", "90.0", "+1.5", "reproduced"]
    ]
    failed = {("row", "a"): Measured([], ["why"])}
    assert lines(table, [cell], failed)[0][2:] == ["failed", "90.0", "-", ""]
    part = {("row", "a"): Measured([80.0], ["why"])}
    (line,) = lines(table, [cell], part)
    assert line[2:] == ["80.0", "90.0", "-10.0", "below, without 1 failed"]
    faster = replace(table, measure="speed-up accuracy", against="b", tolerance=0.2)
    some = {("row", "a"): Measured([1.3], never=1)}
    (line,) = lines(faster, [replace(cell, published=1.27)], some)
    assert line[2:] == ["1.30", "1.27", "+0.03", "reproduced, without 1 never"]
    none = {("row", "a"): Measured(never=2)}
    assert lines(faster, [cell], none)[0][2:] == ["never", "90.00", "-", ""]


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


def test_what_drift_costs_is_the_difference_of_two_tables() -> None:
    without, sudden, costs = (TABLES[f"fedccfa_table{i}"] for i in (1, 2, 8))
    for cell in costs.cells([], []):
        other = costs.mark(cell, TABLES)
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
    mark = gain.mark(cell, TABLES)
    assert mark is not None
    assert (mark.method, mark.row, mark.published) == ("fedavg", "fmow", None)
    assert gain.unit == "accuracy in %, last accuracy_mean, less that of fedavg"
    assert time.unit == "times as fast as fedavg to its last accuracy_mean"


def test_all_representations_in_one_cluster_are_the_single_model(
    tmp_path: Path,
) -> None:
    one = TABLES["fielding_figure5_nearest"].methods["one_cluster"]
    small = ["clients=10", "participants=3", "rounds=3", "drift.rounds=[2]", *one]
    cell = Cell("digits", "one_cluster", None, [*small, "selection=nearest"])
    config = reproduce.make_job(cell, 0, asked(tmp_path))
    work([Job("digits", config)])
    run = read_finished(config)
    assert run is not None
    assert [row["num_clusters"] for row in run.rounds] == [1, 1, 1]


def test_nothing_is_named_twice() -> None:
    assert not TABLES.keys() & load_elsewhere().keys()


def test_reasons_of_failures_are_below_the_table() -> None:
    console = Console(file=(out := io.StringIO()), width=60)
    row = ["row", "a", "failed", "90.0", "-", ""]
    console.print(reproduce.draw("title", [row], "row a seed 1 failed: no [/tmp/x]"))
    last = out.getvalue().splitlines()[-1]
    assert last.strip() == "row a seed 1 failed: no [/tmp/x]"


@pytest.mark.slow
def test_a_table_is_run_kept_and_printed_with_its_failures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "published.yaml"
    path.write_text(SMALL)
    monkeypatch.setattr(published, "PUBLISHED", path)
    door = ["tiny", "--rows", "digits", "--output", str(tmp_path), "--markdown"]
    assert main([*door, "--scale", "0.5", "--jobs", "2"]) == 1
    out, _ = capsys.readouterr()
    table = [line.split(" | ") for line in out.splitlines()]
    assert table[2][:2] == ["| digits", "fedavg"]
    assert table[2][5] == "reproduced |"
    assert table[3][2] == "failed"
    (reason,) = (line for line in out.splitlines() if "none of 6 clients" in line)
    assert reason.startswith(f"digits {table[3][1]} seed 0 failed: ")
    kept = tmp_path / "tiny" / "digits" / "fedavg-s0-x0.5" / "rounds.jsonl"
    assert len(kept.read_text().splitlines()) == 2
    stamp = kept.stat().st_mtime_ns
    assert main([*door, "--scale", "0.5", "--methods", "fedavg"]) == 0
    assert kept.stat().st_mtime_ns == stamp


@pytest.mark.slow
def test_a_figure_can_be_relative_to_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "published.yaml"
    path.write_text(SMALL)
    monkeypatch.setattr(published, "PUBLISHED", path)
    door = ["--output", str(tmp_path), "--markdown", "-q", "--jobs", "2"]
    values = {}
    for name in ("gain", "gain_time", "gain_table"):
        assert main([name, *door]) == 0
        (line,) = capsys.readouterr().out.splitlines()[2:]
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


def test_what_cannot_be_read_or_written_is_one_line(
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


def test_data_that_are_missing_can_be_named_or_fetched(
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
        for name in dataset.files:
            (raw / name).touch()

    monkeypatch.setattr(Mnist, "load", fetch)
    here = asked(tmp_path / "out", data_dir=tmp_path, download=True)
    config = reproduce.make_job(cell, 0, here)
    assert fetched == [config.data_dir] == [str(tmp_path)]
    assert not config.dataset.download, "the same run as without"
    assert reproduce.make_job(cell, 1, here).data_dir == str(tmp_path)
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
    assert "about 0:0" in out
    assert "picture: in the report" in out
    assert main(["tiny", "--rows", "others", "--list", "--output", str(tmp_path)]) == 0
    assert "about" not in capsys.readouterr().out


def test_bad_arguments_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flexcfl_table3", "--rows", "nowhere"]) == 2
    assert main(["flexcfl_table3", "--rows", "nowhere", "--list"]) == 2
    assert main(["flexcfl_table3", "--seeds", "0"]) == 2
    assert main(["flexcfl_table3", "--jobs", "0"]) == 2
    assert main(["flexcfl_table3", "--seed"]) == 2
    assert main(["fedccfa_table12"]) == 2
    assert main(["nothing"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 7
    assert "make benchmark" in lines[-2]
    assert "flexcfl_table3, flexcfl_table4" in lines[-1]
