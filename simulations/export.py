r"""Write the models of a saved run for those who use them.

    python -m simulations.export outputs/my-run --output served

Each cluster has a folder, `cluster-<k>`, that stands alone:

* `model.safetensors`: the weights, with the network's own names;
* `model.pt2`: a program of `torch.export`, from inputs (n, ...) to logits (n, L);
* `model.onnx`: the same as ONNX, if `onnx` and `onnxscript` are installed;
* `card.json`, `card.md`: what an input is made of, the names of the answers, who
  trained the model, and what clients do with it before they use it.

`clusters.json` says which client belongs to which cluster, and `places.safetensors` has
what the method compares newcomers by, so that a device that never took part finds its
model (`simulations.assign`). A method without a valid common model is refused.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import save_file
from torch import nn

from cfl_flower.analysis.saved import SavedRun, load_run
from cfl_flower.environment.files import write_atomically
from cfl_flower.errors import ConfigError, intact
from cfl_flower.models import Adapted, FlatModel, build_model, merged
from cfl_flower.runs.checkpoint import Checkpoint
from cfl_flower.runs.directory import BEST
from cfl_flower.settings import require
from cfl_flower.state import ClusteredState
from cfl_flower.types import FloatArray, Json
from simulations.cards import make_card, to_markdown
from simulations.served import CARD, DIRECTORY, FORMAT, MODEL, PLACES
from simulations.shell.terminal import Parser, command, writable

PROGRAM = "model.pt2"
ONNX = "model.onnx"
TEXT = "card.md"

LEFT_OUT = "its card lists the files that there are"
NAMES: dict[str, Any] = {"input_names": ["x"], "output_names": ["logits"]}
"""What ONNX calls them, as docs/how-to/serve.md says."""

FILES = (MODEL, PROGRAM, ONNX, CARD, TEXT)
"""What a cluster's folder may have."""

BY_MODEL = {"directions", "profiler", "shared"}
"""Places that a network makes, of which adapters are the trained part."""


def export(
    run: Path, output: Path, licence: str = "not stated", best: bool = False
) -> list[int]:
    """Write the models of a run's clusters with members, and return these clusters.

    They are those after the last round, or, if so asked, after the ``best`` one. A
    `CflError` says that there is no run, or that it has no models to serve.
    """
    other = output.resolve() != run.resolve()
    require(other, "--output", output, "another folder than the run's")
    saved = load_run(run)
    saved.common_models()
    checkpoint = saved.checkpoint
    if best:
        checkpoint = Checkpoint(run / BEST, saved.resolved)
        require(checkpoint.exists(), "--best", run, "a run with system.checkpoint_best")
    done, state = checkpoint.load(saved.method.State)
    clusters: list[int] = np.unique(state.clusters).tolist()
    require(bool(clusters), "RUN", run, "a run in which clients took part")
    network = network_of(saved)
    cards = {k: make_card(saved, done, state, k, licence) for k in clusters}
    places = places_of(saved, state)
    directory = {**directory_of(saved, done, state), "placed": bool(places)}
    with writable("--output", output, "name another folder"):
        refuse_others(output)
        remove_models(output)
        for cluster, card in cards.items():
            folder = output / f"cluster-{cluster}"
            folder.mkdir(parents=True, exist_ok=True)
            module = merged(network.load(state.models[cluster]).module.eval())
            write_model(module, card, folder)
        if places:
            save_arrays(places, output / PLACES)
        write_atomically(output / DIRECTORY, json.dumps(directory, indent=1).encode())
    return clusters


def refuse_others(output: Path) -> None:
    """Raise `ConfigError` if a folder has files of these names that no export wrote."""
    directory = any((output / name).exists() for name in (DIRECTORY, PLACES))
    told = {output / DIRECTORY} if directory else set()
    for name in FILES:
        told |= {path.with_name(CARD) for path in output.glob(f"cluster-*/{name}")}
    for path in sorted(told):
        own = path.is_file() and b'"serves"' in path.read_bytes()
        allowed = f"another folder, or remove {path.parent}: {path.name} is no export's"
        require(own, "--output", output, allowed)


def remove_models(output: Path) -> None:
    """Remove what an export wrote before, maybe of other clusters, and nothing else."""
    # First: it says what the models are.
    for name in (DIRECTORY, PLACES):
        (output / name).unlink(missing_ok=True)
    for card in output.glob(f"cluster-*/{CARD}"):
        for name in FILES:
            (card.parent / name).unlink(missing_ok=True)
        if not any(card.parent.iterdir()):
            card.parent.rmdir()


def directory_of(saved: SavedRun, done: int, state: ClusteredState) -> dict[str, Json]:
    """Return what `clusters.json` has: all clusters, and how to find one's own."""
    clusters = state.clusters.tolist()
    sizes = Counter(clusters)
    return {
        "format": FORMAT,
        "strategy": saved.strategy,
        "serves": saved.common_models(),
        "round": done,
        "settings": {k: saved.resolved[k] for k in ("strategy", "seed", "rounds")},
        "clients": dict(zip(map(str, state.clients), clusters, strict=True)),
        "clusters": [
            {"cluster": k, "members": sizes[k], "folder": f"cluster-{k}"}
            for k in sorted(sizes)
        ],
    }


def places_of(saved: SavedRun, state: ClusteredState) -> dict[str, FloatArray]:
    """Return the places of a run's clusters, float32.

    None where a model makes them that is not served: adapters are part of the weights.
    """
    # safetensors writes memory as it lies, whatever an array's strides are.
    found = {k: np.ascontiguousarray(v, "f4") for k, v in state.places().items()}
    (kind,) = saved.build("model")
    return {} if isinstance(kind, Adapted) and BY_MODEL & found.keys() else found


def write_model(module: nn.Module, card: dict[str, Json], folder: Path) -> None:
    """Write a model in all forms, and its card; say which form it does not have."""
    save_file(tensors_of(module), folder / MODEL)
    files = {"safetensors": MODEL, **write_programs(module, card["shape"], folder)}
    card = {**card, "files": files}
    (folder / CARD).write_text(json.dumps(card, indent=1), encoding="utf-8")
    (folder / TEXT).write_text(to_markdown(card), encoding="utf-8")


def tensors_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return copies of what a network saves; `ConfigError` if some is no tensor."""
    saved = module.state_dict()
    odd = [name for name, each in saved.items() if not torch.is_tensor(each)]
    allowed = "networks that save tensors alone; put the rest into buffers"
    require(not odd, "model", f"{type(module).__name__} with {odd}", allowed)
    # safetensors writes memory as it lies, and no two tensors in one place.
    return {name: each.clone().contiguous() for name, each in saved.items()}


def write_programs(
    module: nn.Module, shape: Sequence[int], folder: Path
) -> dict[str, str]:
    """Write a network as a program of torch.export and as ONNX; return the files."""
    inputs = (torch.zeros(2, *shape),)
    sizes = ({0: torch.export.Dim("n")},)
    files = {}
    try:
        # The warnings are torch's about itself.
        with (
            warnings.catch_warnings(action="ignore"),
            intact("the network", LEFT_OUT, "exported"),
        ):
            program = torch.export.export(module, inputs, dynamic_shapes=sizes)
            for node in program.graph.nodes:
                # The paths of this machine.
                node.meta.pop("stack_trace", None)
            torch.export.save(program, folder / PROGRAM)
            files["torch.export"] = PROGRAM
            if find_spec("onnx") and find_spec("onnxscript"):
                form = {**NAMES, "external_data": False, "verbose": False}
                torch.onnx.export(program, f=folder / ONNX, **form)
                files["onnx"] = ONNX
    except ConfigError as error:
        print(f"note: {error}", file=sys.stderr)
    return files


def network_of(saved: SavedRun) -> FlatModel:
    """Return a run's network, its frozen parameters included, to load models into."""
    dataset, kind = saved.build("dataset", "model")
    return build_model(kind, dataset.shape, dataset.classes, saved.resolved["seed"])


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
    return merged(network_of(saved).load(state.models[int(cluster)]).module.eval())


@command
def main(arguments: Sequence[str]) -> None:
    """Run the command and return the exit code."""
    parser = Parser("export", __doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's output_dir")
    parser.add_argument("--output", type=Path, default=Path("served"))
    parser.add_argument("--licence", default="not stated", help="of the models")
    words = "the models of checkpoint.best"
    parser.add_argument("--best", action="store_true", help=words)
    asked = parser.parse_args(arguments)
    clusters = export(asked.run, asked.output, asked.licence, asked.best)
    directory = asked.output / DIRECTORY
    serves = json.loads(directory.read_text())["serves"]
    print(f"{len(clusters)} clusters in {asked.output} ({serves}); see {directory}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
