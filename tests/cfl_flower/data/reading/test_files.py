from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import yaml

import conf
from cfl_flower.building import build
from cfl_flower.data.reading.files import FileDataset, held_out
from cfl_flower.data.reading.pool import Arrays, Parts, Pool
from cfl_flower.errors import ConfigError, intact
from tests.cfl_flower.data.pools import owners


@pytest.mark.parametrize(
    "name",
    [
        *("femnist", "sent140", "synthetic", "folder"),
        *("fmow", "open_images", "cityscapes", "waymo"),
    ],
)
def test_the_yaml_file_says_what_the_code_does_without_it(name):
    path = Path(conf.__path__[0], "dataset", f"{name}.yaml")
    settings = build(yaml.safe_load(path.read_text()))
    assert settings == type(settings)()
    assert settings.classes >= 2
    assert min(settings.shape) >= 1


@dataclass(frozen=True)
class Lines(FileDataset):
    """One number per line."""

    times: int = 1
    name: ClassVar[str] = "lines"

    def files(self) -> tuple[str, ...]:
        return ("train*.txt", "test.txt")

    def arrays(self, data_dir: str) -> Parts:
        parts: dict[str, Arrays] = {}
        for part in ("train", "test"):
            x = np.loadtxt(Path(data_dir, f"{part}.txt"), np.float32, ndmin=1)
            y = (self.times * x).astype(np.int64)
            parts[part] = {"x": x, "y": y, "owner": y + 1}
        return parts


def test_a_dataset_is_read_again_when_its_files_or_settings_change(tmp_path):
    (tmp_path / "train.txt").write_text("1\n2\n")
    (tmp_path / "test.txt").write_text("3\n")
    train, test = Lines().load(str(tmp_path))
    assert (train.labels.tolist(), test.labels.tolist()) == ([1, 2], [3])
    assert owners(train).tolist() == [2, 3]
    assert train.times is None
    assert isinstance(owners(train), np.memmap)

    assert Lines(times=2).load(str(tmp_path))[0].labels.tolist() == [2, 4]

    (tmp_path / "train.txt").write_text("1\n2\n5\n")
    assert Lines().load(str(tmp_path))[0].labels.tolist() == [1, 2, 5]


@pytest.mark.parametrize("changed", ["x", "y", "owner", "time", "domain"])
def test_samples_have_another_name_if_anything_of_them_changes(changed):
    arrays = {"x": np.ones((3, 2), np.float32)}
    arrays |= {name: np.arange(3) for name in ("y", "owner", "time", "domain")}
    other = {**arrays, changed: arrays[changed].copy()}
    assert Pool.from_arrays(other).digest() == Pool.from_arrays(arrays).digest()
    other[changed][2] += 1
    assert Pool.from_arrays(other).digest() != Pool.from_arrays(arrays).digest()


def test_each_owner_has_its_share_held_out_and_keeps_something():
    owners = np.repeat([4, 0, 2, 9], [100, 1, 3, 10])
    owners = owners[np.random.default_rng(0).permutation(len(owners))]
    test = held_out(owners, 0.2)
    held = {owner: int(test[owners == owner].sum()) for owner in (4, 0, 2, 9)}
    assert held == {4: 20, 0: 0, 2: 1, 9: 2}
    assert (held_out(owners, 0.2) == test).all()
    assert held_out(np.zeros(3, np.int64), 0.99).sum() == 2
    assert not len(held_out(np.zeros(0, np.int64), 0.5))


@pytest.mark.parametrize(
    "read",
    [
        lambda content: content["x"]["y"],
        lambda content: content["y"],
        lambda content: content["x"][0],
        lambda content: content.x,
        lambda content: int("seven"),
    ],
)
def test_a_wrong_structure_is_one_line(read):
    with (
        pytest.raises(ConfigError, match="file cannot be read") as error,
        intact("file"),
    ):
        read({"x": []})
    assert "\n" not in str(error.value)
