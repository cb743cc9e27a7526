"""Networks of a user's own, with frozen parameters or BatchNorm, in whole runs."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from cfl_flower.analysis.saved import load_run
from cfl_flower.config.compose import compose_config
from cfl_flower.errors import ConfigError
from cfl_flower.models import build_network
from simulations.export import export
from tests.conftest import sample
from tests.simulations.test_export import load_served

OWN = """
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

from cfl_flower.models import Network
from cfl_flower.settings import settings


@settings("model")
class Frozen:
    def build(self, shape, classes):
        backbone = nn.Linear(64, 16)
        nn.init.constant_(backbone.bias, 7.0)
        backbone.requires_grad_(False)
        layers = nn.Flatten(), backbone, nn.ReLU(), nn.Linear(16, 8)
        return Network(nn.Sequential(*layers), nn.Linear(8, classes))


@settings("model")
class Silent:
    def build(self, shape, classes):
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).requires_grad_(False)


class Branching(nn.Sequential):
    def forward(self, x):
        return super().forward(x if x.sum() > 0 else -x)


@settings("model")
class Untraceable:
    def build(self, shape, classes):
        return Branching(nn.Flatten(), nn.Linear(64, classes))


@settings("model")
class FrozenClassifier:
    def build(self, shape, classes):
        classifier = nn.Linear(8, classes).requires_grad_(False)
        layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 8))
        return Network(layers, classifier)


class Scaling(Network):
    def forward(self, x):
        factors = {"never": 1.0, "always": 5.0, "in training": 1.0 + self.training}
        return self.classifier(self.extractor(factors[self.scaled] * x))


@settings("model")
class Own:
    scaled: str

    def build(self, shape, classes):
        layers = nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Dropout(0.2)
        network = Scaling(nn.Sequential(*layers), nn.Linear(8, classes))
        network.scaled = self.scaled
        return network


@settings("model")
class Spectral:
    def build(self, shape, classes):
        layers = nn.Flatten(), nn.Linear(64, 8)
        return Network(nn.Sequential(*layers), spectral_norm(nn.Linear(8, classes)))


@settings("model")
class Normalised:
    def build(self, shape, classes):
        layers = nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8)
        return Network(nn.Sequential(*layers), nn.Linear(8, classes))
"""

TRAINED = 16 * 8 + 8 + 8 * 10 + 10
NORMALISED = 64 * 8 + 8 + 2 * 8 + 8 * 10 + 10
"""Weights of `Normalised`, behind which are its running statistics."""
PARTICIPANTS = 6

TAKEN_APART = r"Scaling is more than classifier\(extractor\(x\)\); the strategy"
FEATURES = "Scaling does more than give inputs to its extractor"


@pytest.fixture(autouse=True)
def _own_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_networks.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("CFL_PLUGINS", "own_networks")


@pytest.mark.parametrize(
    ("strategy", "vectors"), [("fedavg", 1), ("scaffold", 2), ("ifca", 1)]
)
def test_frozen_parameters_are_neither_sent_nor_lost(
    strategy, vectors, run_small, tmp_path
):
    penalties = ["strategy.local.weight_decay=0.1", "strategy.local.mu=0.1"]
    own = [f"strategy={strategy}", "model._target_=own_networks.Frozen", *penalties]
    run = run_small(*own, "rounds=2", "drift=none")
    for row in run.rounds:
        assert row["failures"] == []
        assert row["bytes_up"] == 4 * TRAINED * vectors * PARTICIPANTS
    _, state = load_run(run.folder).load_state()
    assert {len(model) for model in state.models} == {TRAINED}
    (cluster, *_) = export(run.folder, tmp_path / "served")
    named = load_file(tmp_path / "served" / f"cluster-{cluster}" / "model.safetensors")
    assert named["extractor.1.bias"].tolist() == [7.0] * 16
    network = build_network(run.config.model, (1, 8, 8), 10, seed=0)
    backbone = network.state_dict()["extractor.1.weight"].numpy()
    assert np.array_equal(named["extractor.1.weight"], backbone)
    assert not np.array_equal(
        named["classifier.weight"], network.state_dict()["classifier.weight"].numpy()
    )
    again = load_served(tmp_path / "served").state_dict()
    assert all(np.array_equal(again[name], named[name]) for name in named)


def test_a_network_without_a_program_is_served_without_one(run_small, tmp_path, capsys):
    run = run_small("strategy=fedavg", "model._target_=own_networks.Untraceable")
    export(run.folder, tmp_path / "served")
    (note,) = capsys.readouterr().err.splitlines()[-1:]
    assert note.startswith("note: the network cannot be exported (")
    folder = tmp_path / "served" / "cluster-0"
    names = {path.name for path in folder.iterdir()}
    assert names == {"model.safetensors", "card.json", "card.md"}
    card = json.loads((folder / "card.json").read_text())
    assert card["files"] == {"safetensors": "model.safetensors"}
    assert load_served(tmp_path / "served")(torch.ones(1, 1, 8, 8)).shape == (1, 10)


def test_methods_with_personal_classifiers_split_what_is_trained(run_small):
    run = run_small("strategy=fedrep", "model._target_=own_networks.Frozen", "rounds=2")
    extractor = 16 * 8 + 8
    assert [row["bytes_up"] for row in run.rounds] == [4 * extractor * PARTICIPANTS] * 2
    assert all(row["failures"] == [] for row in run.rounds)


@pytest.mark.parametrize(
    ("own", "overrides", "words"),
    [
        ("Silent", ["strategy=fedavg"], "no trainable parameters"),
        ("FrozenClassifier", ["strategy=fedrep"], "frozen classifier"),
        (
            "Normalised",
            ["strategy=fedavg", "strategy.local.batch_size=1"],
            "strategy.local.batch_size=1 is not allowed; use at least 2: Network",
        ),
    ],
)
def test_networks_that_cannot_be_trained_are_refused(own, overrides, words, run_small):
    with pytest.raises(ConfigError, match=words):
        run_small(*overrides, f"model._target_=own_networks.{own}")


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        *((each, TAKEN_APART) for each in ("fedrep", "fedccfa", "fedpac", "fedfm")),
        *((each, FEATURES) for each in ("flux", "feroma")),
        ("fielding strategy/representation=embedding", FEATURES),
    ],
)
def test_a_forward_that_is_more_than_its_parts_is_refused_where_they_are_used(
    strategy, words, run_small
):
    own = ["model._target_=own_networks.Own", "rounds=1"]
    asked = f"strategy={strategy}".split()
    # Features are computed as in tests.
    for when in ("always", "in training")[: 1 + (words is TAKEN_APART)]:
        with pytest.raises(ConfigError, match=words):
            run_small(*asked, *own, f"model.scaled={when}")
    run_small(*asked, *own, "model.scaled=never", folder="as-it-is")
    run_small("strategy=fedavg", *own, "model.scaled=always", folder="fedavg")


YOGI = "fedavg fedbabu fedccfa fedem fedfm fedpac fedrep fielding stocfl"
FASTER = [
    *(f"{name} server_optimizer=yogi" for name in YOGI.split()),
    "fedavg server_optimizer=qfedavg server_optimizer.learning_rate=0.01",
    *("scaffold strategy.global_rate=3", "pfedme strategy.beta=3"),
    "fedbuff strategy.server_rate=3",
]
"""Steps that are not to the mean of the uploads."""


@pytest.mark.parametrize("options", sample(FASTER, FASTER[-4::3]))
def test_running_statistics_are_averaged_whatever_the_step(options, run_small):
    method, *more = options.split()
    common = [f"strategy={method}", "model._target_=own_networks.Normalised"]
    common += ["drift=none", "strategy.weighting=plain"]
    if method == "fedbuff":
        common.append("strategy.buffer=6")
    longer = run_small(*common, *more, "rounds=3")
    assert longer.failures == []
    pairs = []
    for own in (more, []):
        run = run_small(*common, *own, "rounds=1", folder=f"{len(own)}")
        pairs.append(run.state.models)
    for stepped, mean in zip(*pairs, strict=True):
        assert stepped[NORMALISED:].tobytes() == mean[NORMALISED:].tobytes()
        assert stepped[:NORMALISED].tobytes() != mean[:NORMALISED].tobytes()


def test_batch_norm_loses_no_client(run_small):
    batches = [f"strategy.local.batch_size={size}" for size in (7, 8, 9, 10)]
    for size in batches:
        normalised = ["strategy=fedavg", "model._target_=own_networks.Normalised"]
        run = run_small(*normalised, size, "participants=12", "rounds=2", folder=size)
        assert [row["failures"] for row in run.rounds] == [[], []]


@pytest.mark.parametrize(
    ("strategy", "words"),
    [
        *((each, r"may be more than W z \+ b") for each in ("fedrep", "fedbabu")),
        *((each, "") for each in ("fedavg", "flux", "feroma")),
    ],
)
def test_a_classifier_that_is_trained_by_itself_is_a_plain_one(
    strategy, words, run_small
):
    asked = [f"strategy={strategy}", "model._target_=own_networks.Spectral", "rounds=1"]
    if not words:
        run_small(*asked)
        return
    with pytest.raises(ConfigError, match=words):
        compose_config(asked)
