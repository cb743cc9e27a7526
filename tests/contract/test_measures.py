"""What `metrics=[...]` adds to a run, and that it changes nothing else."""

from dataclasses import replace

import numpy as np
import pytest

from cfl_flower.analysis.comparison import score_runs
from cfl_flower.analysis.saved import load_run
from cfl_flower.errors import ConfigError
from cfl_flower.runs.checkpoint import Checkpoint
from cfl_flower.runs.directory import BEST
from cfl_flower.types import CLASS_COUNTS
from simulations.report import render
from simulations.reporting.written import class_table

COUNTED = ("balanced_accuracy", "macro_f1", "calibration")
METRICS = f"metrics=[{','.join(COUNTED)}]"


def test_the_worst_tenth_is_that_of_the_clients(run_small, undisturbed):
    run = run_small("metrics=[worst_tenth]")
    for row in run.rounds:
        own = [e["accuracy"] for e in run.clients if e["round"] == row["round"]]
        # Two of twelve.
        assert row.pop("worst_tenth") == pytest.approx(sum(sorted(own)[:2]) / 2)
    assert run.clients == undisturbed().clients


@pytest.mark.parametrize("name", ["fielding", "ccfl"])
def test_a_run_that_goes_on_has_the_same_numbers(name, run_small, undisturbed):
    asked = ["partition.validation=0.2", "evaluation=prequential"]
    every = [f"strategy={name}", METRICS, *asked, "drift.rounds=[4]"]
    run_small(*every, "rounds=3")
    # The third test is on the data of the fourth round already.
    assert run_small(*every, "resume=true").numbers == undisturbed(*every).numbers
    with pytest.raises(ConfigError, match=r"another run \(metrics=\[.+\], not \[\]\)"):
        run_small(*every, "metrics=[]", "resume=true")


def test_a_round_without_a_test_has_no_measures(run_small):
    run = run_small("system.evaluate_every=2", METRICS)
    assert [row["macro_f1"] is None for row in run.rounds] == [True, False, True, False]


@pytest.mark.parametrize("name", ["fielding", "ifca", "fedavg", "local", "ccfl"])
def test_prequential_tests_are_on_the_next_data(name, run_small, undisturbed):
    plain = undisturbed(f"strategy={name}")
    run = run_small(f"strategy={name}", "evaluation=prequential")
    tests = ("accuracy", "accuracy_mean", "loss")
    for row, without in zip(run.numbers, plain.numbers, strict=True):
        # Clients drift in the third round, whose data the second one tests on.
        if row["round"] == 2:
            assert "client" in row or row["loss"] != without["loss"]
            same = [key for key in without if key not in (*tests, "num_examples")]
            assert [row[key] for key in same] == [without[key] for key in same]
        else:
            assert row == without
    saved = load_run(run.folder)
    assert (saved.drifts, saved.tested_drifts) == ([3], [2])
    assert load_run(plain.folder).tested_drifts == [3]


def test_the_last_prequential_test_is_any_other(run_small, undisturbed):
    two = ["drift.rounds=[2,4]", "evaluation=prequential"]
    longer = undisturbed(*two)
    shorter = run_small(*two, "rounds=3")
    assert shorter.rounds[-1]["loss"] == longer.rounds[2]["loss"]
    # Nobody can train on the data of the round after the last.
    assert load_run(shorter.folder).tested_drifts == [1]
    saved = {"fielding": [load_run(shorter.folder)]}
    ((found,),) = score_runs(saved).values()
    # The test of round 2 is the last on the data of round 3.
    assert found["recovered"] == shorter.rounds[1]["accuracy"]


def test_results_of_classes_are_in_rows_and_in_the_report(run_small, undisturbed):
    asked = ["clusters=2", "clients=8", "strategy=ifca"]
    run = run_small(*asked, "metrics=[per_class,macro_f1]")
    for line in run.rounds:
        rows = [row for row in run.clients if row["round"] == line["round"]]
        for place, whole in enumerate(line["per_class"]):
            for key, total in whole.items():
                assert total == sum(row["per_class"][place][key] for row in rows)
        for row in [*rows, {**line, "num_examples": None}]:
            of = {key: [c[key] for c in row["per_class"]] for key in CLASS_COUNTS}
            support, predicted, correct = map(np.array, of.values())
            tested = row["num_examples"] or support.sum()
            assert support.sum() == predicted.sum() == tested
            assert correct.sum() / tested == pytest.approx(row["accuracy"])
            there = support + predicted > 0
            f1 = (2 * correct / np.maximum(support + predicted, 1))[there].mean()
            assert f1 == pytest.approx(row["macro_f1"])
    saved = load_run(run.folder)
    table = class_table(saved)
    clusters = {f"cluster {row['cluster']}" for row in rows}
    clients = [f"client {each}" for each in range(8)]
    assert list(dict.fromkeys(line[0] for line in table.lines)) == [
        *sorted(clusters),
        *clients,
    ]
    assert sum(int(each[2]) for each in table.lines) == 2 * support.sum()
    assert table.title in render([saved]).html
    assert class_table(load_run(undisturbed(*asked).folder)) is None
    named = {**saved.resolved, "dataset": {"names": ["<a>"]}}
    assert class_table(replace(saved, resolved=named)) is None


@pytest.mark.parametrize("name", ["fielding", "fedrep", "ccfl"])
def test_the_best_model_is_kept_beside_the_last(name, run_small, undisturbed):
    validated = ["partition.validation=0.2", "drift.rounds=[3,5]", "rounds=6"]
    every = [f"strategy={name}", *validated]
    asked = [*every, "system.checkpoint_best=validation_accuracy"]
    whole = run_small(*asked, folder="whole")
    curve = [row["validation_accuracy"] for row in whole.rounds]
    best = 1 + int(np.argmax(curve))
    assert whole.summary["checkpoint_best"] == {
        "round": best,
        "validation_accuracy": max(curve),
    }
    saved = load_run(whole.folder)
    kept = Checkpoint(whole.folder / BEST, saved.resolved)
    done, state = kept.load(saved.method.State)
    there = run_small(*every, f"rounds={best}", folder="so far")
    then = load_run(there.folder).load_state()[1]
    assert done == best
    assert all(map(np.array_equal, state.models, then.models))
    run_small(*asked, "rounds=2", folder="parts")
    parts = run_small(*asked, "resume=true", folder="parts")
    assert parts.summary["checkpoint_best"] == whole.summary["checkpoint_best"]
    assert whole.numbers == undisturbed(*every).numbers
    # Of rounds that are done, another best one is not known.
    for other in ("null", "accuracy", "loss"):
        asked = [*every, f"system.checkpoint_best={other}", "rounds=7", "resume=true"]
        with pytest.raises(ConfigError, match="checkpoint_best=validation_accuracy"):
            run_small(*asked, folder="parts")


@pytest.mark.parametrize("evaluation", ["round", "prequential"])
def test_what_was_forgotten_is_of_saved_runs(evaluation, run_small):
    back = ["drift=regroup_and_back", "drift.rounds=[3,5]", "rounds=6"]
    asked = ["strategy=fedavg", "metrics=[forgetting]", f"evaluation={evaluation}"]
    run = load_run(run_small(*back, *asked).folder)
    place = int(evaluation == "prequential")
    concepts = np.array(run.concepts())
    moved = concepts[:, 0] != concepts[:, 2]
    accuracies = run.table("accuracy")
    lost = accuracies[moved, 1 - place] - accuracies[moved, 4 - place]
    found = score_runs({"": [run]})[""][0]["forgetting"]
    assert found == pytest.approx(lost.mean())
    assert "forgetting" not in run.rounds[-1]


def test_the_auc_of_two_labels_is_measured(run_small, tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=600)
    x = (rng.normal(size=(600, 4)) + y[:, None]).astype(np.float32)
    path = tmp_path / "two.npz"
    np.savez(path, x=x, y=y)
    held = ["partition.groups=2", "partition.purity=0.7", "drift=none"]
    run = run_small("dataset=npz", f"dataset.file={path}", *held, "metrics=[auc]")
    assert run.rounds[-1]["auc"] > 0.8
    assert all(0 <= row["auc"] <= 1 for row in run.clients)


def test_clients_without_counts_fail(run_small, monkeypatch):
    monkeypatch.setattr("clients.tested.OUTCOMES", "other")
    with pytest.raises(Exception, match=r"test: outcomes: no \d+ numbers"):
        run_small(METRICS)
