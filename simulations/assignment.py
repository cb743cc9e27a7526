"""Which cluster of a saved run a client belongs to, whether it ever trained.

The method's client answers (`ClusteredClient.find_cluster`). In a run of StoCFL it
takes the direction of its loss at the run's anchor and goes to the nearest cluster;
below tau the server would give it one of its own, which starts from that one's model
(section 4.4). In a run of another method it goes to the model with the smallest loss on
its training samples.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from cfl_flower.analysis.saved import load_run
from cfl_flower.client.context import ClientContext, ClientState
from cfl_flower.client.evaluation import Evaluator
from cfl_flower.client.resources import open_resources
from cfl_flower.settings import require
from clients.base import ClusteredClient

WHOLE = {"_target_": "cfl_flower.data.worlds.partition.Partition"}
NO_DRIFT = {"_target_": "cfl_flower.data.worlds.drift.Regroup", "rounds": []}
"""Drift of a device's own data: none."""


class Assignment(NamedTuple):
    """Where a client belongs."""

    client: int
    concept: int
    """True concept of the client."""
    cluster: int
    """The nearest."""
    fit: float
    """The cosine of their directions, or the mean loss of the cluster's model."""
    joins: bool
    """Whether the cosine is at least tau."""
    accuracy: float | None
    """On the client's test samples, of what it is served: the cluster's model, after
    fine-tuning and with its label shares where the run has them; None without any."""


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
    def fits_by(self) -> str:
        """What the method's clients compare clusters by: loss or cosine."""
        client = self.resources.client_class
        assert isinstance(client, type) and issubclass(client, ClusteredClient)
        return client.fits_by

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
        cluster, fit = device.find_cluster(self.state, server_round, unlabelled)
        joins = self.fits_by == "loss" or fit >= settings["strategy"].threshold
        accuracy = None
        if count := len(view.test_indices):
            test = device.tester(device.fine_tuned(models[cluster]))
            accuracy = test(view)[1] / count
        concept = int(resources.stream.timeline.concepts(server_round)[client])
        return Assignment(client, concept, cluster, fit, joins, accuracy)
