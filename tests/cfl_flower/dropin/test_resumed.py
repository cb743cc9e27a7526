"""Who goes on from what was saved, and with what."""

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import cfl_flower.strategies as plain
import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from cfl_flower.errors import CflError
from cfl_flower.runs.checkpoint import Checkpoint
from simulations.engines.inprocess import InProcessGrid
from tests.cfl_flower.dropin.apps import (
    INITIAL,
    SEEDED,
    choosing,
    labels_of_half,
    make_app,
    record,
    start,
)

KINDS: list[tuple[Any, dict[str, Any]]] = [
    (plain.FedAvg, {}),
    (plain.CFL, {}),
    (plain.FlexCFL, {"clusters": 2}),
    (plain.StoCFL, {}),
    (plain.FeSEM, SEEDED),
    (plain.Auxo, {}),
    (plain.IFCA, SEEDED),
    (plain.FedDrift, {}),
    (plain.Fielding, {}),
    (plain.Static, {}),
]


CHOOSE = {each for kind in (plain.IFCA, plain.FedDrift) for each in (kind, kind.resume)}


def run(kind: Any, arrays: ArrayRecord, rounds: int, **options: Any) -> Any:
    """Run four nodes."""
    chooses = getattr(kind, "func", kind) in CHOOSE
    app = choosing() if chooses else make_app(labels_of_half)
    return start(app, kind, rounds, arrays, **options)


def resuming(kind: Any, folder: Path) -> Any:
    """Return what makes a strategy that goes on."""
    return partial(kind.resume, folder)


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_the_same_arrays_and_settings_go_on(kind, options, tmp_path):
    whole = run(kind, record(), 1, checkpoint=tmp_path, **options)
    go_on = resuming(kind, tmp_path)
    # After its last round it has what it had.
    again = run(go_on, record(), 1, **options)
    assert again.arrays.keys() == whole.arrays.keys() == record().keys()
    assert again.cluster_arrays == whole.cluster_arrays
    assert run(go_on, record(), 2, **options).failures.keys() == {2}


def changed(**arrays: Any) -> ArrayRecord:
    """Return other arrays, None for one that is absent."""
    named = {k: arrays.get(k.split(".")[1], each) for k, each in INITIAL.items()}
    return ArrayRecord({k: Array(e) for k, e in named.items() if e is not None})


OTHERS = {
    "shape": changed(weight=np.zeros((3, 2))),
    "size": changed(weight=np.zeros((8, 2))),
    "type": changed(weight=np.zeros((2, 3), np.float32)),
    "counter": changed(seen=None),
    "shape of a counter": changed(seen=np.zeros(3, np.int64)),
    "more": record(more=np.zeros(1)),
    "more counters": record(more=np.zeros(1, np.int64)),
    "order": ArrayRecord(dict(reversed([*record().items()]))),
    "names": ArrayRecord({f"net.{k}": each for k, each in record().items()}),
}


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("kind", [plain.FedAvg, plain.CFL, plain.Fielding])
def test_other_arrays_are_refused_before_training(kind, other, tmp_path):
    run(kind, record(), 1, checkpoint=tmp_path)
    with pytest.raises(CflError, match=r"another run: initial_arrays.* was") as found:
        run(resuming(kind, tmp_path), OTHERS[other], 2)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("kind", "options", "other"),
    [
        (plain.FlexCFL, {"clusters": 2}, {"clusters": 1}),
        (plain.FlexCFL, {"clusters": 2}, {"clusters": 5}),
        (plain.FeSEM, SEEDED, {"clusters": 3}),
        (plain.StoCFL, {}, {"regularisation": 0.5}),
        (plain.Fielding, {}, {"distance": "l2"}),
        (plain.FedAvg, {}, {"weight_cap": None}),
        (plain.FedAvg, {"seed": 3}, {"seed": 0}),
    ],
)
def test_other_settings_are_refused_before_training(kind, options, other, tmp_path):
    run(kind, record(), 1, checkpoint=tmp_path, **options)
    (name,) = other
    words = f"another run: strategy.{name} was|seed=0 is not allowed; use seed=3, with"
    with pytest.raises(CflError, match=words) as found:
        run(resuming(kind, tmp_path), record(), 2, **{**options, **other})
    assert "\n" not in str(found.value)


def test_what_was_saved_without_its_seed_goes_on(tmp_path):
    run(plain.FedAvg, record(), 1, checkpoint=tmp_path, seed=3)
    path = tmp_path / "checkpoint.json"
    header = json.loads(path.read_text())
    del header["state"]["fields"]["seed"]
    state = json.dumps(header["state"]).encode()
    header["state_sha256"] = hashlib.sha256(state).hexdigest()
    path.write_text(json.dumps(header))
    assert run(resuming(plain.FedAvg, tmp_path), record(), 2).failures.keys() == {2}


def test_a_checkpoint_that_cannot_be_written_is_one_line_before_training(tmp_path):
    (tmp_path / "file").touch()
    # Nobody is asked.
    with pytest.raises(CflError, match=r"^checkpoint=.*cannot be written") as found:
        start(None, initial=record(), checkpoint=tmp_path / "file" / "saved")
    assert "\n" not in str(found.value)


def test_what_is_saved_is_neither_lost_nor_taken_for_another_methods(tmp_path):
    saved = tmp_path / "saved"
    with pytest.raises(CflError, match=r"resume=.* is not allowed; use a folder with"):
        run(resuming(plain.FedAvg, saved), record(), 1)
    run(plain.Fielding, record(), 2, checkpoint=saved)
    for checkpoint in (saved, str(saved)):
        with pytest.raises(
            CflError, match=r"go on with resume\(\): it holds a saved run"
        ):
            run(plain.Fielding, record(), 1, checkpoint=checkpoint)
    with pytest.raises(CflError, match="another run: method was Fielding, is Static"):
        run(resuming(plain.Static, saved), record(), 3)
    # In the same folder, and with nodes of which none reports.
    grid = InProcessGrid([{"partition-id": node} for node in range(4)], make_app())
    strategy = plain.Fielding.resume(saved, checkpoint=saved)
    assert strategy.start(grid, record(), 4).clusters.keys() == set(range(1000, 1004))
    assert Checkpoint(saved, {}).read_header()["round"] == 4
