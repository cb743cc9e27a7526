"""The identity and the folders of a device, from its SuperNode's node config.

flower-supernode ... --node-config 'client-id="site-a" data-dir="/data/site-a"'
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cfl_flower.building import build, with_defaults
from cfl_flower.environment.files import made_once, remove_leftovers
from cfl_flower.settings import require
from cfl_flower.types import ClientId, is_client_id

CLIENT_ID = "client-id"
"""Key of a device's node config that makes it one client."""

DATA_DIR = "data-dir"
"""Key of the folder with a device's own data; without it, a simulated client's."""

STATE_DIR = "state-dir"
"""Key of the folder with the state of a device's client."""

DEFAULT_STATE_DIR = "~/.local/state/cfl-flower"

STATE_DAYS = 90
"""Days for which a device keeps the state of a run after its last message."""

SECURE_SUMS = "secure-sums"
"""Key of whether a device sends results behind masks alone, whatever the run says."""

LEAST_MEMBERS = "least-members"
"""Key of the fewest devices of a sum that it adds to, whatever the run says."""

PREDICTIONS = "predictions"
"""Key of a folder in which a device keeps the predictions of its last test."""

SETTINGS = "settings"
"""Key of a JSON file with settings that every run must have, whatever it says."""

TELL_NAMES = "tell-names"
"""Key of whether a device tells a server the names of its columns, categories and
classes, so that the devices of a run can agree on them."""

AGREED = frozenset({"agreed", "shape", "classes"})
"""Settings of a ``dataset`` with a class that the devices of a run agree on."""

FOLDER = "cfl_flower.data.datasets.own.Folder"
"""The dataset whose labels are the owner's, and no column of the server's choice."""

FREE = frozenset({"secure_sums", "least_members", "delta", "epsilon_budget"})
"""Settings of a ``privacy`` with a class that an owner need not name: the node config
stands above the first two, and the server alone reads the others."""

RUNS_A_DAY = 100
"""Runs that a device hears of in a day, at most: more than anybody needs, too few to
fill its disk, or to learn much from what differs between runs."""

TOKEN = re.compile(r"[0-9a-f]{32}")
"""A run's token, which names the folder of its state: a UUID, as the server makes."""

DAY = 86400
"""Seconds of a day."""

SIGN = ".last-heard-of"
"""File in the folder of each run; only folders with it are ever removed."""


class NodeConfig(NamedTuple):
    """A device."""

    client: ClientId
    data_dir: str
    """Empty for a device with the data of a virtual client of a simulation."""
    state_dir: str
    secure_sums: bool = False
    least_members: int = 2
    settings: str = "{}"
    """The owner's word on a run's settings, as JSON."""
    tell_names: bool = False
    predictions: str = ""
    """Folder for the predictions of the last test; empty to write none."""

    @classmethod
    def of(cls, node_config: Mapping[str, Any]) -> NodeConfig | None:
        """Return the device that a node config describes; None in a simulation.

        Raises `ConfigError` if the client id is not valid, the data folder does not
        exist, or a client with a name, which is no virtual client, has no data folder.
        """
        if CLIENT_ID not in node_config:
            return None
        client = node_config[CLIENT_ID]
        allowed = "a number from 0, or up to 64 of A-Z a-z 0-9 . _ -"
        require(is_client_id(client), CLIENT_ID, client, allowed)
        data = str(node_config.get(DATA_DIR, ""))
        state = Path(str(node_config.get(STATE_DIR, DEFAULT_STATE_DIR))).expanduser()
        path = Path(data).expanduser()
        own = bool(data) or isinstance(client, int)
        require(own, DATA_DIR, data, f"the folder with the data of {client}")
        require(not data or path.is_dir(), DATA_DIR, data, "an existing folder")
        secure = node_config.get(SECURE_SUMS, False)
        require(isinstance(secure, bool), SECURE_SUMS, secure, "true or false")
        tells = node_config.get(TELL_NAMES, False)
        require(isinstance(tells, bool), TELL_NAMES, tells, "true or false")
        least = node_config.get(LEAST_MEMBERS, 3 if secure else 2)
        whole = isinstance(least, int) and not isinstance(least, bool)
        require(whole and least >= 2, LEAST_MEMBERS, least, "a whole number from 2")
        word = str(node_config.get(SETTINGS, ""))
        settings = read_settings(Path(word).expanduser()) if word else "{}"
        data = str(path) if data else ""
        kept = str(node_config.get(PREDICTIONS, ""))
        kept = str(Path(kept).expanduser()) if kept else ""
        free = not kept or (Path(kept).is_dir() and os.access(kept, os.W_OK))
        require(free, PREDICTIONS, kept, "a folder it may write in, or leave it out")
        return cls(client, data, str(state), secure, least, settings, tells, kept)

    def require_settings(self, sent: Mapping[str, Any]) -> None:
        """Raise `ConfigError` if a run has other settings than the owner lets it have.

        Where a report is of labels, what is a label is not for the server to say. It
        does not guess what they are called, either: whether a name fits would tell.
        """
        word = json.loads(self.settings)
        agreed = AGREED | ({"names"} if self.tell_names else frozenset())
        require_same(word, sent, agreed)
        least = with_defaults(word.get("privacy", {})).get("report_noise", 0.0)
        # The noise of label histograms stands in a group of its own.
        noise = with_defaults(sent.get("strategy", {}).get("privacy", {}))
        scale = noise.get("noise_multiplier", least)
        allowed = f"{least} at least, the report_noise of this device's owner"
        require(scale >= least, "strategy.privacy.noise_multiplier", scale, allowed)
        own = word.get("dataset", {})
        if self.secure_sums and self.data_dir and "_target_" not in own:
            allowed = f"{FOLDER} with {SECURE_SUMS}, or what the file {SETTINGS} says"
            target = sent["dataset"].get("_target_")
            require(target == FOLDER, "dataset._target_", target, allowed)
            names = sent["dataset"].get("names", [])
            allowed = f"[] with {SECURE_SUMS}, or what the file {SETTINGS} says"
            require(names in ([], own.get("names")), "dataset.names", names, allowed)

    @property
    def guards_training(self) -> bool:
        """Whether tests may not tell of training samples, whatever a run says."""
        privacy = build(json.loads(self.settings).get("privacy"))
        return self.secure_sums or getattr(privacy, "on", False)

    def secret(self, run: str) -> bytes:
        """Return 256 bits that no device beside it knows, made once for a run."""
        return made_once(self.remembered(run) / f"key-{self.client}")

    def noise_secret(self) -> bytes:
        """Return 256 bits that nobody else knows, made once for all runs."""
        return made_once(Path(self.state_dir) / f"noise-{self.client}")

    def remembered(self, run: str) -> Path:
        """Return the folder of the client's state in a run.

        The first message of a run removes the folders of runs without a message for
        `STATE_DAYS`, so that the disk does not fill up. A later message of such a run
        finds the client as one that just joined. Raises `ConfigError` if the run's
        token, which the server sends, is none, or that of one run too many in a day.
        """
        require(TOKEN.fullmatch(run) is not None, "run", run, "32 hex digits")
        folder = Path(self.state_dir) / run
        if not (folder / SIGN).exists():
            today = 0
            for sign in Path(self.state_dir).glob(f"*/{SIGN}"):
                silent = time.time() - sign.stat().st_mtime
                today += silent < DAY
                if silent > STATE_DAYS * DAY:
                    shutil.rmtree(sign.parent, ignore_errors=True)
            allowed = f"a known run: this device heard of {today} within a day"
            require(today < RUNS_A_DAY, "run", run, allowed)
            folder.mkdir(parents=True, exist_ok=True)
        (folder / SIGN).touch()
        remove_leftovers(folder)
        return folder


def read_settings(path: Path) -> str:
    """Return the owner's settings; raise `ConfigError` if a file has none."""
    try:
        text = path.read_text()
        found = json.loads(text)
    except (OSError, ValueError):
        found = None
    valid = isinstance(found, dict) and all(
        isinstance(found.get(name, {}), dict) for name in ("dataset", "privacy")
    )
    require(valid, SETTINGS, path, 'a JSON file, as {"model": {"trainable": []}}')
    build(found)
    named = found.get("privacy", {}).keys() - FREE
    allowed = "a file whose privacy names its class, as _target_"
    require(not named or "_target_" in named, SETTINGS, path, allowed)
    return text


def require_same(
    word: Any, sent: Any, agreed: frozenset[str] = AGREED, place: str = ""
) -> None:
    """Raise `ConfigError` for a setting that is not as its owner says, if at all.

    Where the owner names a class, what is left out has its default: another value
    might undo what is named. The devices of a run agree on the settings ``agreed`` of a
    dataset.
    """
    if not isinstance(word, Mapping):
        require(sent == word, place, sent, f"{word}, as this device's owner says")
        return
    said = with_defaults(word) if "_target_" in word else word
    free = FREE if place == "privacy" else frozenset()
    if place == "dataset" and "agreed" in said:
        free = agreed
    free -= word.keys()
    for name, value in said.items():
        if name in free:
            continue
        own = sent.get(name) if isinstance(sent, Mapping) else None
        require_same(value, own, agreed, f"{place}.{name}".lstrip("."))
