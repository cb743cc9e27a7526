"""Nothing of a device's samples leaves it in words, whatever goes wrong there."""

import logging
from collections.abc import Callable
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message
from flwr.common.serde import message_to_proto
from PIL import Image

from cfl_flower.errors import NoValidResultError
from simulations.engines.inprocess import InProcessGrid

SECRET = "IBANofMaxMustermann"
"""In cells, classes, names of files and folders, and the paths of all devices."""

DEVICE_LOGS = ("cfl_flower.client", "cfl_flower.data")
"""What writes a device's own log: devices are in this process here."""

SOUND = "age,label\n" + "".join(f"{n},{n % 2}\n" for n in range(40))


CSV = ["dataset=csv", "dataset.shape=[1]", "dataset.classes=2"]
CSV += ["dataset.standardise=false"]
NPZ = ["dataset=folder", "dataset.shape=[1,8,8]"]
IMAGES = ["dataset=image_folder", "dataset.size=8", "dataset.channels=1"]


def in_memory(save: Callable[[BytesIO], object]) -> bytes:
    """Return what is saved to a file."""
    file = BytesIO()
    save(file)
    return file.getvalue()


X = np.zeros((20, 1, 8, 8), np.float32)
LABELS = in_memory(lambda file: np.savez(file, x=X, y=np.array([SECRET] * 20)))
IMAGE = in_memory(lambda file: Image.new("L", (8, 8), 9).save(file, "png"))


def images(name: str, image: bytes) -> dict[str, bytes]:
    """Return images of two classes, of which one and all files have a name."""
    places = [(label, number) for label in ("0", name) for number in range(5)]
    return {f"images/{label}/{name}-{n}.png": image for label, n in places}


FILES: dict[str, tuple[list[str], str, dict[str, bytes]]] = {
    **{
        f"{name}, {privacy}": (CSV, privacy, {"data.csv": text.encode()})
        for name, privacy, text in (
            ("cell", "none", f"{SOUND}{SECRET},1\n"),
            ("cell", "local", f"{SOUND}{SECRET},1\n"),
            ("class", "none", f"{SOUND}3,{SECRET}\n"),
            ("column", "none", SOUND.replace("age", SECRET)),
            ("torn", "local", f'{SOUND}{SECRET},"1,2,3\n4,5,6,{SECRET}\n'),
        )
    },
    "labels": (NPZ, "none", {f"{SECRET}.npz": LABELS}),
    "bytes": (NPZ, "none", {f"{SECRET}.npz": b"PK\3\4 torn " + SECRET.encode()}),
    "images": (IMAGES, "local", images(SECRET, IMAGE)),
    "no images": (IMAGES, "local", images(SECRET, SECRET.encode())),
}
"""What devices have, with the options and the privacy of a run."""

OF_THE_OPERATOR = {"data.csv": SOUND.encode(), **images("1", IMAGE)}
"""Files on the server: they describe the data, and have nobody's words."""


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


class Overheard(InProcessGrid):
    """Devices, and all that they send, as it goes over the network."""

    def __init__(self, configs: list[dict[str, Any]]) -> None:
        super().__init__(configs)
        self.sent: list[bytes] = []

    def answer(self, message: Message) -> Message:
        reply = super().answer(message)
        self.sent.append(message_to_proto(reply).SerializeToString())
        return reply


@pytest.mark.parametrize("kind", FILES)
def test_no_word_of_a_device_leaves_it(kind, run_small, tmp_path, caplog):
    options, privacy, files = FILES[kind]
    configs = []
    for name in ("site-a", "site-b", "site-c"):
        folder = write(tmp_path / SECRET / name, files)
        state = str(tmp_path / f"state-{SECRET}" / name)
        configs.append({"client-id": name, "data-dir": str(folder), "state-dir": state})
    # Whose folder is gone when it is asked who it is.
    configs.append({"client-id": "site-d", "data-dir": str(tmp_path / f"no-{SECRET}")})
    server = write(tmp_path / "server", OF_THE_OPERATOR)
    options = [*options, f"data_dir={server}", f"privacy={privacy}"]
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
