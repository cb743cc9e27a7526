"""FedEM's promises."""

from pathlib import Path

import pytest
from safetensors.numpy import load_file

from cfl_flower.config.compose import compose_config
from cfl_flower.errors import ConfigError

WHOLE = ["strategy.local.batch_size=999", "participants=12", "drift.rounds=[]"]


@pytest.mark.slow
def test_each_concept_finds_a_component_of_its_own(run_small):
    concepts = ["partition.groups=1", "drift=sudden", "drift.rounds=[2]"]
    options = [*concepts, "participants=12", "rounds=20", "strategy.local.epochs=10"]
    run = run_small("strategy=fedem", *options)
    chosen = []
    for client in range(12):
        (*_, last) = sorted(Path(run.folder, "clients", str(client)).glob("*.safe*"))
        mixture = load_file(last)["mixture"]
        assert mixture.sum() == pytest.approx(1)
        assert mixture.max() > 0.4
        chosen.append(int(mixture.argmax()))
    # By the last digit of a client's number: 0 to 2, 3 to 5, 6 to 9.
    groups = [chosen[0:3] + chosen[10:12], chosen[3:6], chosen[6:10]]
    assert [len(set(group)) for group in groups] == [1, 1, 1]
    assert len(set(chosen)) == 3
    fedavg = run_small("strategy=fedavg", *options, folder="fedavg")
    assert run.rounds[-1]["accuracy"] > fedavg.rounds[-1]["accuracy"] + 0.05


def test_privacy_accounts_for_three_components():
    options = ["strategy=fedem", "privacy=central", "strategy.weighting=plain"]
    assert compose_config(options).strategy.components == 3
    with pytest.raises(ConfigError, match="3 with privacy=, whose account"):
        compose_config([*options, "strategy.components=2"])
