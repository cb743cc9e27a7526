"""The track: tuned, run, resumed, and its rows read again."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cfl_flower.errors import ConfigError
from simulations import track
from simulations.tracking import rows
from simulations.tracking.rows import (
    ROWS,
    StreamResult,
    TrackRow,
    load_protocol,
    read_row,
    read_rows,
)
from simulations.tracking.table import ranks_of
from tests.docs.track import FOLDER, write_page

SMALL = """
version: 7
rates: [0.1, 0.5, 1.0e+30]
tuning_seed: 9
seeds: 3
fine_tuning_rates: [0.0001, 0.3]
overrides:
  - partition.validation=0.2
  - strategy.local.epochs=1
  - engine=inprocess
streams:
  moved:
    title: labels move
    overrides: &small [clients=8, participants=4, rounds=3, "drift.rounds=[2]"]
  still:
    title: nothing changes
    overrides: [*small, "drift.rounds=[]"]
    control: true
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    path = tmp_path / "protocol.yaml"
    path.write_text(SMALL)
    monkeypatch.setattr(rows, "PROTOCOL", path)
    monkeypatch.setattr(track, "ROWS", tmp_path / "none")
    load_protocol.cache_clear()
    yield tmp_path / "out"
    load_protocol.cache_clear()


def rows_of(folder: Path) -> dict[str, dict[str, object]]:
    paths = (folder / "v7" / "rows").glob("*.json")
    return {path.stem: json.loads(path.read_bytes()) for path in paths}


def test_methods_are_tuned_run_and_ranked(folder, capsys):
    command = ["fedavg", "ifca", "--streams", "moved", "--output", str(folder), "-q"]
    assert track.main(command) == 0
    shown = capsys.readouterr().out
    assert "Ranks are averages over 1 streams (moved) of the 2 methods" in shown
    rows = rows_of(folder)
    assert rows.keys() == {"fedavg", "ifca"}
    result = rows["ifca"]["streams"]["moved"]
    assert len(result["scores"]) == 3
    # The largest diverges, which costs that rate alone.
    tuning = dict(result["tuning"])
    assert tuning.pop("1e+30") is None
    best = max(tuning, key=tuning.__getitem__)
    assert result["rate"] == float(best)
    # A score is the mean accuracy over the rounds of its run.
    run = folder / "v7" / "moved" / "ifca" / f"rate{best}-s2" / "rounds.jsonl"
    lines = [json.loads(line) for line in run.read_text().splitlines()]
    mean = sum(line["accuracy"] for line in lines) / len(lines)
    assert result["scores"][2] == pytest.approx(mean, abs=1e-5)
    # IFCA sends and tests all models, and FedAvg one.
    for cost in ("megabytes", "client_epochs"):
        assert min(result[cost]) > max(rows["fedavg"]["streams"]["moved"][cost])
    assert "client epochs" in shown
    # Nothing that is finished runs again.
    before = run.stat().st_mtime_ns
    assert track.main(command) == 0
    assert run.stat().st_mtime_ns == before
    assert rows_of(folder) == rows


def test_the_rate_of_fine_tuning_is_tuned_with_the_best_learning_rate(folder):
    asked = ["fedavg_ft", "--streams", "still", "--output", str(folder), "-q"]
    assert track.main(asked) == 0
    result = rows_of(folder)["fedavg_ft"]["streams"]["still"]
    method = folder / "v7" / "still" / "fedavg_ft"
    best = f"rate{result['rate']:g}"
    tried = {}
    for fine in (0.0001, 0.3):
        run = method / f"{best}-ft{fine:g}-s9" / "rounds.jsonl"
        lines = [json.loads(line) for line in run.read_text().splitlines()]
        tried[fine] = sum(line["validation_accuracy"] for line in lines)
    assert result["fine_tuning_rate"] == max(tried, key=tried.__getitem__)
    seeds = {path.name for path in method.glob("*-s[012]")}
    assert seeds == {f"{best}-ft{result['fine_tuning_rate']:g}-s{n}" for n in range(3)}


def test_a_row_of_other_settings_needs_a_name_and_keeps_other_streams(folder, capsys):
    settings = ["fedavg", "strategy.weighting=plain", "--output", str(folder), "-q"]
    assert track.main(settings) == 2
    assert "--name" in capsys.readouterr().err
    named = [*settings, "--name", "plain_mean"]
    assert track.main([*named, "--streams", "still"]) == 0
    assert rows_of(folder)["plain_mean"]["streams"].keys() == {"still"}
    assert track.main([*named, "--streams", "moved"]) == 0
    assert rows_of(folder)["plain_mean"]["streams"].keys() == {"still", "moved"}
    other = ["fedavg", "--name", "plain_mean", "--streams", "moved"]
    assert track.main([*other, "--output", str(folder), "-q"]) == 2
    assert "use another --name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["nonsense"], "METHOD=nonsense"),
        (["fedavg", "--streams", "moon"], "--streams=moon"),
        (["fedavg", "ifca", "--name", "both"], "--name=both"),
        (["fedavg", "--first-seed", "5"], "--name=None"),
    ],
)
def test_bad_input_is_refused(folder, capsys, words, part):
    assert track.main(words) == 2
    assert part in capsys.readouterr().err


ROW = {
    "name": "mine",
    "version": 7,
    "overrides": ["strategy=mine"],
    "provenance": {"cfl-flower": "1", "commit": None},
    "streams": {
        "moved": {
            "rate": 0.1,
            "tuning": {"0.1": 0.5, "0.5": None},
            "scores": [0.5, 0.6, 0.7],
            "megabytes": [1, 1, 1],
            "device_hours": [None, None, None],
            "seconds": 3,
            "code": ["abc"],
        }
    },
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 6}, "is of version 6 of the track, not 7"),
        ({"streams": {"moon": ROW["streams"]["moved"]}}, "a stream 'moon'"),
        (
            {"streams": {"moved": {**ROW["streams"]["moved"], "scores": [0.5]}}},
            "not 3 seeds",
        ),
        (
            {"streams": {"moved": {**ROW["streams"]["moved"], "scores": [2, 2, 2]}}},
            "is no row of the track",
        ),
        ({"extra": 1}, "is no row of the track"),
    ],
)
def test_a_row_that_does_not_fit_is_refused(folder, change, words):
    path = folder.parent / "mine.json"
    path.write_text(json.dumps({**ROW, **change}))
    with pytest.raises(ConfigError, match=words):
        read_row(path, load_protocol())


def make_row(name: str, scores: list[float], first_seed: int = 0) -> TrackRow:
    result = ROW["streams"]["moved"] | {"scores": scores}
    overrides = ["strategy=fedavg"] if first_seed else [f"strategy={name}"]
    fields = {**ROW, "name": name, "overrides": overrides, "first_seed": first_seed}
    return TrackRow(**{**fields, "streams": {"moved": StreamResult(**result)}})


def test_leads_are_marked_and_a_repetition_has_none_and_no_rank(folder):
    made = [
        make_row("fedavg", [0.50, 0.61, 0.70]),
        make_row("better", [0.60, 0.71, 0.81]),
        make_row("worse", [0.30, 0.41, 0.49]),
        make_row("again", [0.61, 0.52, 0.66], first_seed=3),
    ]
    rows = {row.name: row for row in made}
    protocol = load_protocol()
    page = write_page(rows, protocol, folder).read_text()
    assert "| better | 70.7 ± 26.1 ▲ | - | 1.0 |" in page
    assert "| worse | 40.0 ± 23.7 ▼ | - | 3.0 |" in page
    assert "| again | 59.7 ± 17.6 | - | - |" in page
    assert "from seed 3 on. It is ahead or behind on none of 1 streams" in page
    assert "difference is -0.7 points, on `moved`" in page


def test_rows_with_fine_tuning_are_compared_with_each_other(folder):
    made = [
        make_row("fedavg", [0.50, 0.61, 0.70]),
        make_row("fedavg_ft", [0.80, 0.71, 0.90]),
        make_row("better_ft", [0.81, 0.72, 0.91]),
    ]
    protocol = load_protocol()
    rows = {row.name: row for row in made}
    page = write_page(rows, protocol, folder).read_text()
    assert "| stream | fedavg_ft | better_ft |" in page
    assert "| `moved` | 80.3 ± 23.6 | +1.0 ± 0.0 |" in page
    del rows["better_ft"]
    assert "## With" not in write_page(rows, protocol, folder).read_text()


@pytest.mark.parametrize(("rate", "said"), [(0.1, True), (0.5, False)])
def test_rates_at_the_end_of_the_grid_are_named(folder, rate, said):
    row = make_row("ours", [0.5, 0.6, 0.7])
    row.streams["moved"] = replace(row.streams["moved"], rate=rate)
    page = write_page({"ours": row}, load_protocol(), folder).read_text()
    assert ("better beyond it (0.1: ours)" in page) == said


def test_the_page_in_docs_is_what_the_rows_say(tmp_path):
    protocol = load_protocol()
    rows = read_rows(ROWS, protocol)
    written = write_page(rows, protocol, tmp_path)
    assert written.read_bytes() == (FOLDER / "README.md").read_bytes()
    ranks, streams = ranks_of(rows, protocol)
    assert ranks and set(streams) <= set(protocol.ranked)


def test_a_method_that_cannot_run_says_why(folder, capsys):
    words = ["fedavg", "strategy.weighting=none", "--name", "wrong"]
    command = [*words, "--output", str(folder), "-q", "--streams", "still"]
    assert track.main(command) == 1
    assert "still fedavg: no result: strategy.weighting=none" in capsys.readouterr().err
    assert not rows_of(folder)
