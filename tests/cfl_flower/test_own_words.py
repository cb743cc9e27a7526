"""Nothing of a device's samples leaves it in words, whatever goes wrong there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from flwr.common.serde import message_to_proto
from PIL import Image

from cfl_flower.errors import NoValidResultError
from simulations.engines.inprocess import InProcessGrid
from tests.conftest import Runner

SECRET = "IBANofMaxMustermann"
"""In cells, classes, names of files and folders, and the paths of all devices."""

DEVICE_LOGS = ("cfl_flower.client", "cfl_flower.data")
"""What writes a device's own log: devices are in this process here."""

SOUND = "age,label\n" + "".join(f"{n},{n % 2}\n" for n in range(40))


def write_cell(folder: Path) -> None:
    (folder / "data.csv").write_text(f"{SOUND}{SECRET},1\n")


def write_class(folder: Path) -> None:
    (folder / "data.csv").write_text(f"{SOUND}3,{SECRET}\n")


def write_column(folder: Path) -> None:
    (folder / "data.csv").write_text(SOUND.replace("age", SECRET))


def write_torn(folder: Path) -> None:
    (folder / "data.csv").write_text(f'{SOUND}{SECRET},"1,2,3\n4,5,6,{SECRET}\n')


def write_npz(folder: Path) -> None:
    x = np.zeros((20, 1, 8, 8), np.float32)
    np.savez(folder / f"{SECRET}.npz", x=x, y=np.array([SECRET] * 20))


def write_bytes(folder: Path) -> None:
    (folder / f"{SECRET}.npz").write_bytes(b"PK\3\4 torn " + SECRET.encode())


def write_image(folder: Path) -> None:
    for name in ("0", SECRET):
        inner = folder / "images" / name
        inner.mkdir(parents=True)
        for number in range(5):
            Image.new("L", (8, 8), 9).save(inner / f"{SECRET}-{number}.png")


def write_no_image(folder: Path) -> None:
    write_image(folder)
    for path in folder.glob("images/*/*.png"):
        path.write_bytes(SECRET.encode())


CSV = ["dataset=csv", "dataset.shape=[1]", "dataset.classes=2"]
NPZ = ["dataset=folder", "dataset.shape=[1,8,8]"]
IMAGES = ["dataset=image_folder", "dataset.size=8", "dataset.channels=1"]


def write_samples_of_the_operator(folder: Path) -> None:
    """Write what is on the server: it describes the data, and has nobody's words."""
    folder.mkdir()
    (folder / "data.csv").write_text(SOUND)
    for name in ("0", "1"):
        inner = folder / "images" / name
        inner.mkdir(parents=True)
        for number in range(5):
            Image.new("L", (8, 8), 9).save(inner / f"{number}.png")


class Overheard(InProcessGrid):
    """Devices, and all that they send, as it goes over the network."""

    def __init__(self, configs: list[dict[str, Any]]) -> None:
        super().__init__(configs)
        self.sent: list[bytes] = []

    def answer(self, message: Message) -> Message:
        reply = super().answer(message)
        self.sent.append(message_to_proto(reply).SerializeToString())
        return reply


@pytest.mark.parametrize(
    ("write", "options", "privacy"),
    [
        *((each, CSV, "none") for each in (write_cell, write_class, write_column)),
        *((each, CSV, "local") for each in (write_cell, write_torn)),
        *((each, NPZ, "none") for each in (write_npz, write_bytes)),
        *((each, IMAGES, "local") for each in (write_image, write_no_image)),
    ],
)
def test_no_word_of_a_device_leaves_it(
    privacy: str,
    write: Callable[[Path], None],
    options: list[str],
    run_small: Runner,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    configs = []
    for name in ("site-a", "site-b", "site-c"):
        folder = tmp_path / SECRET / name
        folder.mkdir(parents=True)
        write(folder)
        state = str(tmp_path / f"state-{SECRET}" / name)
        configs.append({"client-id": name, "data-dir": str(folder), "state-dir": state})
    # Whose folder is gone when it is asked who it is.
    configs.append({"client-id": "site-d", "data-dir": str(tmp_path / f"no-{SECRET}")})
    write_samples_of_the_operator(tmp_path / "server")
    options = [*options, f"data_dir={tmp_path / 'server'}", f"privacy={privacy}"]
    grid = Overheard(configs)
    fleet = ["clients=3", "participants=3", "rounds=1", "drift=none"]
    fleet += ["partition.groups=2"]
    with caplog.at_level(logging.DEBUG), suppress(NoValidResultError):
        run_small(*fleet, *options, "strategy=fedavg", grid=grid)
    assert any(b"site-a" in sent for sent in grid.sent)
    assert not [sent for sent in grid.sent if SECRET.encode() in sent]
    written = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert written
    assert not [path for path in written if SECRET.encode() in path.read_bytes()]
    of_server = [r for r in caplog.records if not r.name.startswith(DEVICE_LOGS)]
    assert not [r.getMessage() for r in of_server if SECRET in r.getMessage()]
