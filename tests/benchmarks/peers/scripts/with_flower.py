"""FedAvg by Flower's simulation on Ray, a node for each client.

The client is a plain loop: fewer layers than the data loaders of Flower's examples.
"""

from __future__ import annotations

import json
from typing import Any

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
from flwr.simulation import run_simulation
from torch import nn

from tests.benchmarks.peers.scripts.job import (
    Job,
    build,
    carry_out,
    get_parameters,
    lap,
    set_parameters,
)

client_app = ClientApp()


def run(job: Job) -> list[Any]:
    """Train with FedAvg."""
    network = set_parameters(build(job.shapes), job.load("start")[0])
    clients = len(job.load("y"))
    trained: list[ArrayRecord] = []

    def look(server_round: int, arrays: ArrayRecord) -> None:
        if server_round:
            trained[:] = [arrays]
            lap()

    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(
            fraction_train=job.participants / clients,
            fraction_evaluate=0.0,
            # As many in the first round, before which it counts few nodes.
            min_train_nodes=job.participants,
            min_available_nodes=clients,
        )
        strategy.start(
            grid=grid,
            initial_arrays=ArrayRecord(network.state_dict()),
            num_rounds=job.rounds,
            train_config=ConfigRecord({"job": json.dumps(vars(job))}),
            evaluate_fn=look,
        )

    cpus = {"num_cpus": job.workers}
    backend: Any = {"client_resources": {"num_cpus": 1}, "init_args": cpus}
    run_simulation(server, client_app, clients, backend_config=backend)
    network.load_state_dict(trained[0].to_torch_state_dict())
    return [get_parameters(network)]


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Train the model of a message on the data of this node's client."""
    content: Any = message.content
    job = Job(**json.loads(content["config"]["job"]))
    network = build(job.shapes)
    network.load_state_dict(content["arrays"].to_torch_state_dict())
    client = int(context.node_config["partition-id"])
    x, y = (torch.from_numpy(np.array(job.load(name)[client])) for name in "xy")
    optimizer = torch.optim.SGD(network.parameters(), job.learning_rate)
    loss = nn.CrossEntropyLoss()
    for _ in range(job.epochs):
        for rows in torch.split(torch.randperm(len(y)), job.batch_size):
            optimizer.zero_grad()
            loss(network(x[rows]), y[rows]).backward()
            optimizer.step()
    reply: Any = {
        "arrays": ArrayRecord(network.state_dict()),
        "metrics": MetricRecord({"num-examples": len(y)}),
    }
    return Message(content=RecordDict(reply), reply_to=message)


if __name__ == "__main__":
    carry_out(run)
