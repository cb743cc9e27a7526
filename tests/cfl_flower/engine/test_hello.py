"""What devices agree on before the first round, with tables of their own."""

import json
import logging
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flwr.app import Error, Message
from PIL import Image

from cfl_flower.communication.identity import pack_words
from cfl_flower.data.datasets.tables import Csv
from cfl_flower.data.reading.agreement import UNITS
from cfl_flower.errors import CflError, ConfigError
from tests.cfl_flower.data.datasets.test_preprocessing import inputs_of
from tests.cfl_flower.engine.sites import (
    COLUMNS,
    RUN,
    Tables,
    frame_of,
    lie_in_sums,
    numbers,
    run,
    start,
)


@pytest.mark.parametrize("masks", [False, True])
def test_three_sites_train_on_tables_whose_orders_differ(masks, tmp_path):
    known = run(Tables(tmp_path), tmp_path / "run", f"privacy.secure_sums={masks}")
    assert [each.get("category") for each in known["inputs"]] == [
        *(None, "Basel", "Bern", "Ulm", "Zug")
    ]
    assert known["classes"] == ["no", "yes"]
    # What each site trains on is what the file makes of its own rows.
    settings = {"label": "outcome", "time": "day", "missing": "mean", "shape": (5,)}
    agreed = {"agreed": known["inputs"], "names": known["classes"], "classes": 2}
    held = []
    for name in COLUMNS:
        train, test = Csv(**settings, **agreed).load(str(tmp_path / name))
        held.append(train.x.numpy())
        frame = frame_of(name).astype({"age": float})
        for pool in (train, test):
            rows = (pool.times - pool.times.min()) // 86400
            start = pd.to_datetime(frame["day"]).to_numpy("datetime64[us]")
            rows = np.searchsorted(start.astype(np.int64), pool.times)
            expected = inputs_of(known, frame.iloc[rows])
            np.testing.assert_allclose(pool.x, expected, atol=1e-6)
    x = np.concatenate(held)
    np.testing.assert_allclose(x.mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(x[:, 1:].std(axis=0), 1, atol=1e-5)
    assert numbers(tmp_path / "run")[-1][1] > 0.6
    assert not (tmp_path / "run" / "concepts.json").exists()


def test_a_run_that_is_resumed_does_not_ask_again(tmp_path):
    before = run(Tables(tmp_path), tmp_path / "run")
    grid = Tables(tmp_path)
    assert run(grid, tmp_path / "run", "rounds=3", "resume=true") == before
    assert "query.describe" not in grid.asked
    run(Tables(tmp_path), tmp_path / "whole", "rounds=3")
    assert numbers(tmp_path / "run") == numbers(tmp_path / "whole")


def test_an_owner_may_fix_the_table_and_let_the_rest_be_agreed_on(tmp_path):
    table = {"label": "outcome", "time": "day", "missing": "mean"}
    word = {"_target_": "cfl_flower.data.datasets.tables.Csv", **table}
    (tmp_path / "own.json").write_text(json.dumps({"dataset": word}))
    own = {"settings": str(tmp_path / "own.json"), "secure-sums": True}
    known = run(Tables(tmp_path, **own), tmp_path / "run", "privacy.secure_sums=true")
    assert len(known["inputs"]) == 5
    for other in ("dataset.features=[age]", "dataset.label=city"):
        with pytest.raises(ConfigError, match="no device says what its data are"):
            run(Tables(tmp_path, **own), tmp_path / "other", other)


def write_arrays(folder: Path, number: int) -> None:
    """Write samples of two classes, but of one at the first site, in three forms."""
    rng = np.random.default_rng(number)
    names = np.where(np.arange(40) % 2 * number > 0, "dog", "cat")
    np.savez(folder / "data.npz", x=rng.normal(number, 1, (40, 1, 4, 4)), y=names)
    for place, name in enumerate(names[:20].tolist()):
        (folder / "images" / name).mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(rng.integers(0, 255, (4, 4, 3), dtype=np.uint8))
        image.save(folder / "images" / name / f"{place}.png")
    with sqlite3.connect(folder / "records.db") as database:
        database.execute("create table records (age, city, outcome, day)")
        rows = [(place, "xyz"[number], name, place) for place, name in enumerate(names)]
        database.executemany("insert into records values (?, ?, ?, ?)", rows)
    database.close()
    source = {"address": "records.db", "query": "select * from records"}
    (folder / "sql.json").write_text(json.dumps(source))


@pytest.mark.parametrize("scale", ["false", "clients"])
@pytest.mark.parametrize(
    ("dataset", "shape"),
    [
        ("dataset=npz", (1, 4, 4)),
        ("dataset=image_folder dataset.size=4", (3, 4, 4)),
        ("dataset=sql dataset.label=outcome dataset.time=day", (4,)),
    ],
)
def test_other_files_of_devices_are_read_as_in_a_simulation(
    scale, dataset, shape, tmp_path
):
    grid = Tables(tmp_path)
    for number, name in enumerate(COLUMNS):
        write_arrays(tmp_path / name, number)
    text = f"{' '.join(RUN[:7])} {dataset} dataset.standardise={scale}"
    text += f" output_dir={tmp_path}/run data_dir={tmp_path}"
    config, _ = start(grid, text)
    assert (config.dataset.shape, config.dataset.classes) == (shape, 2)
    assert len(numbers(tmp_path / "run")) == 2
    is_table = (tmp_path / "run" / "preprocessing.json").exists()
    assert is_table is dataset.startswith("dataset=sql")


def test_a_table_grows_while_its_device_learns(tmp_path):
    def grow(message: Message, reply: Message) -> None:
        path = tmp_path / "site-c" / "data.csv"
        asked = message.metadata
        if (asked.message_type, asked.group_id) == ("train", "1"):
            # With a city that nobody knew.
            more = frame_of("site-c").assign(city="Rome")
            pd.concat([frame_of("site-c"), more]).to_csv(path, index=False)

    run(Tables(tmp_path, grow), tmp_path / "run")
    lines = (tmp_path / "run" / "clients.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if row["client"] == "site-c"]
    assert [row["num_examples"] for row in rows] == [24, 24], "a fifth of 120"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda frame: frame.drop(columns="age"), "column age: .* no such column"),
        (lambda frame: frame.assign(extra=1), "column extra: .* site-c has numbers"),
        (lambda frame: frame.assign(city=7), "column city: .* site-c has numbers"),
        (lambda frame: frame.assign(city="bern"), "'Bern' and 'bern' say the same"),
    ],
)
def test_a_site_whose_table_differs_is_one_line(change, line, tmp_path):
    grid = Tables(tmp_path)
    change(frame_of("site-c")).to_csv(tmp_path / "site-c" / "data.csv", index=False)
    with pytest.raises(ConfigError, match=line):
        run(grid, tmp_path / "run")


def test_an_owner_reads_in_one_line_what_is_wrong_with_a_table(tmp_path, caplog):
    grid = Tables(tmp_path)
    (tmp_path / "site-c" / "data.csv").write_text("age;city\n1;Ulm\n")
    frame_of("site-b").replace({"yes": "ja", "no": "nein"}).to_csv(
        tmp_path / "site-b" / "data.csv", index=False
    )
    run(grid, tmp_path / "run")
    own = [record for record in caplog.records if record.levelname == "ERROR"]
    assert own
    for record in own:
        assert "dataset.label=outcome is no column of data.csv" in record.getMessage()
        assert record.exc_info is None
    told = "client site-b has classes that no other client has: ja, nein"
    assert told in caplog.text


def test_names_leave_by_their_owners_word_alone(tmp_path, caplog):
    with pytest.raises(ConfigError, match="set tell-names=true in the node configs"):
        run(Tables(tmp_path, **{"tell-names": False}), tmp_path / "run")
    assert "site-a does not say what its data are: DeviceFailedError" in caplog.text
    # A file of the operator's, without the categories of some sites, will do.
    frame_of("site-b").to_csv(tmp_path / "data.csv", index=False)
    known = run(Tables(tmp_path, **{"tell-names": False}), tmp_path / "again")
    assert [each.get("category") for each in known["inputs"]] == ["Basel", "Zug", None]


def lie_in_words(text: str) -> Any:
    def lie(message: Message, reply: Message) -> None:
        if message.metadata.message_type == "query.describe":
            reply.content = pack_words(text)

    return lie


WIDTH = 3 * 5 * len(UNITS)


@pytest.mark.parametrize(
    "lie",
    [
        *map(lie_in_words, ("", "[]", '{"shape": "x"}', "{" * 10**5)),
        *(
            lie_in_words(json.dumps({"shape": [1], "classes": ["no"], "inputs": each}))
            for each in (
                *(None, [["age", 7]], [["age"]], [["x" * 2**24, None]]),
                *([["age", None]] * 2, [["age", f"{n}"] for n in range(10_001)]),
            )
        ),
        lie_in_sums(np.full(WIDTH, np.nan)),
        lie_in_sums(np.full(WIDTH, -1.0)),
        lie_in_sums(np.full(WIDTH, 1e30)),
        lie_in_sums(np.full(WIDTH - 1, 1.0)),
    ],
)
def test_a_site_that_lies_is_left_out(lie, tmp_path, caplog):
    with caplog.at_level(logging.WARNING):
        known = run(Tables(tmp_path, lie), tmp_path / "run")
    told = [record.getMessage() for record in caplog.records]
    assert any("site-c" in each or "left out" in each for each in told)
    lost = "left out" in caplog.text or "client site-c, train" in caplog.text
    counted = list(COLUMNS)[: 2 if lost else 3]
    ages = pd.concat(map(frame_of, counted))["age"].astype(float)
    mean = next(each["mean"] for each in known["inputs"] if each["column"] == "age")
    assert mean == pytest.approx(ages.mean(), abs=2)


def test_sites_whose_sums_no_samples_have_are_counted_and_named(tmp_path, caplog):
    run(Tables(tmp_path, lie_in_sums(np.full(WIDTH, -1.0)), 2), tmp_path / "run")
    told = "2 of 3 sums are left out, as no samples have them: site-b, site-c"
    assert told in caplog.text


def test_what_a_site_says_forges_no_line_of_the_log(tmp_path, caplog):
    def lie(message: Message, reply: Message) -> None:
        if message.metadata.message_type == "query.describe":
            vars(reply).update(_content=None, _error=Error(0, "no \x1b[2Jdisk"))

    grid = Tables(tmp_path, lie)
    with caplog.at_level(logging.WARNING):
        run(grid, tmp_path / "run")
    told = "client site-c does not say what its data are: no \\x1b[2Jdisk"
    assert told in caplog.text


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (["dataset.standardise=pooled"], "pooled is not allowed; use clients or false"),
        (["privacy=local"], "does not cover sums of inputs"),
    ],
)
def test_what_a_federation_cannot_have_is_refused(settings, line, tmp_path):
    with pytest.raises(CflError, match=line):
        run(Tables(tmp_path), tmp_path / "run", *settings)


@pytest.mark.parametrize("name", ["fedavg", "fielding", "flexcfl", "stocfl", "local"])
def test_a_device_says_once_what_of_its_files_is_not_read_as_it_is(
    name, tmp_path, caplog
):
    grid = Tables(tmp_path)
    frame = frame_of("site-b")
    frame.loc[[3, 4, 5, 6, 7], "age"] = -9999
    frame.to_csv(tmp_path / "site-b" / "data.csv", index=False)
    asked = ["dataset.missing=drop", f"strategy={name}", "rounds=3", "clusters=2"]
    run(grid, tmp_path / "run", *asked)
    told = [each for each in caplog.messages if "data.csv" in each]
    lost = [each for each in told if each.endswith("rows left out: 1")]
    far = [each for each in told if "input age has -9999 in" in each]
    assert len(lost) == 3
    assert len(far) == 1
