"""In what devices differ, as the server finds it before the first round."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message

from cfl_flower import server_app
from cfl_flower.engine.hello import NO_SUMS, ask_for_differences, with_scale
from cfl_flower.errors import CflError, ConfigError
from simulations.engines.inprocess import InProcessGrid
from tests.cfl_flower.engine.sites import (
    COLUMNS,
    RUN,
    Tables,
    frame_of,
    lie_in_sums,
    start,
)


def diagnosed(grid: InProcessGrid, folder: Path, *more: str) -> list[str]:
    """Run with a diagnosis, and return its lines, with one blank between words."""
    text = f"{' '.join(RUN)} output_dir={folder} data_dir={folder.parent}"
    asked = f"{text} dataset.features=[age,city] system.diagnose=true {' '.join(more)}"
    return [" ".join(line.split()) for line in start(grid, asked)[1]]


@pytest.mark.parametrize("kind", ["nothing", "labels", "inputs", "relation"])
def test_devices_find_in_what_one_of_them_differs(kind, tmp_path):
    grid = Tables(tmp_path)
    for number, name in enumerate(COLUMNS):
        frame = frame_of("site-a", 400)
        frame = frame.sample(frac=1, random_state=number, ignore_index=True)
        odd = name == "site-c"
        if odd and kind == "labels":
            frame = frame[(frame["outcome"] == "yes") | (np.arange(400) % 4 == 0)]
        if odd and kind == "inputs":
            frame["age"] += 40
        if odd and kind == "relation":
            frame["outcome"] = frame["outcome"].map({"yes": "no", "no": "yes"})
        frame.to_csv(tmp_path / name / "data.csv", index=False)
    lines = diagnosed(grid, tmp_path / "run")
    for what in ("labels", "inputs", "relation"):
        groups = "2 (1 1 2)" if what == kind else "1 (1 1 1)"
        assert f"groups by {what}: {groups}" in lines
    assert grid.asked.count("query.describe") == 3
    rows = (tmp_path / "run" / "rounds.jsonl").read_text().splitlines()
    assert len(rows) == 2
    again = diagnosed(grid, tmp_path / "run", "rounds=3", "resume=true")
    assert not [line for line in again if line.startswith("groups")]


def test_devices_see_what_changes_in_their_own_time(tmp_path):
    for name in COLUMNS:
        frame = frame_of("site-a", 400)
        late = np.arange(400) >= 200
        swapped = frame["outcome"].map({"yes": "no", "no": "yes"})
        frame["outcome"] = frame["outcome"].where(~late, swapped)
        (tmp_path / name).mkdir()
        frame.to_csv(tmp_path / name / "data.csv", index=False)
    lines = diagnosed(Tables(tmp_path), tmp_path / "run")
    at = lines.index("The second half: other clients that one differs from")
    changed = [line.split()[5:] for line in lines[at + 2 : at + 5]]
    assert changed == [["relation"]] * 3


def test_a_device_that_keeps_its_sums_or_lies_is_not_compared(tmp_path, caplog):
    floats = 2 * 2 * 7 * 6
    grid = Tables(tmp_path, lie_in_sums(np.full(floats, -1.0)))
    lines = diagnosed(grid, tmp_path / "run", "dataset.standardise=false")
    assert "client site-c: no samples have its sums; left out" in caplog.text
    assert "groups by labels: 1 (1 1)" in lines


@pytest.mark.parametrize("own", ["system", "secure-sums"])
def test_no_sums_leave_a_device_whose_owner_keeps_them(own, tmp_path, caplog):
    sent: list[int] = []

    def look(message: Message, reply: Message) -> None:
        if message.metadata.group_id == "0" and reply.has_content():
            sent.extend(len(each) for each in reply.content.array_records.values())

    table = {"label": "outcome", "time": "day", "missing": "mean"}
    word: dict[str, Any] = {"system": {"diagnose": False}}
    if own == "secure-sums":
        target = "cfl_flower.data.datasets.tables.Csv"
        word = {"dataset": {"_target_": target, "features": ["age", "city"], **table}}
    (tmp_path / "own.json").write_text(json.dumps(word))
    more = {"settings": str(tmp_path / "own.json"), "secure-sums": own != "system"}
    grid = Tables(tmp_path, look, 3, **more)
    with pytest.raises(CflError):
        diagnosed(grid, tmp_path / "run", "dataset.standardise=false")
    assert sum(sent) == 0
    assert "owner" in caplog.text


@pytest.mark.parametrize("own", ["privacy=local", "privacy.secure_sums=true"])
def test_a_diagnosis_and_privacy_do_not_go_together(own, tmp_path):
    unscaled = "dataset.standardise=false"
    with pytest.raises(ConfigError, match=r"system\.diagnose=True is not allowed"):
        diagnosed(Tables(tmp_path), tmp_path / "run", own, unscaled)


@pytest.mark.parametrize("ask", [ask_for_differences, with_scale])
def test_a_server_whose_settings_do_not_say_so_gets_no_sums(ask, tmp_path, monkeypatch):
    found: list[Any] = []

    def asked(config: Any, fleet: Any, directory: Any) -> Any:
        try:
            found.append([len(each) for each in ask(config, fleet).values()])
        except ConfigError as error:
            found.append(str(error))
        return config

    monkeypatch.setattr(server_app, "agreed", asked)
    text = f"{' '.join(RUN)} output_dir={tmp_path}/run data_dir={tmp_path}"
    text += " dataset.standardise=false"
    start(Tables(tmp_path), text)
    assert found in ([[0, 0]], [NO_SUMS])
