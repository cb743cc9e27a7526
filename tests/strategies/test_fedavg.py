import numpy as np
import pytest

from cfl_flower.data.worlds.stream import Stream
from cfl_flower.learning.aggregation import mean_model
from cfl_flower.learning.testing import evaluate
from cfl_flower.learning.training import train
from cfl_flower.models import FlatModel, initial_vector
from cfl_flower.seeding import generator


@pytest.mark.parametrize("weighting", ["samples", "plain"])
def test_fedavg_equals_a_plain_loop_to_the_bit(weighting, run_small):
    own = ["strategy=fedavg", f"strategy.weighting={weighting}"]
    run = run_small(*own, "clients=8", "participants=3")
    config = run.config
    dataset = config.dataset
    stream = Stream(dataset, config.partition, config.drift, 8, 0, config.rounds)
    weights = initial_vector(config.model, dataset.shape, dataset.classes, 0)
    model = FlatModel(config.model.build(dataset.shape, dataset.classes))
    for round in range(1, config.rounds + 1):
        chosen = generator(0, "selection", round).choice(8, 3, replace=False)
        results, counts = [], []
        for client in sorted(chosen.tolist()):
            x, y = stream.view(client, round).train()
            batches = generator(0, "batches", round, client)
            train(model.load(weights), x, y, config.strategy.local, batches)
            results.append(model.to_vector())
            counts.append(float(len(y)) if weighting == "samples" else 1.0)
        weights = mean_model(results, counts)
        tests = [
            evaluate(model.load(weights), *stream.view(client, round).test())
            for client in range(8)
        ]
        row = run.rounds[round - 1]
        tested = sum(len(stream.view(c, round).test_indices) for c in range(8))
        assert row["accuracy"] == sum(correct for _, correct in tests) / tested
    assert np.array_equal(run.state.models[0], weights)


def test_a_fine_tuned_model_knows_its_clients_labels(run_small):
    still = ["drift.rounds=[]", "strategy.fine_tuning_rate=0.1"]
    tuned = run_small("strategy=fedavg_ft", *still, folder="tuned")
    plain = run_small("strategy=fedavg", *still, folder="plain")
    # Clients hold mostly a third of the labels: a tuned model is far better.
    assert tuned.rounds[-1]["accuracy"] > plain.rounds[-1]["accuracy"] + 0.1
