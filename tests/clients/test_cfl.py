"""CFL's client: which model it is served."""

import numpy as np

from cfl_flower.types import Vector
from clients.cfl import CFLClient


def test_cfls_client_is_served_the_model_with_the_smallest_training_loss(make_context):
    client = CFLClient(make_context(1))
    start = client.context.initial()
    trained, _ = client.train_from(start)
    split_off: Vector = np.zeros_like(start)
    assert client.served([split_off, start, trained]) is trained
    # On a tie, and without a choice, it stays with its cluster.
    same = split_off.copy()
    assert client.served([split_off, same]) is split_off
    assert client.served([split_off]) is split_off
