import numpy as np

from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.testing import evaluate
from cfl_flower.seeding import generator
from cfl_flower.types import Vector
from clients.flash import FlashClient
from strategies.flash import FlashSettings

EPOCHS = 4


def test_training_ends_where_an_epoch_gains_less_than_its_share(make_context):
    context = make_context(1)
    x, y = context.stream.view(2, 1).train()
    held = generator(0, "batches", 1, 2).permutation(len(y))[: len(y) // 5]

    def fit(epochs: int, stop: float) -> Vector:
        local = LocalTraining(epochs=epochs, learning_rate=0.02)
        context.settings = FlashSettings(local=local, stop=stop, validation=0.2)
        (trained,), _, _ = FlashClient(context).fit([context.initial()], {})
        return trained

    models = [fit(epochs, 0.0) for epochs in range(1, EPOCHS + 1)]
    losses = [evaluate(context.model.load(m), x[held], y[held])[0] for m in models]
    gains = -np.diff(losses)
    assert (gains > 0).all()
    ends = set[int]()
    # The gain of the n-th epoch is compared with gamma / n.
    numbers = np.arange(2, EPOCHS + 1)
    for stop in np.outer(gains * numbers, [0.99, 1.01]).ravel():
        few = np.flatnonzero(gains < stop / numbers)
        end = int(few[0]) + 1 if len(few) else EPOCHS - 1
        assert fit(EPOCHS, float(stop)).tobytes() == models[end].tobytes()
        ends.add(end)
    assert len(ends) > 1
