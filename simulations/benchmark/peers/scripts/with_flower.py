"""Flower's simulation on Ray, a node for each client, with its own FedAvg.

The client is a plain loop: fewer layers than the data loaders of Flower's examples.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from torch import nn

if TYPE_CHECKING:
    from simulations.benchmark.peers.scripts.runner import Job

client_app = ClientApp()


def run(job: Job, lap: Callable[[], None]) -> list[Any]:
    """Train with FedAvg."""
    import torch_network as networks
    from flwr.simulation import run_simulation

    network = networks.load(networks.build(job.network), job.start()[0])
    trained: list[ArrayRecord] = []

    def look(server_round: int, arrays: ArrayRecord) -> None:
        if server_round:
            trained[:] = [arrays]
            lap()

    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        share = job.participants / len(job.data()[1])
        settings = ConfigRecord({"job": json.dumps(vars(job))})
        strategy = FedAvg(fraction_train=share, fraction_evaluate=0.0)
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(network.state_dict()),
            num_rounds=job.rounds,
            train_config=settings,
            evaluate_fn=look,
        )

    one_cpu: Any = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 1}}
    run_simulation(server, client_app, len(job.data()[1]), backend_config=one_cpu)
    network.load_state_dict(trained[0].to_torch_state_dict())
    return [networks.vector(network)]


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model of a message on the data of this node's client."""
    content: Any = message.content
    job = json.loads(content["config"]["job"])
    network, x, y = _resources(job["folder"], job["network"])
    network.load_state_dict(content["arrays"].to_torch_state_dict())
    client = int(context.node_config["partition-id"])
    data, labels = (torch.from_numpy(np.array(part[client])) for part in (x, y))
    optimizer = torch.optim.SGD(network.parameters(), job["learning_rate"])
    loss = nn.CrossEntropyLoss()
    for _ in range(job["epochs"]):
        for rows in torch.split(torch.randperm(len(labels)), job["batch_size"]):
            optimizer.zero_grad()
            loss(network(data[rows]), labels[rows]).backward()
            optimizer.step()
    reply: Any = {
        "arrays": ArrayRecord(network.state_dict()),
        "metrics": MetricRecord({"num-examples": len(labels)}),
    }
    return Message(content=RecordDict(reply), reply_to=message)


@cache
def _resources(folder: str, network: str) -> tuple[nn.Module, Any, Any]:
    """Return the network and all clients' data, made once in each process."""
    import torch_network as networks

    x, y = (np.load(Path(folder, f"{name}.npy"), mmap_mode="r") for name in "xy")
    return networks.build(network), x, y
