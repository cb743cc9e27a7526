"""Published tables: run on a small one."""

import json
import re
import shutil
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from cfl_flower.data.datasets.images import Mnist
from cfl_flower.data.reading.files import may_fetch
from cfl_flower.errors import ConfigError
from cfl_flower.run_config import RunConfig
from simulations import reproduce
from simulations.papers import published, recorded
from simulations.papers.published import Cell, load_tables
from simulations.reproduce import Reproduction, main
from tests.docs import scoreboard

TABLES = load_tables()


def options(output: Path, **other: object) -> Namespace:
    """Return a command line that asks for this folder."""
    plain = {"scale": 1, "data_dir": None, "download": False, "gpus": 0.0}
    return Namespace(output=output, **(plain | other))


def compose_cell(cell: Cell, seed: int, options: Namespace) -> RunConfig:
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
newcomers:
  title: Who joins in the course of the run
  source: nobody
  measure: last accuracy_newcomers
  tolerance: 50
  overrides: [evaluation=prequential, "devices.joins=[3]"]
  methods: {fedavg: [strategy=fedavg]}
  columns: [fedavg]
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
    # Said before anything runs.
    monkeypatch.setattr(reproduce, "reproduce", None)
    assert main([*command, "--check", "--seeds", "2"]) == 2
    assert re.search("--check=tiny .*seed 1 .*use seeds 0", capsys.readouterr().err)
    assert main([*command, "--check", "--record"]) == 2
    assert "--record" in capsys.readouterr().err


@pytest.mark.usefixtures("small")
def test_devices_join_at_the_same_part_of_a_shorter_run(tmp_path, capsys):
    command = ["newcomers", "--output", str(tmp_path), "-q", "--markdown"]
    assert main([*command, "--scale", "0.5"]) == 0
    assert "| digits | fedavg |" in capsys.readouterr().out
    # Nobody joins in a run of one round.
    assert main([*command, "--scale", "0.25"]) == 1
    *_, row, _, reason = capsys.readouterr().out.splitlines()
    assert row.startswith("| digits | fedavg | failed |")
    assert reason.endswith("seed 0 failed: no round of its 1 has accuracy_newcomers")


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
        assert may_fetch(dataset.download)
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


def test_the_parts_of_a_hybrid_are_fetched(monkeypatch, tmp_path):
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody listens there
    cell = TABLES["stocfl_table3"].cell("hybrid", "global")
    with pytest.raises(ConfigError, match=r"MNIST cannot be fetched"):
        compose_cell(cell, 0, options(tmp_path, data_dir=tmp_path, download=True))


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
    rows = "--rows nowhere"
    for asked in (rows, f"{rows} --list", "--seeds 0", "--jobs 0", "--seed"):
        assert main(["flexcfl_table3", *asked.split()]) == 2
    assert main(["fedccfa_table12"]) == main(["nothing"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 7
    assert "scale.md" in lines[-2]
    assert "flexcfl_table3, flexcfl_table4" in lines[-1]


def test_what_many_rows_lack_is_said_once(tmp_path, capsys):
    assert main(["flexcfl_table1", "--list", "--data-dir", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert out.count("not here: note 1") == 4
    assert out.count("name their folder by --data-dir, or add --download") == 1
