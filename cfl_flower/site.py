"""A device of its own: who it is, where its data are, and where it remembers things.

All of it is said by the node config of its SuperNode:

    flower-supernode ... --node-config 'client-id="site-a" data-dir="/data/site-a"'
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from cfl_flower.settings import require
from cfl_flower.types import ClientId

CLIENT_ID = "client-id"
"""Key of a device's node config that makes it one client."""

DATA_DIR = "data-dir"
"""Key of the folder with a device's own data; without it, a simulated client's."""

STATE_DIR = "state-dir"
"""Key of the folder in which a device keeps what its client must remember."""

DEFAULT_STATE_DIR = "~/.local/state/cfl-flower"

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}")
"""Client ids name folders, rows and log lines."""


def is_client_id(value: object) -> bool:
    """Tell whether a value can be a client id: a number, or a short plain name.

    Examples
    --------
    >>> [is_client_id(value) for value in (3, "site-a", "../a", -1, True, None)]
    [True, True, False, False, False, False]
    """
    if isinstance(value, str):
        return NAME.fullmatch(value) is not None
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class Site(NamedTuple):
    """A device.

    Attributes
    ----------
    client : ClientId
    data_dir : str
        Empty for a device that plays a virtual client of a simulation.
    state_dir : str
    """

    client: ClientId
    data_dir: str
    state_dir: str

    @classmethod
    def of(cls, node_config: Mapping[str, Any]) -> Site | None:
        """Return the device that a node config describes; None in a simulation.

        Raises
        ------
        ConfigError
            If the client id is none, or there is no such folder; or none for a name,
            which is no virtual client's.
        """
        if CLIENT_ID not in node_config:
            return None
        client = node_config[CLIENT_ID]
        allowed = "a number from 0, or up to 64 of A-Z a-z 0-9 . _ -"
        require(is_client_id(client), CLIENT_ID, client, allowed)
        data = str(node_config.get(DATA_DIR, ""))
        state = str(node_config.get(STATE_DIR, DEFAULT_STATE_DIR))
        path = Path(data).expanduser()
        own = bool(data) or isinstance(client, int)
        require(own, DATA_DIR, data, f"the folder with the data of {client}")
        require(not data or path.is_dir(), DATA_DIR, data, "an existing folder")
        return cls(client, str(path) if data else "", str(Path(state).expanduser()))
