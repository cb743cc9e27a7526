"""The track: tuned, run, resumed, and its rows read again."""

import json
import re
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
from tests.docs.track import FOLDER, say_commits, situations, write_page

SMALL = """
version: 7
rates: [0.1, 0.5, 1.0e+30]
tuning_seed: 9
seeds: 3
fine_tunings:
  short: [strategy.fine_tuning=1, strategy.fine_tuning_rate=0.0001]
  long: [strategy.fine_tuning=2, strategy.fine_tuning_rate=0.3]
uses:
  ls: [strategy.label_shares=true]
  ft: [strategy.fine_tuning=1]
methods:
  without: [fedavg, fedavg_ft, better]
  clusters: [ifca, ours]
  bound: [oracle]
trained: [better]
overrides:
  - partition.validation=0.2
  - strategy.local.epochs=1
  - engine=inprocess
streams:
  moved:
    title: labels move
    seed: 30
    overrides: &small [clients=8, participants=4, rounds=3, "drift.rounds=[2]"]
  still:
    title: nothing changes
    seed: 60
    overrides: [*small, "drift.rounds=[]"]
    ranked: false
  unseen:
    title: no labels
    seed: 90
    measure: accuracy_unlabelled
    methods: {without: [fedavg], clusters: [flux], bound: []}
    overrides: [*small, "drift.rounds=[]"]
    ranked: false
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
    run = folder / "v7" / "moved" / "ifca" / f"{best}-s2" / "rounds.jsonl"
    lines = [json.loads(line) for line in run.read_text().splitlines()]
    mean = sum(line["accuracy"] for line in lines) / len(lines)
    assert result["scores"][2] == pytest.approx(mean, abs=1e-5)
    assert result["last"][2] == pytest.approx(lines[-1]["accuracy"], abs=1e-5)
    # IFCA sends and tests all models, and FedAvg one.
    for cost in ("megabytes", "client_epochs"):
        assert min(result[cost]) > max(rows["fedavg"]["streams"]["moved"][cost])
    assert "client epochs" in shown
    # Nothing that is finished runs again.
    before = run.stat().st_mtime_ns
    assert track.main(command) == 0
    assert run.stat().st_mtime_ns == before
    assert rows_of(folder) == rows


def test_fine_tuning_is_tuned_with_the_best_learning_rate(folder):
    asked = ["ifca_ft", "--streams", "still", "--output", str(folder), "-q"]
    assert track.main(asked) == 0
    row = rows_of(folder)["ifca_ft"]
    assert row["overrides"] == ["strategy=ifca", "strategy.fine_tuning=1"]
    result = row["streams"]["still"]
    best = f"{result['rate']:g}"
    tried = {way: result["tuning"][f"{best} {way}"] for way in ("short", "long")}
    assert result["fine_tuning"] == max(tried, key=tried.__getitem__)
    runs = folder / "v7" / "still" / "ifca_ft"
    of_seeds = {path.name for path in runs.glob("*-s[012]")}
    assert of_seeds == {f"{best}-{result['fine_tuning']}-s{n}" for n in range(3)}


@pytest.mark.slow
@pytest.mark.whole
def test_streams_have_seeds_of_their_own_and_label_shares_are_a_use(folder):
    asked = ["fedavg_ls", "fedavg", "--output", str(folder), "-q"]
    assert track.main([*asked, "--streams", "moved", "still"]) == 0
    found = rows_of(folder)["fedavg_ls"]["streams"]
    for stream, first in (("moved", 30), ("still", 60)):
        runs = sorted((folder / "v7" / stream / "fedavg_ls").glob("*-s[012]"))
        texts = [(run / "config.yaml").read_text() for run in runs]
        seeds = [int(re.search(r"^seed: (\d+)", text, re.M)[1]) for text in texts]
        assert seeds == [first, first + 1, first + 2]
        plain = rows_of(folder)["fedavg"]["streams"][stream]
        assert found[stream]["scores"] != plain["scores"]
        assert found[stream]["client_epochs"] == plain["client_epochs"]


@pytest.mark.slow
@pytest.mark.whole
def test_all_are_those_of_the_protocol_and_of_the_stream(folder, capsys):
    asked = ["--all", "--streams", "unseen", "--output", str(folder), "-q"]
    assert track.main(asked) == 0
    made = rows_of(folder)
    assert made.keys() == {"fedavg", "flux"}
    run = next((folder / "v7" / "unseen" / "flux").glob("*-s0"))
    lines = [json.loads(line) for line in (run / "rounds.jsonl").open()]
    scores = [line.get("accuracy_unlabelled", line["accuracy"]) for line in lines]
    mean = sum(scores) / len(scores)
    assert made["flux"]["streams"]["unseen"]["scores"][0] == pytest.approx(mean, 1e-4)
    # A method that chooses no model by inputs is not asked.
    assert track.main(["ifca", *asked[1:]]) == 0
    assert rows_of(folder).keys() == made.keys()


@pytest.mark.slow
@pytest.mark.whole
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


@pytest.mark.slow
@pytest.mark.whole
def test_a_row_that_comes_with_the_project_is_added_to_and_not_replaced(
    folder, capsys, monkeypatch
):
    asked = ["fedavg", "--output", str(folder), "-q", "--markdown", "--streams"]
    assert track.main([*asked, "moved"]) == 0
    monkeypatch.setattr(track, "ROWS", folder.parent / "rows")
    (folder / "v7" / "rows").rename(track.ROWS)
    other = ["ifca", "strategy.weighting=plain", "--name", "fedavg"]
    assert track.main([*other, *asked[1:], "still"]) == 2
    assert "use another --name" in capsys.readouterr().err
    assert track.main([*asked, "still"]) == 0
    protocol = load_protocol()
    known = track.known_rows(track.Track(track.parse([*asked, "still"], protocol)))
    assert known["fedavg"].streams.keys() == {"moved", "still"}


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["nonsense"], "METHOD=nonsense"),
        (["ifca_xx"], "_ls, _ft may follow"),
        (["fedavg", "--streams", "moon"], "--streams=moon"),
        (["fedavg", "ifca", "--name", "both"], "--name=both"),
        *(
            (["fedavg", word, "--name", "mine"], f"METHOD={word}")
            for word in (
                *("rounds=1", "dataset=mnist", "seed=3", "strategy=ifca"),
                *("strategy.local.learning_rate=1", "strategy.fine_tuning_rate=1"),
            )
        ),
        *(
            (["fedavg", "--name", name], f"--name={name}")
            for name in ("../mine", "a/b", "", ".mine", "mine 2")
        ),
    ],
)
def test_bad_input_is_refused(folder, capsys, words, part):
    assert track.main(words) == 2
    assert part in capsys.readouterr().err


MOVED = {
    **{"rate": 0.1, "tuning": {"0.1": 0.5, "0.5": None}, "scores": [0.5, 0.6, 0.7]},
    **{"megabytes": [1, 1, 1], "device_hours": [None] * 3, "client_epochs": [4, 4, 4]},
    **{"last": [0.5, 0.6, 0.7], "tuned": 0.5, "seconds": 3, "code": ["abc"]},
}
ROW = {
    **{"name": "mine", "version": 7, "overrides": ["strategy=mine"]},
    "provenance": {"cfl-flower": "1", "commit": None},
    "streams": {"moved": MOVED},
}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": 6}, "is of version 6 of the track, not 7"),
        ({"streams": {"moon": MOVED}}, "a stream 'moon'"),
        ({"streams": {"moved": {**MOVED, "scores": [0.5]}}}, "not 3 seeds"),
        (
            {"streams": {"moved": {**MOVED, "scores": [2] * 3}}},
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


def make_row(name: str, scores: list[float]) -> TrackRow:
    result = MOVED | {"scores": scores, "last": scores[::-1]}
    fields = {**ROW, "name": name, "overrides": [f"strategy={name}"]}
    return TrackRow(**{**fields, "streams": {"moved": StreamResult(**result)}})


def test_leads_are_marked(folder):
    made = [
        make_row("fedavg", [0.50, 0.61, 0.70]),
        make_row("better", [0.60, 0.71, 0.81]),
        make_row("worse", [0.30, 0.41, 0.49]),
    ]
    rows = {row.name: row for row in made}
    protocol = load_protocol()
    page = write_page(rows, protocol, folder).read_text()
    assert "| better | 70.7 ± 26.1 ▲ | - | - | 1.0 | 1.0 | 4 |" in page
    assert "| worse | 40.0 ± 23.7 ▼ | - | - | 3.0 |" in page


def tuned(row: TrackRow, score: float, fine: str | None = None) -> TrackRow:
    """Return a row with another score of its tuning."""
    result = row.streams["moved"]
    row.streams["moved"] = replace(result, tuned=score, fine_tuning=fine)
    return row


def test_the_map_compares_the_rows_that_the_tunings_seed_prefers(folder):
    made = [
        tuned(make_row("fedavg", [0.50, 0.61, 0.70]), 0.6),
        # The best with the seeds of the scores, which have no part in the choice.
        tuned(make_row("better", [0.90, 0.90, 0.90]), 0.5),
        tuned(make_row("fedavg_ft", [0.52, 0.63, 0.71]), 0.7, "long"),
        tuned(make_row("ifca", [0.62, 0.72, 0.82]), 0.8),
        tuned(make_row("ours", [0.2, 0.2, 0.2]), 0.7),
        tuned(make_row("oracle", [0.52, 0.66, 0.71]), 0.1),
    ]
    protocol = load_protocol()
    rows = {row.name: row for row in made}
    (line,) = situations(rows, protocol).lines
    assert line[:4] == ["`moved`", "labels move", "ifca", "fedavg_ft 62.0"]
    gains = ["+10.0 ± 2.5", "+1.0 ± 4.3, no lead"]
    # The last tests are those of the seeds in another order.
    told = [f"{each}; at the end {each}" for each in gains]
    assert line[4:6] == [f"ifca 72.0: {told[0]}", f"oracle 63.0: {told[1]}"]
    assert line[6:] == ["1 / 1", "4 / 4"]
    # Who cannot train has neither fine-tuning nor a model of its own.
    (line,) = situations(rows, protocol, untrained=True).lines
    assert line[3] == "fedavg 60.3"
    del rows["ifca"]
    (line,) = situations(rows, protocol).lines
    assert line[2] == "fedavg_ft"


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
    # Whoever reads a row can run it by its name.
    assert all(row.overrides == protocol.method(name) for name, row in rows.items())


def test_rows_of_another_commit_are_named():
    commits = {"a": "x" * 40, "b": "y" * 40, "c": "x" * 40}
    rows = {
        name: replace(make_row(name, [0.5, 0.6, 0.7]), provenance={"commit": commit})
        for name, commit in commits.items()
    }
    assert say_commits(rows) == "`xxxxxxx`; those of `b` are of `yyyyyyy`"
    assert say_commits({"a": rows["a"]}) == "`xxxxxxx`"


def test_a_method_that_cannot_run_says_why(folder, capsys):
    words = ["fedavg", "strategy.weighting=none", "--name", "wrong"]
    command = [*words, "--output", str(folder), "-q", "--streams", "still"]
    assert track.main(command) == 1
    assert "still fedavg: no result: strategy.weighting=none" in capsys.readouterr().err
    assert not rows_of(folder)
