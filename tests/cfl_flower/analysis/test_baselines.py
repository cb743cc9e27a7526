"""The reference of a run: the single global model with its settings."""

from typing import Any

from cfl_flower.analysis.baselines import find_reference_runs


def config(name: str, epochs: int = 1, **others: Any) -> dict[str, Any]:
    strategy = {"name": name, "local": {"epochs": epochs}, "own": name}
    return {"strategy": strategy, "seed": 0, "rounds": 5, "engine": "ray", **others}


def test_a_reference_has_the_seed_and_the_settings_outside_of_the_method():
    configs = [
        config("fedavg", seed=0),
        config("fedavg", seed=1),
        config("fedavg", seed=0, faults={"malicious": 0.5}),
        config("ifca", seed=0),
        config("ifca", seed=1, engine="inprocess"),  # changes no number
        config("ifca", seed=0, faults={"malicious": 0.5}),
        config("ifca", seed=1, faults={"malicious": 0.5}),
        config("ifca", seed=0, rounds=9),
        config("ifca", seed=0, system={"evaluate_every": 2}),
    ]
    assert find_reference_runs(configs) == [0, 1, 2, 0, 1, 2, None, None, None]


def test_local_training_decides_between_several_references():
    configs = [config("fedavg", 1), config("fedavg", 5)]
    others = [config("ifca", epochs) for epochs in (5, 1, 3)]
    assert find_reference_runs([*configs, *others]) == [0, 1, 1, 0, None]
    # The only one counts, whatever its local training.
    assert find_reference_runs([configs[0], *others]) == [0, 0, 0, 0]


def test_repeated_references_count_as_one_and_ambiguous_ones_as_none():
    one, other = config("fedavg"), config("fedavg")
    assert find_reference_runs([one, other, config("ifca")]) == [0, 1, 0]
    other["strategy"] = other["strategy"] | {"weighting": "uniform"}
    assert find_reference_runs([one, other, config("ifca")]) == [0, 1, None]


def test_runs_without_a_single_global_model_have_no_reference():
    assert find_reference_runs([config("ifca"), config("oracle")]) == [None, None]
    assert find_reference_runs([]) == []
