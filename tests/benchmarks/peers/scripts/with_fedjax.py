"""FedAvg and HypCluster by fedjax, which compiles a step for all clients."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.benchmarks.peers.scripts.job import Job, carry_out, lap


def run(job: Job) -> list[Any]:
    """Train with FedAvg, or with HypCluster if there are several models."""
    import fedjax
    import jax
    from fedjax.algorithms import fed_avg, hyp_cluster

    if not hasattr(jax, "tree_map"):
        # The old name, which fedjax 0.0.17 still calls: renamed, not changed.
        jax.tree_map = jax.tree_util.tree_map
    x = job.load("x")
    y = job.load("y")
    data = {
        f"{client:04}": {"x": np.array(x[client]), "y": np.array(y[client], np.int32)}
        for client in range(len(y))
    }
    clients = fedjax.client_samplers.UniformGetClientSampler(
        fedjax.InMemoryFederatedData(data), job.participants, seed=0
    )
    models = [_split(job, vector) for vector in job.load("start")]
    client = fedjax.optimizers.sgd(job.learning_rate)
    server = fedjax.optimizers.sgd(1.0)
    batches = fedjax.ShuffleRepeatBatchHParams(job.batch_size, job.epochs, seed=0)
    if len(models) > 1:
        whole = fedjax.PaddedBatchHParams(batch_size=y.shape[1])
        algorithm = hyp_cluster.hyp_cluster(_losses, client, server, whole, batches)
        state = algorithm.init(models)
    else:
        gradient = fedjax.grad(_losses)
        algorithm = fed_avg.federated_averaging(gradient, client, server, batches)
        state = algorithm.init(models[0])
    for _ in range(job.rounds):
        state, _ = algorithm.apply(state, clients.sample())
        jax.block_until_ready(state)
        lap()
    trained = state.cluster_params if len(models) > 1 else [state.params]
    return [np.concatenate([np.ravel(part) for part in model]) for model in trained]


def _split(job: Job, vector: Any) -> list[Any]:
    """Return the parameters of a vector, each in its shape."""
    ends = np.cumsum([np.prod(shape) for shape in job.shapes])[:-1]
    parts = zip(np.split(vector, ends), job.shapes, strict=True)
    return [part.reshape(shape) for part, shape in parts]


def _losses(model: Any, batch: Any, key: Any) -> Any:
    """Return the cross-entropy of each sample of a batch."""
    import jax
    from jax import numpy as jnp

    del key
    layers = list(zip(model[::2], model[1::2], strict=True))
    x = batch["x"]
    between = jax.nn.leaky_relu if layers[0][0].ndim == 4 else jax.nn.relu
    padding = 0
    while layers[0][0].ndim == 4:
        weight, bias = layers.pop(0)
        sides = [(padding, padding)] * 2
        x = jax.lax.conv_general_dilated(x, weight, (1, 1), sides)
        x = between(x + bias[:, None, None])
        window = (1, 1, 2, 2)
        x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")
        padding += 1
    x = x.reshape(len(x), -1)
    for weight, bias in layers[:-1]:
        x = between(x @ weight.T + bias)
    scores = jax.nn.log_softmax(x @ layers[-1][0].T + layers[-1][1])
    return -jnp.take_along_axis(scores, batch["y"][:, None], 1)[:, 0]


if __name__ == "__main__":
    carry_out(run)
