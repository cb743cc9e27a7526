"""The card of a served model: what it takes and answers, and what it was trained by."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import replace
from html import escape
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment

from cfl_flower.analysis.saved import SavedRun
from cfl_flower.data.reading.scaling import scale_of
from cfl_flower.engine.method import Published
from cfl_flower.errors import CflError, intact, one_line
from cfl_flower.models import Adapted
from cfl_flower.privacy.accounting import epsilon_of, require_accountant
from cfl_flower.runs.directory import PREPROCESSING
from cfl_flower.state import ClusteredState
from cfl_flower.types import Json
from simulations.served import FORMAT

TEMPLATE = Path(__file__).with_name("card.md.jinja")

READING = ("separator", "decimal", "encoding", "header", "na_values")
"""Settings by which a file of new rows is read as the training's were."""


def network_settings(saved: SavedRun) -> dict[str, Json]:
    """Return the settings of a run's network itself: its weights hold the adapters."""
    (kind,) = saved.build("model")
    own = kind.network if isinstance(kind, Adapted) else kind
    node = saved.resolved["model"]
    return {key: node[key] for key in node if key == "_target_" or key in vars(own)}


def scaling(dataset: Any) -> Json:
    """Return the means and the deviations of channels, or of each input; None if none.

    Of those of the whole training set, which the run does not keep, its name.
    """
    if agreed := getattr(dataset, "agreed", ()):
        means = [of.get("mean", 0.0) for of in agreed]
        return [means, [of.get("deviation", 1.0) for of in agreed]]
    given: Json = getattr(dataset, "normalise", None)
    return given or ("pooled" if getattr(dataset, "standardise", False) else None)


def reading(saved: SavedRun, dataset: Any) -> dict[str, Json]:
    """Return how inputs are read: by the `READING` of a table, else with a `scale_of`.

    That of devices' data, or of data that are not here, is not known.
    """
    told = {key: getattr(dataset, key) for key in READING if hasattr(dataset, key)}
    if "na_values" in told:
        told["na_values"] = dataset.signs
    if (saved.folder / PREPROCESSING).is_file() or saved.on_own_data:
        return told
    named = {"normalise": None, "standardise": False}
    plain = {key: value for key, value in named.items() if hasattr(dataset, key)}
    with suppress(CflError, OSError):
        train, _ = replace(dataset, **plain).load(saved.resolved.get("data_dir", ""))
        told["scale"] = scale_of(train.x.numpy())
    return told


def preparation(saved: SavedRun, dataset: Any) -> dict[str, Json]:
    """Return how rows become inputs and answers: that of no table has no inputs."""
    path = saved.folder / PREPROCESSING
    if not path.is_file():
        names = getattr(dataset, "names", ()) or range(dataset.classes)
        return {"inputs": [], "label": None, "classes": list(map(str, names))}
    with intact(path, "repeat the run"):
        found: dict[str, Json] = json.loads(path.read_text(encoding="utf-8"))
        sizes = len(found["inputs"]), len(found["classes"])
        if found.pop("format") != 1 or sizes != (prod(dataset.shape), dataset.classes):
            raise ValueError("it does not fit the run's network")
        return found


def training(
    saved: SavedRun, done: int, state: ClusteredState, cluster: int
) -> dict[str, Json]:
    """Return who trained a cluster's model by round ``done`` and how, and its test."""
    resolved = saved.resolved
    members = np.array(state.clients, object)[state.clusters == cluster].tolist()
    # An earlier test was of another model.
    rows = [row for row in saved.tests if row["round"] == done]
    tests = [row for row in rows if row["client"] in members]
    sizes = [row["num_examples"] for row in tests]
    scores = [row["accuracy"] for row in tests]
    accuracy = np.average(scores, weights=sizes).round(4).item() if tests else None
    ended = [row for row in saved.rounds if row["round"] == done]
    changed = any(row.get(key) for row in ended for key in ("moved", "reclustered"))
    if changed or saved.method.published.models != Published().models:
        # Other models were tested than these, or by other clients.
        accuracy = None
    (privacy,) = saved.build("privacy")
    epsilon = None
    if delta := resolved["privacy"].get("delta"):
        # Of all clients: who trains another cluster now may have trained this one.
        most = max(state.privacy.squares.values(), default=0.0)
        require_accountant(resolved["privacy"]["name"])
        epsilon = round(epsilon_of(most, delta), 4)
    return {
        "clients": len(members),
        "of": len(state.clients),
        "rounds": done,
        "participants": resolved["participants"],
        "epochs": resolved["strategy"]["local"]["epochs"],
        "steps": resolved["strategy"]["local"]["steps"],
        "secure_sums": privacy.secure_sums,
        "epsilon": epsilon,
        "delta": delta,
        "accuracy": accuracy,
    }


def make_card(
    saved: SavedRun, done: int, state: ClusteredState, cluster: int, licence: str
) -> dict[str, Json]:
    """Return the card of a cluster's model after round ``done``."""
    settings, dataset = saved.build("strategy", "dataset")
    return {
        "format": FORMAT,
        "strategy": saved.strategy,
        "cluster": cluster,
        "serves": saved.common_models(),
        **preparation(saved, dataset),
        "reading": reading(saved, dataset),
        "shape": list(dataset.shape),
        "scaling": scaling(dataset),
        "network": network_settings(saved),
        "seed": saved.resolved["seed"],
        "trained": training(saved, done, state, cluster),
        "label_shares": settings.label_shares,
        "fine_tuning": settings.fine_tuning,
        "fine_tuning_rate": settings.fine_tuning_rate,
        "made_by": saved.made_by,
        "licence": licence,
    }


def to_markdown(card: dict[str, Json]) -> str:
    """Return a card for people."""
    text = TEMPLATE.read_text(encoding="utf-8")
    page = Environment(finalize=_cell, trim_blocks=True).from_string(text)
    return page.render(card=card)


def _cell(value: object) -> str:
    """Write a value as text that steers no page: names come from tables."""
    text = escape(one_line(str(value)), quote=False)
    return re.sub(r"([\\`*_|\[\]#])", r"\\\1", text)
