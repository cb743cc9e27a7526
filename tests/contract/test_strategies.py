"""What every strategy must do, whatever its paper: found in conf/strategy/."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from cfl_flower.building import locate
from cfl_flower.client.resources import WorkerResources
from cfl_flower.client_app import app as client_app
from cfl_flower.config.compose import compose_config
from cfl_flower.config.warnings import find_warnings
from cfl_flower.engine.simulated_devices import Devices
from cfl_flower.environment.plugins import CONF
from cfl_flower.errors import ConfigError, NoValidResultError
from cfl_flower.learning.cohort_training import train_cohort
from cfl_flower.learning.training import TrainingJob
from simulations.engines.inprocess import InProcessGrid
from tests.conftest import SYSTEMS, Run, Runner, sample

pytestmark = pytest.mark.contract

QUICK = {*SYSTEMS, "fedavg", "local", "oracle"}
"""The papers' systems and the marks. All others are held to it by the slow set, or by
that of whole tables."""

WITHOUT_ROUNDS = {
    f"strategy={name}"
    for name in ("ccfl", "fedasync", "fedbuff", "fedsoft", "local_async")
}

NAMES = sorted(path.stem for path in (CONF / "strategy").glob("*.yaml"))

STRATEGIES = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
    for name in NAMES
]

ROUND = (
    "round accuracy accuracy_mean loss num_clusters cluster_sizes drifted moved "
    "reclustered participants failures bytes_up bytes_down client_epochs seconds "
    "virtual_seconds heterogeneity ari"
)
SUMMARY = (
    "strategy dataset drift data seed rounds final best bytes_up bytes_down "
    "client_epochs seconds virtual_seconds peak_rss_mb num_clusters versions "
    "code_changed_after worst_client"
)
"""Keys of a round's record and of a summary."""

EXTRACTOR = ["model=mlp", "model.hidden=16"]

NEEDS = {
    **{f"strategy={name}": EXTRACTOR for name in ("fedbabu", "fedrep", "fedpac")},
    "strategy=flux": [
        *(*EXTRACTOR, "strategy.warmup=1", "strategy.latest=0.25"),
        "strategy.drift_rounds=[3]",
    ],
    "strategy=feroma": [*EXTRACTOR, "strategy.warmup=1"],
    **{
        f"strategy={name}": [*EXTRACTOR, "strategy.start=2"]
        for name in ("fedccfa", "fedfm")
    },
}
"""What makes a strategy do all that it does: an extractor that is averaged, and
alignment within a few rounds."""


def _with_needs(run: Runner) -> Runner:
    def runner(*overrides: str, **options: Any) -> Any:
        needs = [need for each in overrides for need in NEEDS.get(each, [])]
        return run(*needs, *overrides, **options)

    return runner


@pytest.fixture
def run_small(run_small: Runner) -> Runner:
    """Run with what the strategy needs."""
    return _with_needs(run_small)


@pytest.fixture(scope="session")
def undisturbed(undisturbed: Runner) -> Runner:
    """Run once with what the strategy needs."""
    return _with_needs(undisturbed)


@pytest.fixture(params=STRATEGIES)
def strategy(request: pytest.FixtureRequest) -> str:
    """Every strategy in turn."""
    return f"strategy={request.param}"


@pytest.fixture(params=sample(NAMES, QUICK))
def sampled(request: pytest.FixtureRequest) -> str:
    """A strategy of `QUICK`, or any where the whole table is run.

    For what the frame does, or a family, and no method by itself.
    """
    return f"strategy={request.param}"


def test_run_leaves_the_files_of_the_contract(strategy, undisturbed):
    run = undisturbed(strategy)
    assert [row["round"] for row in run.rounds] == [1, 2, 3, 4]
    assert all(set(row) >= {*ROUND.split()} for row in run.rounds)
    assert all(0 <= row["accuracy"] <= 1 for row in run.rounds)
    assert all(len(row["cluster_sizes"]) >= row["num_clusters"] for row in run.rounds)
    assert all(sum(row["cluster_sizes"]) == 12 for row in run.rounds)
    assert set(run.summary) == {*SUMMARY.split()}
    # `local` has nothing to do while its data stay.
    assert all(row["virtual_seconds"] >= 0 for row in run.rounds)
    assert run.rounds[0]["virtual_seconds"] > 0
    assert run.summary["final"]["accuracy"] == run.rounds[-1]["accuracy"]
    assert {"round", "client", "cluster", "accuracy", "num_examples"} <= set(
        run.clients[0]
    )
    tested = [row for row in run.clients if row["round"] == 2]
    correct = sum(row["accuracy"] * row["num_examples"] for row in tested)
    count = sum(row["num_examples"] for row in tested)
    assert run.rounds[1]["accuracy"] == pytest.approx(correct / count)
    assert (run.folder / "config.yaml").read_text().startswith("# python -m")


def test_other_measures_stand_beside_the_same_numbers(sampled, run_small):
    ahead = ["evaluation=prequential", "partition.validation=0.2"]
    plain = run_small(sampled, *ahead)
    metrics = "metrics=[balanced_accuracy,macro_f1,calibration,worst_tenth]"
    run = run_small(sampled, *ahead, metrics, folder="measured")
    names = {"balanced_accuracy", "macro_f1", "calibration", "worst_tenth"}
    for row, without in zip(run.numbers, plain.numbers, strict=True):
        assert {key: row[key] for key in row if key not in names} == without
        assert all(0 <= row[name] <= 1 for name in names & row.keys())
    for row in plain.rounds:
        assert not row["failures"]
        assert 0 < row["validation_accuracy"] < 1
        assert row["validation_accuracy"] != row["accuracy"]


@pytest.mark.parametrize(
    "adapted",
    [
        ["strategy.fine_tuning=2", "strategy.fine_tuning_rate=0.05"],
        ["strategy.label_shares=true"],
    ],
    ids=lambda settings: settings[0],
)
def test_what_a_client_adapts_is_for_the_test_alone(
    adapted, sampled, run_small, undisturbed
):
    tuning = [sampled, *adapted]
    kind = compose_config([sampled]).strategy.client
    if not getattr(locate(kind, "strategy.client"), "fine_tunes", False):
        with pytest.raises(ConfigError, match=r"=(2|True).*use (0|false)"):
            run_small(*tuning)
        return
    plain = undisturbed(
        sampled, "strategy.fine_tuning=0", "strategy.label_shares=false"
    )
    tuned = run_small(*tuning)
    assert tuned.rounds[-1]["loss"] != plain.rounds[-1]["loss"]
    for ours, theirs in zip(tuned.state.models, plain.state.models, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for key in ("participants", "cluster_sizes", "bytes_up", "bytes_down"):
        assert [r[key] for r in tuned.rounds] == [r[key] for r in plain.rounds]
    assert kept_files(tuned) == kept_files(plain)


def test_a_choice_without_labels_changes_no_other_number(
    sampled, run_small, undisturbed
):
    asked = [sampled, "strategy.unlabelled=true"]
    try:
        run = run_small(*asked)
    except ConfigError as error:
        # Only where no common model can be used alone.
        why = ("never left it", "is its own", "each client fine-tunes", "for a test")
        assert any(words in str(error) for words in why), error
        return
    plain = undisturbed(sampled, "strategy.unlabelled=false")
    numbers = [{**row} for row in run.numbers]
    found = [row.pop("accuracy_unlabelled", None) for row in numbers]
    assert numbers == plain.numbers
    assert found[-1] is None or 0 < found[-1] <= 1


@pytest.mark.parametrize("name", sample(NAMES, {"ccfl", "fielding", "local"}))
def test_a_setting_that_changes_nothing_is_told(name, run_small):
    if name == "oracle":
        pytest.skip("these clients have no true concepts")
    uneven = [f"strategy={name}", "partition=dirichlet", "strategy.weighting=samples"]
    plain = run_small(*uneven)
    for option in (
        "strategy.weighting=plain",
        "strategy.weight_cap=0.5",
        "participants=9",
        "clusters=2",
    ):
        key = option.partition("=")[0]
        run = run_small(*uneven, option, folder=key)
        told = f"strategy={name}: {key} has no effect with this strategy"
        idle = run.numbers == plain.numbers
        assert (told in find_warnings(run.config)) == idle, option


IDLE = [
    ("ifca", "shift.threshold=0.01", "migration=true"),
    ("flexcfl migration=false", "shift.threshold=0.01", "migration=true"),
    ("flexcfl", "mixing_form=sum", "mixing=0.5"),
    ("stocfl", "representation_epochs=3", "representation=difference"),
    ("fedccfa start=0 alignment_weight=1", "gamma=2", "alignment_weight=null"),
    ("fedccfa start=0 alignment=none", "alignment_weight=1", "alignment=contrast"),
    ("fedccfa start=0 alignment=none", "temperature=1", "alignment=contrast"),
    ("fedccfa alignment=none", "start=0", "alignment=contrast"),
    ("fedccfa start=0 alignment=none", "anchors=global", "alignment=contrast"),
    ("flash local.epochs=4 validation=0", "stop=9", "validation=0.3"),
    ("feddag threshold=0.5", "slack=90", "threshold=null"),
]
"""Methods with settings, one that is idle, and one with which it is not."""


@pytest.mark.parametrize("case", sample(IDLE, {IDLE[2]}), ids=" ".join)
def test_a_setting_that_another_one_idles_is_told(case, run_small):
    base, idle, other = case
    name, *rest = base.split()
    world = [*EXTRACTOR, "partition=dirichlet", "drift=sudden", "drift.rounds=[2]"]
    asked = [f"strategy={name}", *world, *(f"strategy.{each}" for each in rest)]
    told = f"strategy={name}: strategy.{idle.partition('=')[0]} has no effect with "
    for switched in ([], [f"strategy.{other}"]):
        plain = run_small(*asked, *switched, folder=f"plain{len(switched)}")
        more = run_small(
            *asked, *switched, f"strategy.{idle}", folder=f"idle{len(switched)}"
        )
        said = any(line.startswith(told) for line in find_warnings(more.config))
        assert said == (not switched)
        assert (more.numbers == plain.numbers) == said


def kept_files(run: Run) -> dict[str, bytes]:
    """Return what the clients of a run keep, by paths."""
    root = Path(run.folder, "clients")
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def test_learning_happens(strategy, run_small):
    if strategy == "strategy=local":
        pytest.skip(
            "it trains at once, in the first round: tests/strategies/test_marks"
        )
    run = run_small(strategy, "drift.rounds=[]", "rounds=8")
    first, last = run.rounds[0], run.rounds[-1]
    assert last["accuracy"] > first["accuracy"]
    assert last["loss"] < first["loss"]


def test_any_number_of_nodes_gives_the_same_numbers(
    strategy, run_small, undisturbed, monkeypatch
):
    # And in portions of two models each.
    monkeypatch.setattr("cfl_flower.communication.portions.PORTION_FLOATS", 1300)
    three = run_small(strategy, grid=InProcessGrid([{}, {}, {}]))
    assert three.numbers == undisturbed(strategy).numbers


def test_another_seed_gives_other_numbers(strategy, run_small, undisturbed):
    assert run_small(strategy, "seed=1").numbers != undisturbed(strategy).numbers


def test_cohorts_change_no_more_than_the_order_of_sums(
    sampled, run_small, undisturbed, monkeypatch
):
    """What a GPU does, on a CPU: five clients of a message train at once."""
    theirs, sizes = undisturbed(sampled), list[int]()

    def note(jobs: list[TrainingJob]) -> None:
        sizes.append(len(jobs))
        train_cohort(jobs)

    monkeypatch.setattr(WorkerResources, "members", property(lambda own: own.cohort(5)))
    monkeypatch.setattr("cfl_flower.client.cohort.train_cohort", note)
    ours = run_small(sampled)
    # The loops of APFL and pFedMe are their own.
    alone = sampled in ("strategy=apfl", "strategy=pfedme")
    assert max(sizes, default=0) > 1 or alone
    for row, expected in zip(ours.rounds, theirs.rounds, strict=True):
        assert row["cluster_sizes"] == expected["cluster_sizes"]
        assert row["loss"] == pytest.approx(expected["loss"], rel=1e-3)
        assert row["virtual_seconds"] == pytest.approx(expected["virtual_seconds"])


class _KilledError(BaseException):
    """Ends a run like a signal: no handler for exceptions sees it."""


def _killing_app(at_call: int, worked: bool = False) -> ClientApp:
    """Return the client app, which dies in its n-th message, before or after it."""
    app, calls = ClientApp(), []

    def call(message: Message, context: Context) -> Message:
        calls.append(message)
        dies = len(calls) == at_call
        if dies and not worked:
            raise _KilledError
        reply = client_app(message, context)
        if dies:
            raise _KilledError
        return reply

    app.query("identify")(call)
    app.query()(call)
    app.train()(call)
    app.evaluate()(call)
    return app


def test_run_that_is_killed_twice_has_the_same_numbers(
    strategy, run_small, undisturbed
):
    for at_call in (3, 7):
        # Once before a message is worked on, then after it.
        grid = InProcessGrid([{}], _killing_app(at_call, worked=at_call > 3))
        with pytest.raises(_KilledError):
            run_small(strategy, f"resume={at_call > 3}", grid=grid)
    resumed = run_small(strategy, "resume=true")
    assert resumed.numbers == undisturbed(strategy).numbers


def test_clients_ahead_of_a_sparse_checkpoint_go_back_with_it(
    sampled, run_small, undisturbed, monkeypatch
):
    # With models in files of their own.
    monkeypatch.setattr("cfl_flower.runs.checkpoint.LARGE", 1000)
    sparse = ["system.checkpoint_every=2", "system.evaluate_every=2"]
    options = [sampled, "participants=12", *sparse]
    # All have worked in a round, when the files of the one before are to be written.
    for at_call in (7, 4):
        grid = InProcessGrid([{}], _killing_app(at_call, worked=True))
        with pytest.raises(_KilledError):
            run_small(*options, f"resume={at_call < 7}", grid=grid)
    resumed = run_small(*options, "resume=true")
    assert resumed.numbers == undisturbed(*options).numbers


def test_finished_run_resumes_to_itself(strategy, run_small, undisturbed, tmp_path):
    finished = undisturbed(strategy)
    shutil.copytree(finished.folder, tmp_path / "run")
    assert run_small(strategy, "resume=true").numbers == finished.numbers


def test_failing_clients_cost_only_their_results(strategy, run_small):
    faults = ["faults.raises=0.1", "faults.nan=0.1", "faults.shape=0.1"]
    run = run_small(strategy, *faults, "faults.drops=0.1", "rounds=6")
    failures = [failure for row in run.rounds for failure in row["failures"]]
    assert {failure["reason"] for failure in failures} >= {"raised", "missing"}
    assert all(row["accuracy"] is not None for row in run.rounds)
    untested = {
        (row["round"], failure["client"])
        for row in run.rounds
        for failure in row["failures"]
        if failure["phase"] == "evaluate" and failure["reason"] != "representation"
    }
    tested = {(row["round"], row["client"]) for row in run.clients}
    assert untested
    assert not untested & tested


def test_hanging_client_costs_only_its_result(sampled, run_small):
    hangs = ["faults.hangs=0.1", "system.task_timeout=0.1", "rounds=2"]
    run = run_small(sampled, *hangs)
    failures = [failure for row in run.rounds for failure in row["failures"]]
    assert {failure["reason"] for failure in failures} == {"timeout"}
    assert run.rounds[-1]["accuracy"] is not None


@pytest.mark.parametrize("fault", ["nan", "drops"])
def test_a_round_without_any_valid_result_ends_the_run(fault, strategy, run_small):
    with pytest.raises(NoValidResultError, match=r"none of \d+ clients"):
        run_small(strategy, f"faults.{fault}=1")


def test_late_client_joins(sampled, run_small, late_grid):
    if sampled == "strategy=oracle":
        pytest.skip("the oracle knows concepts in a simulation only")

    run = run_small(sampled, "participants=11", grid=late_grid)
    seen = {
        row["round"]: {r["client"] for r in run.clients if r["round"] == row["round"]}
        for row in run.rounds
    }
    assert 11 not in seen[1]
    assert 11 in seen[4]


def test_simulated_clients_join_and_leave(sampled, run_small):
    moves: Any = {"joins": [2], "joining": 0.1, "leaves": [3], "leaving": 0.2}
    asked = [f"devices.{name}={value}" for name, value in moves.items()]
    overrides = [sampled, "participants=11", *asked]
    if sampled in WITHOUT_ROUNDS:
        with pytest.raises(ConfigError, match="a method that selects participants"):
            run_small(*overrides)
        return
    run = run_small(*overrides)
    presence = Devices(**moves).open_presence(12, run.config.seed)
    (newcomer,) = np.flatnonzero(presence.first > 1)
    assert [row["present"] for row in run.rounds] == [11, 12, 10, 10]
    for row in run.rounds:
        number = row["round"]
        tested = [each for each in run.clients if each["round"] == number]
        there = set(np.flatnonzero(presence.there(number)).tolist())
        assert {each["client"] for each in tested} == there
        assert row["participants"] <= row["present"]
        new = [each for each in tested if each["client"] == newcomer and number == 2]
        assert row["newcomers"] == len(new)
        for each in new:
            assert row["accuracy_newcomers"] == pytest.approx(
                each["accuracy"], abs=1e-4
            )
    assert not run.failures


COMING = [0, 0, 0, 0, 0, 0, 2, 2, 2, 0, 0, 0]
GOING = [4, 4, 4, 4, 4, 4, 4, 4, 4, 2, 2, 2]
"""The first of four rounds, from 0, in which each of 12 owners has samples, and the
first after which it has none."""


def write_coming_and_going(folder: Path) -> None:
    """Write a table of owners that have samples in some rounds only."""
    rng, lines = np.random.default_rng(0), ["a,b,label,who,when"]
    for owner, (first, last) in enumerate(zip(COMING, GOING, strict=True)):
        for time in range(first, last):
            for _ in range(10):
                label = (owner + int(rng.integers(2))) % 3
                a, b = rng.normal(label, 0.3, 2)
                lines.append(f"{a:.3f},{b:.3f},{label},{owner:02d},{time}")
    (folder / "data.csv").write_text("\n".join(lines))


def test_who_has_no_samples_takes_no_place(sampled, run_small, tmp_path):
    if sampled == "strategy=oracle":
        pytest.skip("owners have one true concept, of which there is no oracle")
    write_coming_and_going(tmp_path)
    if sampled in WITHOUT_ROUNDS:
        pytest.skip("nobody is drawn: who has no samples uploads nothing")
    data = ["dataset=csv", "dataset.owner=who", "dataset.time=when"]
    stream = ["drift=timestamps", "drift.every=1", "drift.periods=4", "drift.window=1"]
    own = [f"data_dir={tmp_path}", "drift.rounds=[]", "partition=natural", "clusters=2"]
    run = run_small(sampled, "participants=12", *data, *stream, *own)
    for round, row in enumerate(run.rounds):
        present = [c <= round < g for c, g in zip(COMING, GOING, strict=True)]
        assert row["participants"] == sum(present)
        assert row["failures"] == []
        # Who had samples before keeps its cluster; who never had any is in none.
        assert sum(row["cluster_sizes"]) == sum(c <= round for c in COMING)


@pytest.mark.parametrize("name", sample(NAMES, QUICK))
def test_a_server_optimiser_has_an_effect_or_is_refused(name, run_small):
    asked = [f"strategy={name}", "model=mlp", "model.hidden=8", "rounds=1"]
    try:
        other = run_small(*asked, "server_optimizer=yogi", folder="yogi")
    except ConfigError as error:
        assert "server_optimizer=yogi is not allowed; use average" in str(error)
        return
    assert run_small(*asked, folder="average").numbers != other.numbers
