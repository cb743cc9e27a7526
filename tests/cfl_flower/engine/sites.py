"""Three devices with tables of their own, one of which may lie."""

import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from flwr.app import Message
from rich.console import Console

from cfl_flower.config.compose import compose_sweep
from cfl_flower.engine.hello import ask_for_words
from cfl_flower.run_config import RunConfig
from cfl_flower.server_app import execute
from simulations.engines.inprocess import InProcessGrid

COLUMNS = {
    "site-a": ["age", "city", "day", "outcome"],
    "site-b": ["outcome", "day", "city", "age"],
    "site-c": ["city", "outcome", "age", "day"],
}

CITIES = {"site-a": ["Bern", "Basel"], "site-b": ["Zug", "Basel"], "site-c": ["Ulm"]}

RUN = [
    *("strategy=fedavg", "clients=3", "participants=3", "rounds=2", "drift=none"),
    *("partition=iid", "model=mlp", "dataset=csv", "dataset.label=outcome"),
    *("dataset.time=day", "dataset.missing=mean"),
]


def frame_of(name: str, rows: int = 60) -> pd.DataFrame:
    """Return a site's own table; its ages are its own, and one is missing."""
    rng = np.random.default_rng(list(COLUMNS).index(name))
    age = rng.integers(20, 80, rows) + 10 * list(COLUMNS).index(name)
    table = {
        "age": [None, *age[1:].tolist()],
        "city": rng.choice(CITIES[name], rows),
        "day": pd.date_range("2024-01-01", periods=rows).astype(str),
        "outcome": np.where(age > 50, "yes", "no"),
    }
    return pd.DataFrame(table)[COLUMNS[name]]


class Tables(InProcessGrid):
    """Devices with csv files of their own; the last may answer something else."""

    def __init__(
        self, root: Path, liar: Any = None, liars: int = 1, **more: Any
    ) -> None:
        configs = []
        for name in COLUMNS:
            folder = root / name
            folder.mkdir(exist_ok=True)
            if not (folder / "data.csv").exists():
                frame_of(name).to_csv(folder / "data.csv", index=False)
            own = {"client-id": name, "data-dir": str(folder), "tell-names": True}
            configs.append({**own, "state-dir": str(root / f"state-{name}"), **more})
        super().__init__(configs)
        self.liar = liar
        self.liars = [*self.node_configs][-liars:]
        self.asked: list[str] = []

    def answer(self, message: Message) -> Message:
        self.asked.append(message.metadata.message_type)
        reply = super().answer(message)
        if self.liar and message.metadata.dst_node_id in self.liars:
            self.liar(message, reply)
        return reply


def start(grid: InProcessGrid, text: str) -> tuple[RunConfig, list[str]]:
    """Run what is asked for, and return its settings and the lines that it printed."""
    (config,) = compose_sweep(text, partial(ask_for_words, grid))
    execute(grid, config, Console(file=(file := io.StringIO()), width=200))
    return config, file.getvalue().splitlines()


def run(grid: InProcessGrid, folder: Path, *more: str) -> dict[str, Any]:
    """Run, and return what the run's folder says of the inputs."""
    text = " ".join([*RUN, f"output_dir={folder}", f"data_dir={folder.parent}", *more])
    start(grid, text)
    found: dict[str, Any] = json.loads((folder / "preprocessing.json").read_text())
    return found


def numbers(folder: Path) -> list[tuple[float, float]]:
    rows = (folder / "rounds.jsonl").read_text().splitlines()
    return [(row["loss"], row["accuracy"]) for row in map(json.loads, rows)]


def lie_in_sums(numbers: np.ndarray[Any, Any]) -> Any:
    def lie(message: Message, reply: Message) -> None:
        asked = message.metadata
        if (asked.message_type, asked.group_id) == ("train", "0"):
            arrays = reply.content.array_records["arrays"]
            (name,) = arrays
            arrays[name] = type(arrays[name])(numbers.astype(np.float32))

    return lie
