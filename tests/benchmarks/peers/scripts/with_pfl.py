"""FedAvg by pfl-research, all clients in one process.

Its data sets keep the order of the samples: here it is drawn with the client.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from tests.benchmarks.peers.scripts.job import (
    Job,
    build,
    carry_out,
    get_parameters,
    lap,
    set_parameters,
)


def run(job: Job) -> list[Any]:
    """Train with FedAvg."""
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    np.random.seed(0)
    torch.manual_seed(0)
    x, y = (torch.from_numpy(np.array(job.load(name))) for name in "xy")

    class Model(nn.Sequential):
        def loss(self, x: Any, y: Any) -> Any:
            return nn.functional.cross_entropy(self(x), y)

        def metrics(self, x: Any, y: Any) -> dict[str, Any]:
            return {}

    class Lap(TrainingProcessCallback):  # type: ignore[misc]
        def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Any]:
            lap()
            return False, Metrics()

    def draw(client: int) -> Any:
        order = torch.randperm(len(y[client]))
        return PyTorchTensorDataset([x[client][order], y[client][order]])

    network = Model(*build(job.shapes))
    set_parameters(network, job.load("start")[0])
    data = FederatedDataset(draw, get_user_sampler("random", list(range(len(y)))))
    server = torch.optim.SGD(network.parameters(), 1.0)
    FederatedAveraging().run(
        # It tests when the round's number is a multiple of this: never.
        NNAlgorithmParams(job.rounds, job.rounds + 1, job.participants, None),
        SimulatedBackend(data, data),
        PyTorchModel(network, torch.optim.SGD, server),
        NNTrainHyperParams(
            local_num_epochs=job.epochs,
            local_learning_rate=job.learning_rate,
            local_batch_size=job.batch_size,
        ),
        callbacks=[Lap()],
    )
    return [get_parameters(network)]


if __name__ == "__main__":
    carry_out(run)
