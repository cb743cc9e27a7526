r"""Write the models of a saved run for those who use them.

    python -m simulations.export outputs/my-run --output served

Each cluster's model comes as `cluster-<k>.safetensors`, with the network's own names.
`clusters.json` has the settings of the network. It says which client belongs to which
cluster, what the inputs are, and, for methods that compare clients by a representation,
by which; `centres.safetensors` has the centres. So a device that never took part finds
its model with its representation alone (`simulations.assign`).

Where clients use models of their own, `clusters.json` says under `serves` what the
common ones are; a method that has no valid common model is refused. Whether clients
fine-tune them, or add their label shares to outputs, is said as the run's settings are.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from cfl_flower.analysis.saved import SavedRun, load_run
from cfl_flower.environment.files import write_atomically
from cfl_flower.models import Adapted, FlatModel, build_model, merged
from cfl_flower.settings import require
from cfl_flower.types import FloatArray, Json
from simulations.assign import CENTRES, DIRECTORY, FORMAT
from simulations.shell.terminal import Parser, command, writable

OURS = re.compile(r"cluster-\d+\.safetensors|centres\.safetensors")
"""Files that an older export may have left."""


class Centres(NamedTuple):
    """What distinguishes clusters."""

    representation: str
    """Representation of a client, such as ``label_histogram``."""
    distance: str
    """``l1``, ``js`` or ``cosine``."""
    points: FloatArray
    """One for each cluster, shape (K, r)."""


def export(run: Path, output: Path) -> list[int]:
    """Write the models of a run's clusters with members, and return these clusters.

    A `CflError` says that there is no run, or that it has no models to serve.
    """
    saved = load_run(run)
    done, state = saved.load_state()
    serves = saved.common_models()
    settings, dataset = saved.build("strategy", "dataset")
    network = network_of(saved)
    sizes = np.bincount(state.clusters, minlength=len(state.models))
    clusters = np.flatnonzero(sizes).tolist()
    require(bool(clusters), "RUN", run, "a run in which clients took part")
    centres = centres_of(state, settings)
    content: dict[str, Json] = {
        "format": FORMAT,
        "strategy": saved.strategy,
        "serves": serves,
        "label_shares": settings.label_shares,
        "fine_tuning": settings.fine_tuning,
        "fine_tuning_rate": settings.fine_tuning_rate,
        "round": done,
        "shape": list(dataset.shape),
        "classes": dataset.classes,
        "model": network_settings(saved),
        "names": list(getattr(dataset, "names", ())),
        "clients": dict(
            zip(map(str, state.clients), state.clusters.tolist(), strict=True)
        ),
        "clusters": [
            {
                "cluster": cluster,
                "members": int(sizes[cluster]),
                "safetensors": f"cluster-{cluster}.safetensors",
            }
            for cluster in clusters
        ],
        "representation": centres and centres.representation,
        "distance": centres and centres.distance,
    }
    kept = {DIRECTORY} | ({CENTRES} if centres else set())
    with writable("--output", output, "name another folder"):
        output.mkdir(parents=True, exist_ok=True)
        for cluster in clusters:
            module = merged(network.load(state.models[cluster]).module.eval())
            named = {name: t.clone() for name, t in module.state_dict().items()}
            name = f"cluster-{cluster}.safetensors"
            save_file(named, output / name)
            kept.add(name)
        if centres:
            rows = torch.from_numpy(centres.points[clusters].astype(np.float32))
            save_file({"centres": rows}, output / CENTRES)
        write_atomically(output / DIRECTORY, json.dumps(content, indent=1).encode())
        for old in output.glob("c*.*"):
            # Of a run with other clusters.
            if OURS.fullmatch(old.name) and old.name not in kept:
                old.unlink()
    return clusters


def network_settings(saved: SavedRun) -> dict[str, Json]:
    """Return the settings of a run's network itself: its weights hold the adapters."""
    (kind,) = saved.build("model")
    own = kind.network if isinstance(kind, Adapted) else kind
    node = saved.resolved["model"]
    return {key: node[key] for key in node if key == "_target_" or key in vars(own)}


def network_of(saved: SavedRun) -> FlatModel:
    """Return a run's network, its frozen parameters included, to load models into."""
    dataset, kind = saved.build("dataset", "model")
    seed = saved.resolved["seed"]
    return build_model(kind, dataset.shape, dataset.classes, seed)


def load_module(saved: SavedRun, cluster: int | None = None) -> nn.Module:
    """Return the model of a run's cluster, ready to predict.

    A `ConfigError` says that there is no such cluster with members, that there are
    several and none is named, or that the server has no models of use.
    """
    saved.common_models()
    _, state = saved.load_state()
    members = np.unique(state.clusters).tolist()
    if cluster is None and len(members) == 1:
        cluster = members[0]
    known = f"one of {', '.join(map(str, members))}"
    require(cluster in members, "cluster", cluster, known)
    assert cluster is not None
    return merged(network_of(saved).load(state.models[cluster]).module.eval())


def centres_of(state: Any, settings: Any) -> Centres | None:
    """Return what a method tells clusters apart by, row k for cluster k.

    Clusters without a place of their own have a row of NaN; None for methods that
    compare clients in another way.
    """
    if len(getattr(state, "centres", ())):
        kind = getattr(settings, "representation", "label_histogram")
        name = str(getattr(kind, "name", kind))
        return Centres(name, settings.distance, np.asarray(state.centres, float))
    if len(getattr(state, "sums", ())) > 1:
        sums = np.stack(state.sums[1:], dtype=np.float64)
        norms = np.linalg.norm(sums, axis=1, keepdims=True)
        units = sums / np.where(norms > 0, norms, 1)
        # Number 0 is the global model, of those who have not taken part yet.
        points = np.vstack([np.full((1, sums.shape[1]), np.nan), units])
        return Centres(settings.representation, "cosine", points)
    return None


@command
def main(arguments: Sequence[str]) -> None:
    """Run the command and return the exit code."""
    parser = Parser("export", __doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's output_dir")
    parser.add_argument("--output", type=Path, default=Path("served"))
    asked = parser.parse_args(arguments)
    clusters = export(asked.run, asked.output)
    directory = asked.output / DIRECTORY
    serves = json.loads(directory.read_text())["serves"]
    print(f"{len(clusters)} clusters in {asked.output} ({serves}); see {directory}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
