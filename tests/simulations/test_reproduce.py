"""Published tables: composed as they are, and run on a small one."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from cfl_flower.config import CONF, compose_config
from cfl_flower.errors import ConfigError
from cfl_flower.results import finished
from simulations import reproduce
from simulations.jobs import Job, work
from simulations.reproduce import Measured, Published, lines, load_published, main

TABLES = load_published()

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
            folder, _, name = row["overrides"][0].partition("=")[2].partition("/")
            used.setdefault(folder, set()).add(name)
        for name, row in table.rows.items() if table.runs else ():
            assert TABLES[table.runs].rows[name]["overrides"] == row["overrides"]
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
    cell = reproduce.Cell("digits", "fedavg", None, ["strategy=fedavg", "clients=6"])
    small = [*cell.overrides, "participants=3", "rounds=2", "drift=none"]
    config = reproduce.make_job(replace(cell, overrides=small), 0, 1, tmp_path)
    assert work([Job("digits", config)]).endswith("(exit code 0)")
    assert finished(config)
    other = [*small, "strategy.local.mu=1"]
    changed = reproduce.make_job(replace(cell, overrides=other), 0, 1, tmp_path)
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


def test_rows_that_are_not_there_are_named() -> None:
    for rows, methods in ((["nothing"], []), (["synthetic"], ["fedavg", "fedAvg"])):
        with pytest.raises(ConfigError, match="synthetic_mclr"):
            TABLES["flexcfl_table3"].cells(rows, methods)


def test_a_line_says_what_was_published_and_how_far_it_is() -> None:
    table = Published("", "", "best", 1.5, {"a": []}, ["a"], {})
    cell = reproduce.Cell("row", "a", 90.0, [])
    measured = {("row", "a"): Measured([91.0, 92.0])}
    assert lines(table, [cell], measured) == [
        ["row", "a", "91.5 ± 0.7", "90.0", "+1.5", "reproduced"]
    ]
    failed = {("row", "a"): Measured([], ["why"])}
    assert lines(table, [cell], failed)[0][2:] == ["failed", "90.0", "-", ""]
    part = {("row", "a"): Measured([80.0], ["why"])}
    (line,) = lines(table, [cell], part)
    assert line[2:] == ["80.0", "90.0", "-10.0", "below, without 1 failed"]


def test_bytes_are_compared_with_the_models_of_fedavg() -> None:
    figure = TABLES["flexcfl_figure6"]
    config = compose_config(["model=mclr", "rounds=4", "participants=5"])
    # 650 parameters, to and from five clients in four rounds.
    assert figure.value(config, {"bytes_up": 52_000, "bytes_down": 52_000}) == 100
    assert figure.value(config, {"bytes_up": 52_000, "bytes_down": 78_000}) == 125
    assert figure.unit == "bytes in % of FedAvg's"
    assert TABLES["flexcfl_table4"].unit == "accuracy in %, best"


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
    published = tmp_path / "published.yaml"
    published.write_text(SMALL)
    monkeypatch.setattr(reproduce, "PUBLISHED", published)
    asked = ["tiny", "--rows", "digits", "--output", str(tmp_path), "--markdown"]
    assert main([*asked, "--scale", "0.5", "--jobs", "2"]) == 1
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
    assert main([*asked, "--scale", "0.5", "--methods", "fedavg"]) == 0
    assert kept.stat().st_mtime_ns == stamp


def test_the_list_names_tables_rows_and_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    published = tmp_path / "published.yaml"
    published.write_text(SMALL)
    monkeypatch.setattr(reproduce, "PUBLISHED", published)
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
    assert main(["tiny", "--rows", "others", "--list", "--output", str(tmp_path)]) == 0
    assert "about" not in capsys.readouterr().out


def test_bad_arguments_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flexcfl_table3", "--rows", "nowhere"]) == 2
    assert main(["flexcfl_table3", "--rows", "nowhere", "--list"]) == 2
    assert main(["flexcfl_table3", "--seeds", "0"]) == 2
    assert main(["flexcfl_table3", "--jobs", "0"]) == 2
    assert main(["flexcfl_table3", "--seed"]) == 2
    assert main(["nothing"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 6
    assert "flexcfl_table3, flexcfl_table4" in lines[-1]
