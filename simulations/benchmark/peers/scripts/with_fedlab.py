"""FedAvg by FedLab's standalone pipeline, all clients in one process."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

if TYPE_CHECKING:
    from simulations.benchmark.peers.scripts.runner import Job


def run(job: Job, lap: Callable[[], None]) -> list[Any]:
    """Train with FedAvg."""
    import torch_network as networks
    from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
    from fedlab.contrib.algorithm.basic_server import SyncServerHandler
    from fedlab.core.standalone import StandalonePipeline

    logging.disable()
    network = networks.load(networks.build(job.network), job.start()[0])
    x, y = (torch.from_numpy(np.array(part)) for part in job.data())
    server = SyncServerHandler(network, job.rounds, job.participants / len(y))
    trainer = SGDSerialClientTrainer(network, len(y))
    trainer.setup_dataset(_data(x, y))
    trainer.setup_optim(job.epochs, job.batch_size, job.learning_rate)
    pipeline = StandalonePipeline(server, trainer)
    pipeline.evaluate = lap
    pipeline.main()
    return [server.model_parameters.numpy()]


def _data(x: Any, y: Any) -> Any:
    from fedlab.contrib.dataset.basic_dataset import FedDataset

    class Clients(FedDataset):  # type: ignore[misc]
        def get_dataloader(self, id: int, batch_size: int, type: str = "train") -> Any:
            return DataLoader(TensorDataset(x[id], y[id]), batch_size, shuffle=True)

    return Clients()
