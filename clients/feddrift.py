"""FedDrift's client: trains the best of all models, or a new one after a drift.

Computes: the loss of each model on its data, and on what it held while other models
were its own; local SGD on all the data that belong to the model that it trains. Sends:
the trained model (d floats), which one it is, the round from which it has its data, the
losses (K^2 floats) and the numbers of samples behind them (K). Keeps: for each time
step its smallest loss and a digest of the data; a real device has its present data
alone. With `form=eager` a client chooses before its training, in which it receives its
model alone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch

from cfl_flower.data.worlds.view import View
from cfl_flower.types import Config, Metrics, Reply, Vector
from clients.base import ClusteredClient
from clients.families.choosing import CHOOSE
from clients.tested import Samples

NEW = -1
"""Number that a client reports when it started a new model."""
ASSIGNED = "assigned"
"""Entry of a config that asks to train on data of earlier time steps as well: JSON of
pairs of a step and the model that its data belong to."""
OWN_CHOICE = "chosen"
"""Entry of a config that asks to train what the client chose, the only model that it
receives."""

Form: TypeAlias = tuple[Any, ...]
"""How samples are named and shown."""


class Choice(NamedTuple):
    """What a client trains, and on which data."""

    model: int
    """The number of the model, or `NEW`."""
    step: int
    """The round in which it first trained on its data."""
    start: Vector
    """The model that the training starts from."""
    loss: float
    """The smallest loss of a received model on its data."""
    past: dict[int, int]
    """The model of each earlier time step."""


class FedDriftClient(ClusteredClient):
    """Algorithm 1, lines 3 to 10.

    A time step lasts as long as the client's data stay the same. It is named by the
    round in which the client first trained on them.
    """

    def answer(self, parameters: list[Vector], config: Config) -> Reply:
        """Answer the hello, or choose a model before the training (`form=eager`)."""
        if CHOOSE not in config:
            return super().answer(parameters, config)
        choice = self.choose(parameters, config)
        own = np.array([choice.model, choice.step, choice.loss])
        past = np.array([*choice.past.items()], np.int64).reshape(-1, 2)
        kept = self.context.state.part("choice")
        kept.save(self.context.round, {"own": own, "past": past})
        belonging = self.belonging(choice)
        count = len(belonging[choice.model][1])
        return [], count, self.measure(parameters, choice, belonging)

    def fit(self, parameters: list[Vector], config: Config) -> Reply:
        """Train the model that fits this round's data best, or a new one."""
        if len(self.data(self.context.round).train_indices) == 0:
            return [parameters[0]], 0, {}
        chose = OWN_CHOICE in config
        choice = self.chosen(*parameters) if chose else self.choose(parameters, config)
        belonging = self.belonging(choice)
        report = {} if chose else self.measure(parameters, choice, belonging)
        start_losses = self.start_loss(choice.start, config)
        trained, count = self.train_from(choice.start, samples=belonging[choice.model])
        self.remember(choice)
        return [trained], count, {**report, **start_losses}

    def choose(self, parameters: Sequence[Vector], config: Config) -> Choice:
        """Return the model that fits this round's data best, or a new one."""
        server_round = self.context.round
        assigned = json.loads(config.get(ASSIGNED, "[]"))
        # A lost result leaves a step that the server does not know.
        past = {step: model for step, model in assigned if f"{step}.loss" in self.kept}
        last = max(past, default=0)
        same = np.array_equal(
            self.kept.get(f"{last}.data", ()), self.fingerprint(server_round)
        )
        step = last if same else server_round
        losses = self.losses(parameters, self.samples(server_round))
        # The model with the smallest loss on the new data.
        chosen = int(losses.argmin())
        start = parameters[chosen]
        before = self.best_before(parameters, last, same)
        # A loss that rose by more than delta is a drift: a new model.
        if before is not None and losses.min() - before > self.settings.delta:
            chosen = NEW
            start = start if self.is_original else self.context.initial()
        past.pop(step, None)
        return Choice(chosen, step, start, float(losses.min()), past)

    def chosen(self, start: Vector) -> Choice:
        """Return what it chose before this round's training.

        It keeps that itself: all in a masked sum have to be told the same.
        """
        kept = self.context.state.part("choice").at(self.context.round)
        model, step, loss = kept["own"].tolist()
        return Choice(int(model), int(step), start, loss, dict(kept["past"].tolist()))

    def measure(
        self, models: list[Vector], choice: Choice, belonging: dict[int, Samples]
    ) -> Metrics:
        """Return what a client chose, and how K models fit the data of each.

        The losses, (K, K), and the counts, (K,), are zero for a model to which no data
        of the client belong.
        """
        counts = np.zeros(len(models), np.float32)
        losses = np.zeros((len(models), len(models)), np.float32)
        for model in belonging.keys() - {NEW}:
            counts[model] = len(belonging[model][1])
            losses[model] = self.losses(models, belonging[model])
        told = {"losses": losses.tobytes(), "counts": counts.tobytes()}
        return {"chosen": choice.model, "step": choice.step, **told}

    @cached_property
    def kept(self) -> dict[str, np.ndarray]:
        """The saved arrays of time steps, by the step's number, a dot and a name."""
        return self.context.state.part("steps").load(self.context.round)

    @property
    def is_original(self) -> bool:
        """Whether the method is FedDrift, or FedDrift-Eager, as its authors run it."""
        return bool(self.settings.form != "simplified")

    def best_before(
        self, models: Sequence[Vector], last: int, same: bool
    ) -> float | None:
        """Return the smallest loss on the earlier data; None if they are the ``same``.

        That is the loss of the ``last`` time step, with the models of that time. The
        simplified form tests the present models on the data of the round before; a
        device cannot, as it has its present data only.
        """
        server_round = self.context.round
        if self.is_original or self.context.folder is not None:
            loss = self.kept.get(f"{last}.loss")
            return None if loss is None or same else float(loss[0])
        if server_round == 1:
            return None
        now = self.data(server_round)
        before = self.data(server_round - 1)
        if now is before or len(before.train_indices) == 0:
            return None
        return float(self.losses(models, self.samples(server_round - 1)).min())

    def belonging(self, choice: Choice) -> dict[int, Samples]:
        """Return the samples that belong to each model; the round's to the chosen."""
        views = {choice.model: [self.data(self.context.round)]}
        if self.is_original and self.context.folder is None:
            for step, model in choice.past.items():
                views.setdefault(model, []).append(self.data(step))
        return {model: self.unite(parts) for model, parts in views.items()}

    def unite(self, views: Sequence[View]) -> Samples:
        """Return the samples of all views, each sample once."""
        forms: dict[Form, View] = {}
        for view in views:
            form = form_of(view)
            rows = view.train_indices
            if form in forms:
                rows = np.union1d(forms[form].train_indices, rows)
            forms[form] = replace(view, train_indices=rows)
        parts = [self.samples_of(view) for view in forms.values()]
        return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])

    def remember(self, choice: Choice) -> None:
        """Save the loss and the data of a time step beside those of earlier ones."""
        now = self.context.round
        names = {str(each) for each in choice.past}
        known = {n: a for n, a in self.kept.items() if n.split(".")[0] in names}
        own = {
            f"{choice.step}.loss": np.array([choice.loss], np.float32),
            f"{choice.step}.data": self.fingerprint(now),
        }
        self.context.state.part("steps").save(now, {**known, **own})


def form_of(view: View) -> Form:
    """Return how a view names and shows the training samples of the pool."""
    looks = None if view.looks is None else view.looks.tobytes()
    before = None if view.earlier is None else form_of(view.earlier)
    return view.degrees, view.relabel.tobytes(), looks, before
