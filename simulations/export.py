r"""Write the models of a saved run for those who use them.

    python -m simulations.export outputs/my-run --output served

Each cluster's model comes as `cluster-<k>.safetensors`, with the network's own names,
and as `cluster-<k>.pt`, which `torch.jit.load` runs without this project.
`clusters.json` says which client belongs to which cluster, what the inputs are, and,
for methods that compare clients by a representation, by which; `centres.safetensors`
has the centres. So a device that never took part finds its model with its
representation alone (`simulations.deploy.find`).

Where clients use models of their own, `clusters.json` says under `serves` what the
common ones are; a method that has no sound common model is refused.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from cfl_flower.checkpoint import Checkpoint
from cfl_flower.errors import CflError, ConfigError
from cfl_flower.files import write_atomically
from cfl_flower.models import FlatModel
from cfl_flower.settings import build, locate, require
from cfl_flower.types import FloatArray, Json, Vector
from simulations.run import report
from simulations.saved import load_run

DIRECTORY = "clusters.json"
CENTRES = "centres.safetensors"
"""One row for each cluster in the directory, in its order; NaN for one without."""


@dataclass(frozen=True)
class Centres:
    """What clusters are told apart by.

    Attributes
    ----------
    representation : str
        What a client is described by, such as ``label_histogram``.
    distance : str
        ``l1``, ``js`` or ``cosine``.
    points : array of shape (K, r)
    """

    representation: str
    distance: str
    points: FloatArray


def export(run: Path, output: Path) -> list[int]:
    """Write the models of a run's clusters, and what leads to them.

    Returns
    -------
    list of int
        The clusters that have members.

    Raises
    ------
    CflError
        If there is no run, its checkpoint is torn, or it has no models to serve.
    """
    resolved, done, state = open_saved(run)
    settings = {
        name: build(resolved[name]) for name in ("strategy", "dataset", "model")
    }
    dataset = settings["dataset"]
    network = settings["model"].build(dataset.shape, dataset.classes)
    serves = common_models(resolved, keeps_statistics(settings["strategy"], network))
    sizes = np.bincount(state.clusters, minlength=len(state.models))
    clusters = np.flatnonzero(sizes).tolist()
    require(bool(clusters), "RUN", run, "a run in which clients took part")
    output.mkdir(parents=True, exist_ok=True)
    for cluster in clusters:
        write_model(network, state.models[cluster], dataset, output, cluster)
    centres = centres_of(state, settings["strategy"])
    content: dict[str, Json] = {
        "strategy": resolved["strategy"]["name"],
        "serves": serves,
        "round": done,
        "shape": list(dataset.shape),
        "classes": dataset.classes,
        "names": list(getattr(dataset, "names", ())),
        "clients": dict(
            zip(map(str, state.clients), state.clusters.tolist(), strict=True)
        ),
        "clusters": [
            {
                "cluster": cluster,
                "members": int(sizes[cluster]),
                "safetensors": f"cluster-{cluster}.safetensors",
                "torchscript": f"cluster-{cluster}.pt",
            }
            for cluster in clusters
        ],
        "representation": centres and centres.representation,
        "distance": centres and centres.distance,
    }
    if centres:
        rows = torch.from_numpy(centres.points[clusters].astype(np.float32))
        save_file({"centres": rows}, output / CENTRES)
    text = json.dumps(content, indent=1)
    write_atomically(output / DIRECTORY, text.encode())
    return clusters


def open_saved(run: Path) -> tuple[Mapping[str, Json], int, Any]:
    """Return a run's configuration, its last saved round, and the state after it."""
    resolved = load_run(run).config
    state_class = locate(resolved["strategy"]["_target_"]).State
    done, state = Checkpoint(run / "checkpoint", resolved).load(state_class)
    return resolved, done, state


def common_models(resolved: Mapping[str, Json], local: bool) -> str:
    """Say what the models that the server keeps are to the clients.

    Parameters
    ----------
    resolved : dict
        The run's configuration.
    local : bool
        Whether the network's running statistics stay at the clients.

    Raises
    ------
    ConfigError
        If they are not fit for use, because what makes them so stays at the clients.
    """
    strategy = resolved["strategy"]
    method = locate(strategy["_target_"])
    reasons = [method.keeps_back] if method.keeps_back else []
    if local:
        reasons.append("strategy.local.buffers=local keeps statistics at the clients")
    if reasons:
        raise ConfigError(
            f"a run of strategy={strategy['name']} has no common model that can be "
            f"served: {reasons[0]}; serve a run with common models, such as one of "
            "strategy=fielding or fedavg"
        )
    serves: str = method.serves
    return serves


def keeps_statistics(settings: Any, network: nn.Module) -> bool:
    """Tell whether clients have running statistics of their own."""
    there = any(buffer.is_floating_point() for buffer in network.buffers())
    return there and settings.local.buffers == "local"


def write_model(
    network: nn.Module, model: Vector, dataset: Any, output: Path, cluster: int
) -> None:
    """Write one model in both forms."""
    module = FlatModel(network).load(model).module.eval()
    named = {name: t.detach().clone() for name, t in module.state_dict().items()}
    save_file(named, output / f"cluster-{cluster}.safetensors")
    with torch.no_grad(), warnings.catch_warnings():
        # Python 3.14 is the end of TorchScript; the format remains readable.
        warnings.simplefilter("ignore", DeprecationWarning)
        traced = torch.jit.trace(module, example(dataset))  # type: ignore[no-untyped-call]
        traced.save(str(output / f"cluster-{cluster}.pt"))


def example(dataset: Any) -> torch.Tensor:
    """Return two inputs of a dataset's shape; texts are numbers of words."""
    kind = getattr(dataset, "dtype", torch.float32)
    return torch.zeros((2, *dataset.shape), dtype=kind)


def centres_of(state: Any, settings: Any) -> Centres | None:
    """Return what a method tells clusters apart by, row k for cluster k.

    Clusters without a place of their own have a row of NaN; None for methods that
    compare clients in another way.
    """
    if len(getattr(state, "centres", ())):
        kind = getattr(settings, "representation", "label_histogram")
        return Centres(str(kind), settings.distance, np.asarray(state.centres, float))
    if len(getattr(state, "sums", ())) > 1:
        sums = np.stack(state.sums[1:])
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        units = sums / np.where(norms > 0, norms, 1)
        # Number 0 is the global model, of those who have not taken part yet.
        points = np.vstack([np.full((1, sums.shape[1]), np.nan), units])
        return Centres(settings.representation, "cosine", points)
    return None


def main(arguments: Sequence[str]) -> int:
    """Run the door and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's output_dir")
    parser.add_argument("--output", type=Path, default=Path("served"))
    asked = parser.parse_args(arguments)
    try:
        clusters = export(asked.run, asked.output)
    except CflError as error:
        return report(error)
    directory = asked.output / DIRECTORY
    serves = json.loads(directory.read_text())["serves"]
    print(f"{len(clusters)} clusters in {asked.output} ({serves}); see {directory}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
