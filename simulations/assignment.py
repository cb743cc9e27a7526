"""The cluster that a client belongs to, whether it ever trained.

The method's client answers (`ClusteredClient.find_cluster`). In a run of StoCFL it
takes the direction of its loss at the run's anchor and goes to the nearest cluster;
below tau the server would give it one of its own, which starts from that one's model
(section 4.4). Other clients compare their label histograms or embeddings (Fielding),
their inputs (FLUX, FEROMA), their principal vectors (PACFL, FedDAG), or, in any other
method, the losses of the models on their training samples. Without labels, StoCFL, FLUX
and FEROMA compare the same, and others what each model's predictions tell of the
samples.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from safetensors.numpy import load_file as load_arrays
from safetensors.torch import load_file

from cfl_flower.building import build
from cfl_flower.client.context import ClientContext, ClientState
from cfl_flower.client.evaluation import Evaluator
from cfl_flower.client.resources import WorkerResources, open_resources
from cfl_flower.data.reading.scaling import scale_of
from cfl_flower.errors import ConfigError, intact
from cfl_flower.runs.reading import read_settings
from cfl_flower.settings import require
from clients.base import ClusteredClient, Clusters, Found
from clients.tested import Test
from simulations.rows import read_rows, to_inputs, to_labels
from simulations.served import (
    CARD,
    DIRECTORY,
    MODEL,
    PLACES,
    REMEDY,
    folders_of,
    read_json,
)

FOLDER = "cfl_flower.data.datasets.own.Folder"

ALONE = {
    "clients": 1,
    "partition": {"_target_": "cfl_flower.data.worlds.partition.Partition"},
    "drift": {"_target_": "cfl_flower.data.worlds.drift.Schedule"},
    "faults": {"_target_": "cfl_flower.client.faults.Faults"},
}
"""Settings of a device, which has all data that are there and no drift."""


class Assignment(NamedTuple):
    """Where a client belongs."""

    concept: int
    """True concept of the client."""
    found: Found
    accuracy: float | None
    """On the client's test samples, of what it is served: the cluster's model, after
    fine-tuning and with its label shares where the run has them and the client labels;
    None without any."""


@dataclass(frozen=True)
class Opened:
    """Clusters, and data dealt to the clients that look for theirs."""

    method: str
    done: int
    """The rounds that were trained."""
    among: Clusters
    resources: WorkerResources

    def assign(
        self, client: int, server_round: int, unlabelled: bool = False
    ) -> Assignment:
        """Find the cluster of a client by its data of a round.

        A `ConfigError` says that there is no such client, or that it has no samples.
        """
        resources = self.resources
        settings = resources.settings
        last = settings["clients"] - 1
        allowed = f"a client from 0 to {last}, or more with --clients"
        require(0 <= client <= last, "--client", client, allowed)
        view = resources.stream.view(client, server_round)
        require(len(view.labels) > 0, "--client", client, "a client with samples")
        context = ClientContext(
            client,
            server_round,
            settings["seed"],
            resources.stream,
            resources.model,
            Evaluator(resources.model, {}),
            settings["strategy"],
            ClientState(resources.state_root, client),
            resources.initial.copy,
        )
        device = resources.client_class(context)
        assert isinstance(device, ClusteredClient)
        able = device.finds_unlabelled or not unlabelled
        finder = device if self.among.places and able else ClusteredClient(context)
        found = finder.find_cluster(self.among, unlabelled)
        accuracy = None
        if count := len(view.test_indices):
            model = self.among.models[found.cluster]
            # Label shares and fine-tuning need labels, too.
            test: Test = partial(context.evaluator.evaluate, model)
            if not unlabelled:
                test = device.tester(device.fine_tuned(model))
            accuracy = test(view)[1] / count
        concept = int(resources.stream.timeline.concepts(server_round)[client])
        return Assignment(concept, found, accuracy)


def open_run(
    folder: Path, clients: int | None = None, data_dir: str | None = None
) -> Opened:
    """Open a saved run, with its data dealt to as many clients as it had, or as asked.

    The data are where the run found them, or in ``data_dir``: of a run on devices with
    folders of their own, the folder of one.

    Raises
    ------
    ConfigError
        If it is no run, one without models that fit anybody, or one on devices and no
        folder is named.
    CheckpointError
        If its checkpoint is torn.
    """
    # A device that asks a served folder has neither Ray nor Hydra.
    from cfl_flower.analysis.saved import load_run  # noqa: PLC0415

    saved = load_run(folder)
    # A model that only fits with what its clients keep places nobody.
    saved.common_models()
    # With what the clients agreed on, which no comparison of runs looks at.
    changed = read_settings(folder / "config.yaml")
    if clients is not None:
        require(clients >= 1, "--clients", clients, "at least 1")
        changed["clients"] = clients
    if data_dir is not None:
        changed["data_dir"] = data_dir
    if saved.on_own_data:
        allowed = "the folder of a device, which has all of it: --client 0"
        require(data_dir is not None, "--data-dir", data_dir, allowed)
        require(clients is None, "--clients", clients, "none with a device's folder")
        changed |= ALONE
    done, state = saved.load_state()
    members = np.unique(state.clusters).tolist()
    models = {cluster: state.models[cluster] for cluster in members}
    among = Clusters(models, state.places())
    return Opened(saved.strategy, done, among, open_resources(json.dumps(changed)))


def open_served(served: Path, data: Path, unlabelled: bool = False) -> Opened:
    """Open a served folder with a device's samples: a folder of them, or a table.

    A table that is ``unlabelled`` needs no labels: all are the first class.
    A `ConfigError` says what is not there, damaged, or of another version.
    """
    directory = read_json(served / DIRECTORY)
    folders = folders_of(served)
    with intact(served / DIRECTORY, REMEDY), TemporaryDirectory() as prepared:
        card = read_json(next(iter(folders.values())) / CARD)
        scaling = card["scaling"]
        if not data.is_dir():
            scaling = None
            frame = read_rows(card, data)
            x, _ = to_inputs(card, frame)
            y = np.zeros(len(x), np.int64) if unlabelled else to_labels(card, frame)
            np.savez(Path(prepared, "rows.npz"), x=x, y=y)
            data = Path(prepared)
        shape = {"shape": card["shape"], "classes": len(card["classes"])}
        allowed = "clients or false in the run, since these means are not served"
        require(scaling != "pooled", "dataset.standardise", scaling, allowed)
        known = {"names": card["classes"], "normalise": scaling}
        dataset = {"_target_": FOLDER, **shape, **known}
        if scale := card["reading"].get("scale"):
            train, _ = build({**dataset, "normalise": None}).load(str(data))
            own = scale_of(train.x.numpy()) or scale
            why = f"{data} has {own}, but the training had {scale} (bytes are uint8)"
            if own != scale:
                raise ConfigError(f"{why}; save them in its type and scale")
        own = {"dataset": dataset, "model": card["network"], "data_dir": str(data)}
        nowhere = {"output_dir": str(served.absolute()), "gpus_per_worker": 0.0}
        settings = {**directory["settings"], **ALONE, **own, **nowhere}
        resources = open_resources(json.dumps(settings))
        models = {}
        for cluster, folder in folders.items():
            resources.model.module.load_state_dict(load_file(folder / MODEL))
            models[cluster] = resources.model.to_vector()
        places = load_arrays(served / PLACES) if directory["placed"] else {}
        method = str(directory["strategy"])
        among = Clusters(models, places)
        return Opened(method, directory["round"], among, resources)
