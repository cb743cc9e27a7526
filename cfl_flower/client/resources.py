"""What all virtual clients of a worker share, and what a device has for itself."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import torch

from cfl_flower.building import build, locate
from cfl_flower.client.attacks import malicious_clients
from cfl_flower.client.cohort import cohort_size
from cfl_flower.client.context import Client, ClientContext
from cfl_flower.client.faults import fault_odds
from cfl_flower.client.node_config import TELL_NAMES, NodeConfig
from cfl_flower.data.reading.scaling import described
from cfl_flower.data.reading.words import Words, pairs_of
from cfl_flower.data.worlds.drift import Schedule
from cfl_flower.data.worlds.partition import Partition
from cfl_flower.data.worlds.stream import Stream
from cfl_flower.learning.cohort_step import tell_once
from cfl_flower.learning.cohort_training import why_apart
from cfl_flower.models import FlatModel, build_model
from cfl_flower.settings import require
from cfl_flower.types import Vector


@dataclass(frozen=True)
class WorkerResources:
    """What all virtual clients of a worker share: data, one network, settings."""

    settings: dict[str, Any]
    odds: dict[str, float]
    stream: Stream
    model: FlatModel
    initial: Vector
    state_root: Path
    """Folder of the states of a simulation's clients."""
    client_class: Callable[[ClientContext], Client]
    malicious: frozenset[int]

    @property
    def members(self) -> list[WorkerResources]:
        """The same for each client of a cohort, with a network of its own.

        This alone on a CPU, which has nothing to gain, and for a network that cannot
        be trained with others.
        """
        return self._clones or [self]

    @cached_property
    def _clones(self) -> list[WorkerResources]:
        """Without these themselves, which would keep their files open."""
        if self.model.vector.device.type == "cpu":
            return []
        found = self.cohort(cohort_size(self.model))
        return found if len(found) > 1 else []

    def cohort(self, size: int) -> list[WorkerResources]:
        """Return the resources of as many clients that train together."""
        why = why_apart(self.model, self.settings["dataset"].shape)
        if why:
            tell_once(f"clients train one by one: {why}")
        if size == 1 or why:
            return [self]
        return [replace(self, model=self.model.clone()) for _ in range(size)]


def words_of(text: str, node: NodeConfig) -> Words:
    """Return what a device says of its data in words, where its owner lets it.

    ``text`` has the settings of a run that does not know them. Raises `ConfigError`.
    """
    sent = json.loads(text)
    node.require_settings(sent)
    require(node.tell_names, TELL_NAMES, False, "true for its names to leave")
    dataset = build(sent["dataset"])
    dataset.require_below(node.data_dir)
    parts = dataset.stored(node.data_dir)
    shape = list(parts["train"]["x"].shape[1:])
    names = parts["train"]["names"].tolist()
    return Words(shape=shape, classes=names, inputs=pairs_of(described(parts)))


def open_resources(text: str, node: NodeConfig | None = None) -> WorkerResources:
    """Return what the settings on the wire describe, built once per worker and run.

    ``node`` is a device with data of its own: when these change, they are read again.
    """
    version = ""
    if node is not None:
        dataset = build(json.loads(text)["dataset"])
        known = hasattr(dataset, "version")
        version = str(dataset.version(node.data_dir)) if known else ""
    return _build_resources(text, node, version)


@lru_cache(maxsize=8)
def _build_resources(
    text: str, node: NodeConfig | None, version: str
) -> WorkerResources:
    settings = build(json.loads(text))
    folder = Path(settings["output_dir"])
    # The server sends absolute paths; another would lie where this process stands.
    require(folder.is_absolute(), "output_dir", folder, "an absolute path")
    if node is not None:
        # All that is there is this client's, as it is, and changes by itself.
        settings |= {"data_dir": node.data_dir, "clients": 1}
        # A server knows what attackers send, and so what others added to their sum.
        settings["faults"] = replace(settings["faults"], malicious=0.0, attackers=[])
        own = Partition(validation=settings["partition"].validation)
        settings |= {"partition": own, "drift": Schedule()}
        if hasattr(settings["dataset"], "require_below"):
            settings["dataset"].require_below(node.data_dir)
        if hasattr(settings["model"], "for_device"):
            settings["model"] = settings["model"].for_device(node.data_dir)
    # Models are received read-only, and torch only reads them.
    warnings.filterwarnings("ignore", "The given NumPy array is not writable")
    # One thread: a sum in parallel would depend on the number of cores.
    torch.set_num_threads(1)
    dataset = settings["dataset"]
    seed = settings["seed"]
    use_gpu = settings["gpus_per_worker"] != 0 and torch.cuda.is_available()
    device = "cuda" if use_gpu else "cpu"
    model = build_model(settings["model"], dataset.shape, dataset.classes, seed, device)
    return WorkerResources(
        settings,
        fault_odds(settings["faults"]),
        Stream(
            dataset,
            settings["partition"],
            settings["drift"],
            settings["clients"],
            seed,
            settings["rounds"],
            settings["data_dir"],
            device,
        ),
        model,
        model.to_vector(),
        folder / "clients",
        locate(settings["strategy"].client),
        malicious_clients(settings["faults"], settings["clients"], seed),
    )
