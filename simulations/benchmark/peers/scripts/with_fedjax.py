"""FedAvg and HypCluster by fedjax, which compiles a step for all clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from simulations.benchmark.peers.scripts.runner import Job


def run(job: Job, lap: Callable[[], None]) -> list[Any]:
    """Train with FedAvg, or with HypCluster if there are several models."""
    import fedjax
    import jax

    if not hasattr(jax, "tree_map"):
        # The old name, which fedjax 0.0.17 still calls: renamed, not changed.
        jax.tree_map = jax.tree_util.tree_map
    x, y = job.data()
    data = {
        f"{client:04}": {"x": np.array(x[client]), "y": np.array(y[client], np.int32)}
        for client in range(len(y))
    }
    clients = fedjax.client_samplers.UniformGetClientSampler(
        fedjax.InMemoryFederatedData(data), job.participants, seed=0
    )
    models = [_split(job, vector) for vector in job.start()]
    several = len(models) > 1
    algorithm = _algorithm(job, several)
    state = algorithm.init(models if several else models[0])
    for _ in range(job.rounds):
        state, _ = algorithm.apply(state, clients.sample())
        jax.block_until_ready(state)
        lap()
    trained = state.cluster_params if several else [state.params]
    return [np.concatenate([np.ravel(part) for part in model]) for model in trained]


def _split(job: Job, vector: Any) -> list[Any]:
    """Return the parameters of a vector, each in its shape."""
    ends = np.cumsum([np.prod(shape) for shape in job.shapes])[:-1]
    parts = zip(np.split(vector, ends), job.shapes, strict=True)
    return [part.reshape(shape) for part, shape in parts]


def _algorithm(job: Job, several: bool) -> Any:
    import fedjax
    from fedjax.algorithms import fed_avg, hyp_cluster

    client = fedjax.optimizers.sgd(job.learning_rate)
    server = fedjax.optimizers.sgd(1.0)
    batches = fedjax.ShuffleRepeatBatchHParams(job.batch_size, job.epochs)
    losses = _losses(job.network)
    if several:
        whole = fedjax.PaddedBatchHParams(batch_size=len(job.data()[1][0]))
        return hyp_cluster.hyp_cluster(losses, client, server, whole, batches)
    gradient = fedjax.grad(losses)
    return fed_avg.federated_averaging(gradient, client, server, batches)


def _losses(network: str) -> Callable[[Any, Any, Any], Any]:
    """Return the function of a batch that gives the cross-entropy of each sample."""
    import jax
    from jax import numpy as jnp

    leaky = network == "fedccfa_cnn"

    def activate(x: Any) -> Any:
        return jax.nn.leaky_relu(x, 0.01) if leaky else jax.nn.relu(x)

    def convolve(x: Any, weight: Any, bias: Any, padding: int) -> Any:
        axes = ("NCHW", "OIHW", "NCHW")
        sides = [(padding, padding)] * 2
        x = jax.lax.conv_general_dilated(
            x, weight, (1, 1), sides, dimension_numbers=axes
        )
        x = activate(x + bias[:, None, None])
        window = (1, 1, 2, 2)
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, window, "VALID")

    def losses(model: Any, batch: Any, key: Any) -> Any:
        del key
        x = batch["x"]
        layers = list(zip(model[::2], model[1::2], strict=True))
        if leaky:
            for padding in (0, 1):
                x = convolve(x, *layers.pop(0), padding)
        x = x.reshape(len(x), -1)
        for weight, bias in layers[:-1]:
            x = activate(x @ weight.T + bias)
        scores = jax.nn.log_softmax(x @ layers[-1][0].T + layers[-1][1])
        return -jnp.take_along_axis(scores, batch["y"][:, None], 1)[:, 0]

    return losses
