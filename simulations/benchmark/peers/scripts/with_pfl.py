"""FedAvg by pfl-research, all clients in one process.

Its data sets keep the order of the samples: here it is drawn with the client.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

if TYPE_CHECKING:
    from simulations.benchmark.peers.scripts.runner import Job


def run(job: Job, lap: Callable[[], None]) -> list[Any]:
    """Train with FedAvg."""
    import torch_network as networks
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel

    class Model(nn.Sequential):
        def loss(self, x: Any, y: Any) -> Any:
            return nn.functional.cross_entropy(self(x), y)

        def metrics(self, x: Any, y: Any) -> dict[str, Any]:
            return {}

    network = Model(*networks.build(job.network))
    networks.load(network, job.start()[0])
    server = torch.optim.SGD(network.parameters(), 1.0)
    data = _data(job)
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
        callbacks=[_callback(lap)],
    )
    return [networks.vector(network)]


def _data(job: Job) -> Any:
    """Return all clients, drawn at random, whose samples are shuffled each time."""
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler

    x, y = (torch.from_numpy(np.array(part)) for part in job.data())

    def draw(client: int) -> Any:
        order = torch.randperm(len(y[client]))
        return PyTorchTensorDataset([x[client][order], y[client][order]])

    return FederatedDataset(draw, get_user_sampler("random", list(range(len(y)))))


def _callback(lap: Callable[[], None]) -> Any:
    from pfl.callback.base import TrainingProcessCallback
    from pfl.metrics import Metrics

    class Lap(TrainingProcessCallback):  # type: ignore[misc]
        def after_central_iteration(self, *_: Any, **__: Any) -> tuple[bool, Any]:
            lap()
            return False, Metrics()

    return Lap()
