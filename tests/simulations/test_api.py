"""The Python interface: runs, comparisons and saved folders as tables and pictures."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from safetensors.torch import load_file

import cfl_flower as cfl
from cfl_flower.analysis.saved import load_run
from cfl_flower.config.composition import compose_plain
from cfl_flower.environment.plugins import CONF
from cfl_flower.errors import ConfigError
from simulations.api import Comparison, Run, to_overrides
from simulations.export import export
from tests.conftest import sample

SMALL = {"clients": 6, "participants": 3, "partition__groups": 3}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    place = tmp_path_factory.mktemp("api") / "run"
    return cfl.run(
        "drift.rounds=[2]",
        strategy="fielding",
        rounds=2,
        engine="inprocess",
        strategy__threshold=0.5,
        output_dir=place,
        **SMALL,
    )


def test_a_run_is_tables_and_settings(run):
    lines = (run.folder / "rounds.jsonl").read_text().splitlines()
    accuracies = [json.loads(line)["accuracy"] for line in lines]
    assert run.rounds["accuracy"].tolist() == accuracies
    assert len(run.clients) == 2 * 6
    assert run.settings["strategy"]["threshold"] == 0.5
    assert run.summary["final"]["accuracy"] == accuracies[-1]
    assert run.drifts == [2]
    assert repr(run) == f"Run('{run.folder}': fielding, round 2/2)"


def test_a_run_goes_on_and_is_what_it_had_been_at_once(run, tmp_path):
    part = cfl.run(*run.saved.overrides, rounds=1, output_dir=tmp_path / "part")
    assert part.rounds.shape[0] == 1
    whole = part.resume(rounds=2)
    kept = [column for column in run.rounds if column != "seconds"]
    assert whole.rounds[kept].to_dict("records") == run.rounds[kept].to_dict("records")


def test_a_model_comes_out_as_it_is_exported(run, tmp_path):
    (cluster, *others) = export(run.folder, tmp_path)
    model = run.model(cluster)
    exported = load_file(tmp_path / f"cluster-{cluster}" / "model.safetensors")
    found = {name: each.tolist() for name, each in model.state_dict().items()}
    assert found == {name: each.tolist() for name, each in exported.items()}
    assert not model.training
    assert others
    with pytest.raises(ConfigError, match=r"cluster=None is not allowed; use one of"):
        run.model()


def test_pictures_show_what_was_measured(run):
    assert run.plot()._repr_svg_().startswith("<svg")
    for key in ("nothing", "failures", "cluster_sizes", "drifted_clients"):
        with pytest.raises(ConfigError, match=f"key='{key}' was not measured; use a"):
            run.plot(key)


def test_a_folder_is_a_run_or_a_comparison(run, tmp_path):
    assert isinstance(cfl.load(run.folder), Run)
    found = cfl.load(run.folder.parent)
    assert isinstance(found, Comparison)
    assert [each.folder for each in found.runs] == [run.folder]
    assert found.scores["method"].tolist() == ["fielding"]
    with pytest.raises(ConfigError, match="holds no run"):
        cfl.load(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"strategy": "fieldng"}, "did you mean fielding"),
        ({"round": 3}, "did you mean rounds"),
        ({"strategy": ["fedavg", "ifca"]}, r"strategy=\[fedavg,ifca\] is not allowed"),
    ],
)
def test_bad_input_is_an_error_before_any_training(settings, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        cfl.run(engine="inprocess", output_dir=tmp_path / "x", **settings)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("engine", sample(["inprocess", "processes"], ["inprocess"]))
def test_threads_give_the_same_bits_as_one_after_the_other(engine, tmp_path):
    def once(name: str, seed: int) -> Run:
        made = cfl.run(
            *("model=mlp", "strategy.local.epochs=1", "drift.rounds=[2]"),
            strategy="fedavg",
            rounds=1,
            seed=seed,
            engine=engine,
            workers=1,
            quiet=True,
            output_dir=tmp_path / f"{name}{seed}",
            **SMALL,
        )
        return made.resume(rounds=2)

    def many(name: str, seed: int) -> Run:
        where = tmp_path / f"many-{name}{seed}"
        place = {"engine": engine, "output_dir": where, "marks": False, "quiet": True}
        size = {"rounds": 1, "drift": "none", "workers": 1}
        found = cfl.compare(strategy="fedavg", seeds=[seed], **size, **place, **SMALL)
        return found.runs[0]

    for work, seeds in ((once, range(4)), (many, range(2))):
        one = [work("one", seed).rounds for seed in seeds]
        with ThreadPoolExecutor(4) as pool:
            names = ["thread"] * len(seeds)
            found = list(pool.map(work, names, seeds))
        for expected, each in zip(one, found, strict=True):
            kept = [column for column in expected if column != "seconds"]
            assert each.rounds[kept].equals(expected[kept])


def test_seeds_are_told_once():
    with pytest.raises(ConfigError, match=r"seed=3 is not allowed; use seeds=\[3\]"):
        cfl.compare(strategy="fedavg", seeds=2, seed=3)
    for command in (cfl.run, cfl.compare):
        with pytest.raises(ConfigError, match=r"override=.*'fielding'.*strategy="):
            command(["fedavg", "fielding"])


@pytest.mark.parametrize(
    ("name", "values"),
    [("seeds", ("abc", 0, [], [0.5], None)), ("jobs", ("x", 0)), ("reference", (3,))],
)
def test_arguments_out_of_type_or_bounds_are_one_line(name, values):
    for value in values:
        with pytest.raises(ConfigError, match=f"^{name}=.* is not allowed; use "):
            cfl.compare(strategy="fedavg", **{name: value})
    with pytest.raises(
        ConfigError, match="folder=3 is not allowed; use text or a Path"
    ):
        cfl.load(3)


def test_names_are_there_and_cost_nothing_until_used():
    assert all(callable(getattr(cfl, each)) for each in ("run", "compare", "load"))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = cfl.nothing
    code = "import sys, cfl_flower; print('torch' in sys.modules)"
    said = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert said == "False\n"


def test_arrays_are_sweeps():
    rates = np.logspace(-2, -1, 2)
    assert to_overrides({"strategy__local__learning_rate": rates}, sweep=True) == [
        "strategy.local.learning_rate=0.01,0.1"
    ]
    swept = {"seed": np.arange(2), "drift__rounds": np.array([3, 9])}
    assert to_overrides(swept, sweep=True) == ["seed=0,1", "drift.rounds=[3,9]"]
    jobs = {"seed": np.float32([0.1, 0.7])}
    assert to_overrides(jobs, sweep=True) == ["seed=0.1,0.7"]


@pytest.mark.slow
def test_a_comparison_has_its_scores_and_failures(tmp_path):
    found = cfl.compare(
        strategy=["fedavg", "fielding"],
        seeds=np.arange(2),
        rounds=np.int64(2),
        drift="none",
        marks=False,
        reference="fielding",
        engine="inprocess",
        output_dir=tmp_path / "c",
        **SMALL,
    )
    assert found.failures == {}
    assert sorted(zip(found.scores["method"], found.scores["seed"], strict=True)) == [
        *(("fedavg", 0), ("fedavg", 1), ("fielding", 0), ("fielding", 1))
    ]
    assert found.tables[0].index.tolist() == ["fedavg", "fielding"]
    leads = found.tables[1]
    assert leads.index.tolist() == ["fedavg"]  # over fielding
    assert leads["final"].str.endswith(", two seeds").all()
    assert found.plot()._repr_svg_().count("fielding") >= 1
    found.plot(methods=["fielding=Ours", "fedavg"]).save(tmp_path, width="single")
    printed = (tmp_path / "accuracy.svg").read_text()
    assert ">Ours<" in printed
    assert 'width="252pt"' in printed
    asked = "2 methods under no drift on digits, 2 seeds"
    assert asked in found._repr_html_()
    assert repr(found) == f"Comparison({asked}: 4 runs, 0 failed)"


def test_a_program_with_hydra_of_its_own_keeps_it():
    with initialize_config_dir(str(CONF), version_base="1.3"):
        outer = GlobalHydra.instance().hydra
        compose_plain(["strategy=ifca"])
        assert GlobalHydra.instance().hydra is outer
    with ThreadPoolExecutor(8) as pool:
        texts = ([f"seed={number}", "strategy=ifca"] for number in range(16))
        seeds = [each.settings["seed"] for each in pool.map(compose_plain, texts)]
    assert seeds == list(range(16))
    assert not GlobalHydra.instance().is_initialized()


def test_a_notebook_shows_text_and_runs_none_of_it(run):
    settings = run.saved.resolved
    hostile = {**settings, "dataset": {**settings["dataset"], "name": "<script>"}}
    shown = Run(replace(run.saved, resolved=hostile))._repr_html_()
    assert "&lt;script&gt;" in shown
    assert "<script>" not in shown
    assert "<table" in shown


def test_a_run_that_broke_off_is_no_score_beside_whole_ones(run_small, tmp_path):
    runs = [run_small(f"seed={seed}", folder=f"runs/{seed}") for seed in (0, 1)]
    first, *_ = (runs[1].folder / "rounds.jsonl").read_text().splitlines(keepends=True)
    (runs[1].folder / "rounds.jsonl").write_text(first)
    (runs[1].folder / "summary.json").unlink()
    found = cfl.load(tmp_path / "runs")
    assert found.scores["seed"].tolist() == [0]
    # Alone it is what there is.
    assert cfl.load(runs[1].folder).rounds["round"].tolist() == [1]


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        (["drift=gradual", "drift.rounds=[3]", "drift.width=4"], [3]),
        (["drift=gradual", "drift.rounds=[3,7]", "drift.width=3"], [3, 7]),
        (["drift=rotate", "drift.rounds=[]", "drift.every=4", "drift.width=2"], [2, 6]),
        (["drift=regroup", "drift.rounds=[3,4]"], [3, 4]),
        (["drift=none"], []),
    ],
)
def test_a_gradual_drift_is_one_event(options, changes, run_small):
    run = load_run(run_small(*options, "rounds=8").folder)
    assert run.changes[: len(changes)] == run.drifts == changes
