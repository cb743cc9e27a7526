"""A served folder, as `simulations.export` writes it: how it is read."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors.torch import load_file
from torch import nn

from cfl_flower.building import build
from cfl_flower.data.reading.files import inside
from cfl_flower.errors import ConfigError, intact
from cfl_flower.models import build_network
from cfl_flower.runs.reading import refuse_links_out
from cfl_flower.types import Json
from simulations.engines.flower_cli import need

FORMAT = 2
"""Number of the format of a served folder."""

DIRECTORY = "clusters.json"
"""Stands in a served folder, and says what else does."""

PLACES = "places.safetensors"
"""The `ClusteredState.places` of the method, if it has any."""

CARD = "card.json"
MODEL = "model.safetensors"
REMEDY = "write it with simulations.export"


def read_json(path: Path) -> dict[str, Json]:
    """Return the content of a file of this format, or raise `ConfigError`."""
    need(path, REMEDY)
    refuse_links_out(path.parent)
    with intact(path, REMEDY):
        content: dict[str, Json] = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ConfigError(f"{path} is of another version of cfl-flower; {REMEDY}")
        return content


def load_network(folder: Path, card: dict[str, Json]) -> nn.Module:
    """Return a served model, ready to predict, or raise `ConfigError`."""
    path = need(folder / MODEL, REMEDY)
    with intact(path, REMEDY):
        kind = build(card["network"], "model")
        # What a network draws and does not save follows from the run's seed.
        seed = card.get("seed", 0)
        classes = len(card["classes"])
        network = build_network(kind, tuple(card["shape"]), classes, seed)
        network.load_state_dict(load_file(path))
    return network.eval()


def folders_of(served: Path) -> dict[int, Path]:
    """Return the folder of each cluster, or raise `ConfigError`."""
    path = served / DIRECTORY
    with intact(path, REMEDY):
        rows = read_json(path)["clusters"]
        return {int(each["cluster"]): inside(served, each["folder"]) for each in rows}
