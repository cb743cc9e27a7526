"""Where modules are that settings of older runs name.

A run keeps the paths of its settings' classes, in config.yaml and in its checkpoint,
and can be opened as long as its files are there.
"""

from __future__ import annotations

from collections.abc import Mapping

from cfl_flower.types import Json

MOVED = {
    "cfl_flower.client.model_privacy": "cfl_flower.privacy.settings",
    "cfl_flower.client.privacy": "cfl_flower.privacy.report_noise",
    "cfl_flower.data.datasets": "cfl_flower.data.datasets.digits",
    "cfl_flower.data.drift": "cfl_flower.data.worlds.drift",
    "cfl_flower.data.ekya": "cfl_flower.data.datasets.ekya",
    "cfl_flower.data.folders": "cfl_flower.data.datasets.folders",
    "cfl_flower.data.hugging_face": "cfl_flower.data.datasets.hugging_face",
    "cfl_flower.data.hybrid": "cfl_flower.data.datasets.hybrid",
    "cfl_flower.data.images": "cfl_flower.data.datasets.images",
    "cfl_flower.data.leaf": "cfl_flower.data.datasets.leaf",
    "cfl_flower.data.listed": "cfl_flower.data.datasets.listed",
    "cfl_flower.data.mixtures": "cfl_flower.data.worlds.mixtures",
    "cfl_flower.data.npz": "cfl_flower.data.datasets.npz",
    "cfl_flower.data.own": "cfl_flower.data.datasets.own",
    "cfl_flower.data.partition": "cfl_flower.data.worlds.partition",
    "cfl_flower.data.synthetic": "cfl_flower.data.datasets.synthetic",
    "cfl_flower.data.tables": "cfl_flower.data.datasets.tables",
    "cfl_flower.learning.training": "cfl_flower.learning.optimizer",
    "cfl_flower.settings": "cfl_flower.config.system",
    "cfl_flower.simulated_devices": "cfl_flower.engine.simulated_devices",
    "clients.asynchronous": "clients.families.asynchronous",
    "clients.choosing": "clients.families.choosing",
    "clients.decoupled": "clients.families.decoupled",
    "clients.detecting": "clients.families.detecting",
    "strategies.fielding_representations": "strategies.fielding.representations",
    "strategies.fielding_robustness": "strategies.fielding.robustness",
    "strategies.fielding_shared_model": "strategies.fielding.shared_model",
    "strategies.fielding_threshold": "strategies.fielding.threshold",
    "strategies.fielding_triggers": "strategies.fielding.triggers",
}
"""The module of today for each that was moved since the first release."""


REPLACED = {
    "clients.fedavg_ft.FedAvgFTClient": "clients.base.ClusteredClient",
    "strategies.fedavg_ft.FedAvgFT": "strategies.fedavg.FedAvg",
}
"""The class of today for each that is another one with a setting now."""


def current_path(path: str) -> str:
    """Return the dotted path of today of a class that may be named by an older one."""
    if path in REPLACED:
        return REPLACED[path]
    module, dot, name = path.rpartition(".")
    return MOVED.get(module, module) + dot + name


def current_settings(settings: Json) -> Json:
    """Return settings in which every class has its path of today."""
    if isinstance(settings, list):
        return [current_settings(each) for each in settings]
    if not isinstance(settings, Mapping):
        return settings
    current = {key: current_settings(value) for key, value in settings.items()}
    for key in ("_target_", "client"):
        if isinstance(current.get(key), str):
            current[key] = current_path(current[key])
    return current
