"""FedDAG's client: what it tells of its samples and of where they lead a model."""

from dataclasses import replace

import numpy as np
import pytest

from cfl_flower.clustering.similarity import chosen_entries
from clients.feddag import FedDAGClient
from clients.pacfl import SUBSPACE, principal_vectors
from strategies.feddag import FedDAGSettings


@pytest.mark.parametrize("warmup", [1, 3])
def test_the_update_is_that_of_the_last_training_by_itself(make_context, warmup):
    context = make_context(0)
    settings = FedDAGSettings(local=context.settings.local, warmup=warmup, share=0.1)
    client = FedDAGClient(replace(context, settings=settings))
    asked = {SUBSPACE: True}
    (vectors, counts, update), count, _ = client.answer([], asked)
    labels = client.data(1).labels
    assert counts.tolist() == np.bincount(labels, minlength=10).tolist()
    assert count == len(labels)
    models = [context.initial()]
    for number in range(warmup):
        trained, _ = client.train_from(models[-1], None, 1, f"warmup/{number}")
        models.append(trained)
    last = models[-1] - models[-2]
    assert update.tolist() == last[chosen_entries(650, 0.1, 0)].tolist()
    x, y = client.samples(1)
    own = int(labels[0])
    found = vectors.reshape(10, 3, 64)[own]
    assert found == pytest.approx(principal_vectors(x[y == own], 3), abs=1e-5)


def test_labels_that_one_lacks_count_as_90_degrees(make_context):
    context = make_context(1)
    client = FedDAGClient(replace(context, settings=FedDAGSettings(vectors=1)))
    subspaces = np.zeros((3, 10, 64))
    subspaces[:, 0, 0] = subspaces[2, 4, 1] = 1
    subspaces[1, 0, :2] = 0.6, 0.8
    assert client.angles(subspaces)[0] == pytest.approx(
        [0, np.degrees(np.arccos(0.6)) / 10, 9]
    )
