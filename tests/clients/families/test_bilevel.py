import numpy as np
import torch

from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.training import train
from cfl_flower.seeding import generator
from clients.ditto import DittoClient
from strategies.ditto import DittoSettings

LOCAL = LocalTraining(epochs=1)


def test_one_model_is_trained_near_the_other_as_it_was_received(make_context):
    # Of min f(theta) + lambda/2 |theta - omega|^2 and min f(omega).
    context = make_context(2)
    theta = context.initial() + np.float32(0.02)
    omega = context.initial()
    context.settings = DittoSettings(local=LOCAL, regularisation=0.7)
    context.state.save(1, {"model": theta})
    (sent,), _, _ = DittoClient(context).fit([omega], {})
    near = context.state.at(2)["model"]
    samples = context.stream.view(2, 2).train()
    expected = []
    for start, mu, purpose in ((theta, 0.7, "batches"), (omega, 0.0, "global")):
        model = context.model.load(start)
        local = LocalTraining(epochs=1, mu=mu)
        rng = generator(0, purpose, 2, 2)
        train(model, *samples, local, rng, anchor=torch.from_numpy(omega))
        expected.append(model.to_vector())
    assert np.array_equal(near, expected[0])
    assert np.array_equal(sent, expected[1])
