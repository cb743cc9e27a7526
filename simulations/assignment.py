"""Which cluster of a saved run a client belongs to, whether it ever trained.

In a run of StoCFL a client takes the direction of its loss at the run's anchor and goes
to the nearest cluster; below tau the server would give it one of its own, which starts
from that one's model (section 4.4). Without labels, each cluster's model labels the
samples, and the cluster fits whose direction that gives. In a run of another method the
client goes to the model with the smallest loss on its training samples, as in IFCA.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cfl_flower.analysis.saved import load_run
from cfl_flower.client.context import ClientContext, ClientState
from cfl_flower.client.evaluation import Evaluator
from cfl_flower.client.resources import open_resources
from cfl_flower.clustering.similarity import nearest_direction
from cfl_flower.settings import require
from clients.base import ClusteredClient
from clients.stocfl import StoCFLClient
from strategies.stocfl import StoCFLState

WHOLE = {"_target_": "cfl_flower.data.worlds.partition.Partition"}
NO_DRIFT = {"_target_": "cfl_flower.data.worlds.drift.Regroup", "rounds": []}
"""What a device's own data are dealt by: all are its one client's, as they are."""


class Assignment(NamedTuple):
    """Where a client belongs."""

    client: int
    concept: int
    """Its true one."""
    cluster: int
    """The nearest."""
    fit: float
    """The cosine of their directions; for other methods than StoCFL the model's mean
    loss on the client's training samples."""
    joins: bool
    """Whether the cosine is at least tau."""
    accuracy: float | None
    """Of the cluster's model on the client's test samples; None without any."""


class Opened:
    """A saved run, with its data dealt to as many clients as it had, or as asked.

    The data are where the run found them, or in `data_dir`: of a run on devices with
    folders of their own, the folder of one.

    Raises
    ------
    ConfigError
        If it is no run, one without models that fit anybody, or one on devices and no
        folder is named.
    CheckpointError
        If its checkpoint is torn.
    """

    def __init__(
        self, folder: Path, clients: int | None = None, data_dir: str | None = None
    ) -> None:
        self.saved = load_run(folder)
        # A model that only fits with what its clients keep places nobody.
        self.saved.common_models()
        changed = dict(self.saved.resolved)
        if clients is not None:
            require(clients >= 1, "--clients", clients, "at least 1")
            changed["clients"] = clients
        if data_dir is not None:
            changed["data_dir"] = data_dir
        if self.saved.on_own_data:
            allowed = "the folder of a device, which has all of it: --client 0"
            require(data_dir is not None, "--data-dir", data_dir, allowed)
            require(
                clients is None, "--clients", clients, "none with a device's folder"
            )
            changed |= {"clients": 1, "partition": WHOLE, "drift": NO_DRIFT}
        self.done, self.state = self.saved.load_state()
        self.resources = open_resources(json.dumps(changed))

    @property
    def by_direction(self) -> bool:
        """Whether its clients are told by the direction of their loss."""
        return isinstance(self.state, StoCFLState)

    def assign(
        self, client: int, server_round: int, unlabelled: bool = False
    ) -> Assignment:
        """Find the cluster of a client by its data of a round.

        A `ConfigError` says that there is no such client, or that it has no samples.
        """
        resources = self.resources
        models = self.state.models
        settings = resources.settings
        last = settings["clients"] - 1
        allowed = f"a client from 0 to {last}, or more with --clients"
        require(0 <= client <= last, "--client", client, allowed)
        view = resources.stream.view(client, server_round)
        require(len(view.labels) > 0, "--client", client, "a client with samples")
        evaluator = Evaluator(resources.model, {})
        context = ClientContext(
            client,
            server_round,
            settings["seed"],
            resources.stream,
            resources.model,
            evaluator,
            settings["strategy"],
            ClientState(resources.state_root, client),
            resources.copy_initial,
        )
        device = resources.client_class(context)
        assert isinstance(device, ClusteredClient)
        joins = True
        if isinstance(device, StoCFLClient):
            cluster, fit = self._nearest(device, server_round, unlabelled)
            joins = fit >= settings["strategy"].threshold
        else:
            losses = device.losses(models, device.samples(server_round))
            cluster = int(losses.argmin())
            fit = float(losses[cluster])
        accuracy = None
        if count := len(view.test_indices):
            accuracy = evaluator.evaluate(models[cluster], view)[1] / count
        concept = int(resources.stream.timeline.concepts(server_round)[client])
        return Assignment(client, concept, cluster, fit, joins, accuracy)

    def _nearest(
        self, device: StoCFLClient, server_round: int, unlabelled: bool
    ) -> tuple[int, float]:
        """Return the cluster with the nearest direction, and the cosine."""
        anchor = self.resources.initial
        assert isinstance(self.state, StoCFLState)
        # Cluster 0 are the clients that were not met.
        models = self.state.models[1:]
        sums = self.state.sums[1:]
        allowed = "a run in which clients took part"
        require(len(models) > 0, "SOURCE", self.saved.folder, allowed)
        if unlabelled:
            samples, _ = device.data(server_round).train()
            cosines = device.similarities(anchor, models, sums, samples, server_round)
            return int(np.argmax(cosines)) + 1, max(cosines)
        found, cosine = nearest_direction(device.direction(anchor, server_round), sums)
        return found + 1, cosine
