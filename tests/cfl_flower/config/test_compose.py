import re
from pathlib import Path

import numpy as np
import pytest

from cfl_flower.building import build
from cfl_flower.config.compose import compose_config, compose_sweep
from cfl_flower.config.options import GROUPS, PRESET, ROUNDS, list_options
from cfl_flower.config.warnings import find_warnings
from cfl_flower.errors import ConfigError
from cfl_flower.run_config import RunConfig
from strategies.fielding.representations import Gradient


@pytest.fixture(scope="module")
def config() -> RunConfig:
    return compose_config(["rounds=7", "strategy.local.mu=0.5", "output_dir=here"])


def test_paths_are_absolute(config):
    assert config.output_dir == str(Path("here").absolute())
    assert Path(config.data_dir).is_absolute()


def test_a_client_rebuilds_what_the_server_composed(config):
    rebuilt = build(config.resolved)
    assert rebuilt["strategy"] == config.strategy
    assert rebuilt["partition"] == config.partition
    assert rebuilt["drift"] == config.drift
    assert rebuilt["system"] == config.system


def test_of_an_override_that_is_given_twice_the_last_one_counts():
    config = compose_config(["drift=rotate", "drift=noise", "rounds=3", "rounds=9"])
    assert (config.names["drift"], config.rounds) == ("noise", 9)


def test_runs_of_a_sweep_without_a_folder_get_one_each():
    configs = compose_sweep("rounds=5,6")
    folders = [Path(config.output_dir) for config in configs]
    assert [folder.name for folder in folders] == ["rounds5", "rounds6"]
    assert folders[0].parent.name.endswith("-sweep")


@pytest.mark.slow
def test_setting_of_a_method_may_have_the_name_of_anothers_group():
    config = compose_config(["strategy=stocfl", "strategy.representation=difference"])
    assert config.strategy.representation == "difference"
    with pytest.raises(ConfigError, match="use strategy/representation= with one of"):
        compose_config(["strategy=fielding", "strategy.representation=gradient"])


EXPERIMENT = """
# @package _global_
options:
  strategy:
    fedprox:
      local: {mu: 0.25}
      weighting: plain
    fielding: {representation: gradient, threshold: 0.5}
    stocfl: {representation: difference}
  dataset:
    digits: {size: 28}
"""


def test_an_experiment_has_settings_for_the_chosen_options_alone(tmp_path, monkeypatch):
    own = tmp_path / "conf" / "experiment" / "mine.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(EXPERIMENT.lstrip())
    monkeypatch.chdir(tmp_path)
    found = compose_config(["experiment=mine", "strategy=fedprox"])
    assert (found.strategy.local.mu, found.strategy.weighting) == (0.25, "plain")
    assert found.dataset.size == 28
    assert "options" not in found.resolved
    assert found.overrides == ["experiment=mine", "strategy=fedprox"]
    other = compose_config(["experiment=mine", "strategy=fedavg"]).strategy
    assert (other.local.mu, other.weighting) == (0, "samples")
    said = ["experiment=mine", "strategy=fedprox", "strategy.local.mu=0.5"]
    assert compose_config(said).strategy.local.mu == 0.5, "the user has the last word"
    inner = ["experiment=mine", "strategy=fielding", "strategy/representation="]
    found = compose_config([*inner[:2], "strategy.representation.sketch=8"])
    assert isinstance(found.strategy.representation, Gradient)
    assert (found.strategy.representation.sketch, found.strategy.threshold) == (8, 0.5)
    other = compose_config([*inner[:2], f"{inner[2]}embedding"]).strategy
    assert not isinstance(other.representation, Gradient)
    other = compose_config(["experiment=mine", "strategy=stocfl"]).strategy
    assert other.representation == "difference"
    own.write_text(EXPERIMENT.lstrip().replace("gradient", "gradiant"))
    with pytest.raises(ConfigError, match=r"strategy/representation=\W*gradiant"):
        compose_config(inner[:2])
    own.write_text(EXPERIMENT.lstrip().replace("fedprox", "fedprx"))
    with pytest.raises(ConfigError, match=r"options\.strategy\.fedprx .*fedprox"):
        compose_config(["experiment=mine"])


def test_a_file_may_have_several_drifts(tmp_path, monkeypatch):
    folder = tmp_path / "conf" / "drift"
    folder.mkdir(parents=True)
    target = "_target_: cfl_flower.data.worlds.drift.Schedule"
    steps = "steps:\n  noise:\n    rounds: [7]"
    parts = "defaults: [rotate@steps.rotate, noise@steps.noise, _self_]"
    (folder / "both.yaml").write_text("\n".join(["# Both.", parts, target, steps]))
    monkeypatch.chdir(tmp_path)
    assert compose_config(["drift=both"]).timeline.changes == [7, 13, 25]


def test_times_of_a_drift_may_be_shares_of_the_run():
    lines = ["drift=staggered", "partition=iid", "rounds=20"]
    config = compose_config([*lines, "drift.rounds=[0.25,0.5,19]"])
    assert config.timeline.rounds == [6, 11, 19]
    assert config.resolved["drift"]["rounds"] == [6, 11, 19]
    with pytest.raises(ConfigError, match=r"drift.rounds=\[11, 3\] .* ascending"):
        compose_config([*lines, "drift=sudden", "drift.rounds=[0.5,3]"])


@pytest.mark.slow
@pytest.mark.whole
def test_every_option_of_every_group_composes():
    # Methods, networks and datasets have suites of their own.
    others = GROUPS.keys() - {"strategy", "model", "dataset"}
    refused = "use .* images of three channels|^strategy/privacy=none is not allowed"
    for group in others:
        for option in list_options(group):
            rest = ["drift=none"] if group == "partition" else []
            try:
                config = compose_config([f"{group}={option}", *rest])
            except ConfigError as error:
                assert re.search(refused, str(error))
                continue
            assert config.names[group] == option
            times = config.timeline.rounds if group == "drift" else [2]
            within = option == "none" or any(
                1 < each <= config.rounds for each in times
            )
            assert within, "it comes within the default rounds"


FIRST = "drift.steps.first"
NAMED = [
    ("drift=rotate drift.ids=[3,7]", "drift", [3, 7]),
    ("drift=rotate drift.ids=[3]", "drift", [3]),
    ("drift=rotate drift.modulo=20 drift.residues=[1]", "drift", [1, 21]),
    ("drift=concept_half drift.ids=[0,1,2]", "drift", [0, 1, 2]),
    ("drift=concept_half +drift.ids=[4]", "drift", [4]),
    ("drift=noise drift.ids=[2,4]", "drift", [2, 4]),
    ("drift=test_time drift.ids=[2]", "drift", [2]),
    ("drift=recurring_covariate drift.ids=[0]", "drift", [0]),
    (f"drift=sudden {FIRST}.ids=[9]", FIRST, [9]),
    (f"drift=gradual {FIRST}.ids=[5,6]", FIRST, [5, 6]),
    ("drift=rotate drift.ids=null", "drift", None),
    ("drift=rotate drift.ids=[3,7] drift.fraction=0.5", "drift", None),
]
"""Overrides, the key of an event, and the clients that it concerns; None for some."""


@pytest.mark.parametrize("key", ROUNDS)
def test_rounds_after_the_last_are_told(key):
    plain = "strategy=flux drift=rotate drift.rounds=[4]"
    assert not warned(f"{plain} {key}=[4,14]")
    (said,) = warned(f"{plain} {key}=[4,15,20]")
    assert said == f"nothing happens in {key}=[15, 20], after rounds=14"


@pytest.mark.parametrize(
    ("asked", "why"),
    {
        "strategy.robust_length=2": "strategy.robust=none",
        "strategy.robust_share=0.3": "strategy.robust=none",
        "strategy.robust=median strategy.robust_share=0.3": "strategy.robust=median",
        "strategy.robust=krum strategy.robust_length=2": "strategy.robust=krum",
        "strategy.fine_tuning_rate=1": "strategy.fine_tuning=0",
        "strategy.local.steps=3 strategy.local.epochs=2": "strategy.local.steps=3",
        "clusters=9": "this strategy",
        "faults.attack=flip": "faults.malicious=0 and faults.attackers=[]",
        "clients=9 participants=9 faults.malicious=0.05": "clients=9: it is nobody",
        "faults.malicious=0.1 faults.attack=flip": "",
        "faults.attackers=[1] faults.attack=flip": "",
        "strategy.local.schedule=one_cycle strategy.local.schedule_settings={max_lr:1} "
        "strategy.local.learning_rate=5": "strategy.local.schedule=one_cycle",
        "strategy.local.schedule=cosine strategy.local.learning_rate=0.2": "",
        "privacy.least_members=4": "privacy.secure_sums=false",
        "privacy.secure_sums=true privacy.least_members=4": "",
        "privacy=local privacy.report_noise=3": "this strategy",
        "devices.joining=0.3": "devices.joins=[]",
        "devices.leaving=0.3": "devices.leaves=[]",
        "devices.joins=[3] devices.joining=0.3": "",
        "drift=noise drift.first=3": "drift.every=null",
        "drift=rotate drift.first=3": "drift.every=null",
        f"drift=sudden drift.rounds=[3,5,7] {FIRST}.first=3": f"{FIRST}.every=null",
        "drift=rotate drift.every=4 drift.first=3": "",
        "strategy.robust=krum strategy.robust_share=0.3": "",
        "strategy.robust=clip strategy.robust_length=2": "",
        "strategy.fine_tuning=1 strategy.fine_tuning_rate=1": "",
        "strategy.weighting=plain strategy.weight_cap=3 participants=7": "",
    }.items(),
)
def test_a_setting_that_another_one_idles_is_told(asked, why):
    key = asked.split()[-1].partition("=")[0]
    said = f"strategy=fedavg: {key} has no effect with {why}"
    assert warned(f"strategy=fedavg {asked}") == [said] * bool(why)


@pytest.mark.parametrize(
    ("asked", "said"),
    {
        "strategy=fielding strategy/trigger=pairwise strategy.threshold=0.9": "old has",
        "strategy=fielding strategy.threshold=0.9": "",
        "strategy=static strategy/trigger=pairwise": "strategy/trigger has no effect",
        "strategy=static strategy.threshold=2 strategy.threshold=3": "strategy.thresh",
        "strategy=fedbabu model=mlp strategy.classifier_rate=2": "classifier_rate has",
        "clients=3 participants=2": "no client has the labels [",
        "partition.groups=2 partition.labels=2": "no client has the labels [",
        "drift=timestamps partition=iid rounds=15": "only 90% of the samples arrive",
        "drift=regroup_and_back drift.rounds=[3,5,7]": "in drift.rounds=[7], which no",
        "drift=rotate drift.rounds=[12] drift.width=5": "round 12 is at 60% of its wid",
        "drift=rotate drift.rounds=[3,12] drift.width=4": "round 12 is at 75% of its",
        "drift=rotate drift.rounds=[12] drift.width=3": "",
        "drift=none metrics=[forgetting]": "no concept returns in rounds=14",
        "metrics=[forgetting]": "no concept returns in rounds=14",
        "drift=regroup_and_back drift.rounds=[3,15]": "happens in drift.rounds=[15], a",
        "drift=rotate drift.rounds=[5,20]": "in drift.rounds=[20], after round",
        "drift=regroup_and_back drift.rounds=[2,5] metrics=[forgetting] "
        "evaluation=prequential": "no concept returns",
        "drift=sudden drift.rounds=[5,30]": "nothing happens in drift.rounds=[30], a",
        "drift=rotate drift.rounds=[5,15,16]": "in drift.rounds=[15, 16], after",
        "drift=rotate drift.rounds=[5,15] evaluation=prequential": "",
        "drift=rotate drift.rounds=[5,16] evaluation=prequential": "rounds=[16], a",
        "strategy=fedccfa model=mlp": "start=20 with rounds=14",
        "strategy=fedccfa model=mlp strategy.start=14": "start=14 with rounds=14",
        "strategy=fedccfa model=mlp strategy.start=13": "",
        "strategy=fedfm model=mlp": "start=20 with rounds=14",
        "strategy=fedccfa model=mlp strategy.alignment=none": "",
        "strategy=fedfm model=mlp strategy.alignment_weight=0": "",
        "strategy=cfl": "first=20 with rounds=14",
        "strategy=flux model=mlp strategy.warmup=14": "warmup=14 with rounds=14",
        "strategy=feroma model=mlp strategy.warmup=30": "warmup=30 with rounds=14",
        "strategy=feddag strategy.warmup=30": "",
        "drift=regroup_and_back drift.rounds=[3,5] metrics=[forgetting]": "",
        "drift=none": "",
        "clients=3 participants=2 partition.samples=50": "",
        "drift=timestamps partition=iid rounds=20": "",
        "drift=regroup_and_back drift.rounds=[3,5]": "",
        "drift.rounds=[15] evaluation=prequential": "",
        "drift.rounds=[15]": "it starts in round 15, after the last of rounds=14",
    }.items(),
)
def test_what_is_not_as_asked_is_told_once(asked, said):
    found = warned(asked)
    assert len(found) == bool(said)
    assert said in "".join(found)


@pytest.mark.parametrize(
    ("base", "key"),
    [
        *(("", key) for key in ("rounds", "seed", "clusters", "partition.purity")),
        *(("", f"strategy.{key}") for key in ("weight_cap", "threshold", "local.mu")),
        ("drift=rotate", "drift.every"),
        ("privacy=central", "privacy.clip"),
        ("server_optimizer=yogi", "server_optimizer.tau"),
        ("model=mlp", "model.hidden"),
        ("strategy=flexcfl", "strategy.pretraining"),
    ],
)
def test_true_is_no_number(base, key):
    group = key if "." not in key else rf"\S*{key.rpartition('.')[2]}"
    with pytest.raises(ConfigError, match=rf"^{group}=true is not allowed; use .*num"):
        compose(f"{base} {key}=true")


@pytest.mark.parametrize("key", ["drift.rounds", "faults.attackers"])
@pytest.mark.parametrize("value", ["[true]", "[true,3]"])
def test_true_in_a_list_is_no_number(key, value):
    with pytest.raises(ConfigError, match=rf"^{key}=.* use a list of whole numbers"):
        compose(f"drift=rotate {key}={value}")


@pytest.mark.parametrize(
    ("text", "ok"),
    [
        (f"{PRESET}\nrounds: 3\n", True),
        ("rounds: 3\n", False),
        (f"# Mine\n{PRESET}\nrounds: 3\n", False),
        (f"{PRESET}x\nrounds: 3\n", False),
        ("\n#@package  _global_ \nrounds: 3\n", True),
        ("", False),
    ],
)
def test_a_preset_s_first_line_is_needed_and_told(text, ok, tmp_path, monkeypatch):
    (tmp_path / "experiment" / "deep").mkdir(parents=True)
    monkeypatch.setenv("CFL_CONF", str(tmp_path))
    for name in ("mine", "deep/mine"):
        (tmp_path / "experiment" / f"{name}.yaml").write_text(text)
        if ok:
            assert compose_config([f"experiment={name}"]).rounds == 3
            continue
        said = rf"^experiment={name}: the first line of .* has to be {PRESET}"
        with pytest.raises(ConfigError, match=said):
            compose_config([f"experiment={name}"])


@pytest.mark.parametrize(
    ("drift", "overrides", "rounds"),
    [
        ("sudden", "", [7, 19]),
        ("sudden", "drift.steps.one.rounds=[3]", [3, 7]),
        ("sudden", "drift.steps.one.rounds=[11] drift.steps.one.width=2", [7, 11, 12]),
        ("gradual", "drift.steps.one.width=3", [7, 13, 14, 15]),
        ("staggered", "drift.steps.one.rounds=[9,11,12]", [7, 9, 11, 12]),
        ("regroup_and_back", "drift.steps.one.rounds=[8,9]", [7, 8, 9]),
        ("sudden", "drift.steps.one.steps.first.rounds=[4]", [4, 7, 19]),
    ],
)
def test_a_drift_in_another_one_has_its_own_rounds(
    drift, overrides, rounds, tmp_path, monkeypatch
):
    (tmp_path / "drift").mkdir()
    text = (
        f"defaults: [{drift}@steps.one, noise@steps.noise, _self_]\n"
        "_target_: cfl_flower.data.worlds.drift.Schedule\n"
        "steps: {noise: {rounds: [7]}}\n"
    )
    (tmp_path / "drift" / "mine.yaml").write_text(text)
    monkeypatch.setenv("CFL_CONF", str(tmp_path))
    config = compose_config(["drift=mine", "rounds=30", *overrides.split()])
    assert config.timeline.rounds == rounds
    if drift == "staggered":
        said = r"^drift\.steps\.one\.rounds=\[3\] .* a list of 3 values"
        with pytest.raises(ConfigError, match=said):
            compose_config(["drift=mine", "drift.steps.one.rounds=[3]"])


def compose(overrides: str) -> RunConfig:
    return compose_config(["rounds=14", *overrides.split()])


def warned(overrides: str) -> list[str]:
    return find_warnings(compose(overrides))


@pytest.mark.parametrize(("overrides", "place", "clients"), NAMED, ids=str)
def test_an_event_concerns_the_clients_that_are_named(overrides, place, clients):
    config = compose(f"{overrides} rounds=40")
    event = config.drift.events[place]
    able = np.flatnonzero(event.candidates(config.clients)).tolist()
    some = event.fraction < 1
    assert (None if some else able) == clients


IDLE = [
    *((kind, "strength=0") for kind in ("noise", "brightness")),
    ("feature_shift", "strength=0"),
    ("sensor_failure", "strength=0"),
    ("swap_all", "probability=0"),
    ("concept_half", "fraction=0.01"),
    ("test_time", "strength=0"),
    *(("patterns", f"rotations=[{angle}]") for angle in (0, 360, -360)),
]


@pytest.mark.parametrize(("drift", "setting"), IDLE, ids=str)
@pytest.mark.parametrize("first", [1, 4])
def test_an_event_that_changes_nothing_is_told(drift, setting, first):
    (said,) = warned(f"drift={drift} drift.rounds=[{first}] drift.{setting}")
    assert said.startswith(f"nothing changes with drift={drift}: ")
