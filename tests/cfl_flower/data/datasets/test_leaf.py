import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cfl_flower.data.datasets.leaf import Femnist, Sent140
from cfl_flower.errors import ConfigError
from tests.cfl_flower.data.pools import owners


def leaf_file(path: Path, users: dict[str, tuple[list[Any], list[Any]]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in users.items()},
    }
    path.write_text(json.dumps(content))


def image(value: float) -> list[float]:
    return [value] * 783 + [1.0]


def femnist(root: Path) -> str:
    folder = root / "femnist" / "data"
    leaf_file(
        folder / "train" / "all_data_0_niid_0_keep_0_train_9.json",
        {
            "f0388_26": ([image(0.25), image(0.5)], [36, 3]),
            "f0001_41": ([image(0.75)], [45]),
        },
    )
    leaf_file(
        folder / "train" / "all_data_1_niid_0_keep_0_train_9.json",
        {"f0999_01": ([image(0.125)], [61])},
    )
    leaf_file(
        folder / "test" / "all_data_0_niid_0_keep_0_test_9.json",
        {"f0100_00": ([image(0.5)], [40]), "f0388_26": ([image(1.0)], [37])},
    )
    return str(root)


def test_femnist_samples_belong_to_their_writers(tmp_path):
    data_dir = femnist(tmp_path)
    dataset = Femnist()
    dataset.check(data_dir)
    train, test = dataset.load(data_dir)
    assert train.x.shape == (4, *dataset.shape)
    assert train.x.dtype == torch.float32
    assert train.x[:, 0, 0, 0].tolist() == [0.25, 0.5, 0.75, 0.125]
    assert train.x[:, 0, 27, 27].tolist() == [1.0] * 4
    assert train.labels.tolist() == [36, 3, 45, 61]
    assert test.labels.tolist() == [40, 37]
    # f0001_41, f0100_00, f0388_26, f0999_01: numbered over both parts.
    assert owners(train).tolist() == [2, 2, 0, 3]
    assert owners(test).tolist() == [1, 2]
    assert owners(train).dtype == train.labels.dtype == np.int64


def test_femnist10_has_only_the_letters_a_to_j(tmp_path):
    dataset = Femnist(letters=True)
    train, test = dataset.load(femnist(tmp_path))
    assert dataset.classes == 10
    assert train.labels.tolist() == [0, 9]
    assert train.x[:, 0, 0, 0].tolist() == [0.25, 0.75]
    assert test.labels.tolist() == [4, 1]
    # The writer of no letter is no owner.
    assert owners(train).tolist() == [2, 0]


def test_femnist10_takes_files_that_hold_only_the_letters(tmp_path):
    for part in ("train", "test"):
        path = tmp_path / "femnist" / "data" / part / "mytrain.json"
        leaf_file(path, {"f_00000": ([image(0.5), image(0.25)], [9, 0])})
    for pool in Femnist(letters=True).load(str(tmp_path)):
        assert pool.labels.tolist() == [9, 0]


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ('{"users": ["a"], "user_data": {"a": {"x": [[0.1', "Expecting"),
        ('{"users": ["a"], "user_data": {}}', "it lacks 'a'"),
        ("[1, 2]", "not the expected structure"),
        (([[1]], [1, 2]), "user a has 1 inputs and 2 labels"),
        (([[1, 2]], [1]), "reshape"),
        (([[1]], [1.7]), "user a has a label that is no integer"),
        (([[0] * 784], [62]), "user a has a label outside of 0 to 61"),
    ],
)
def test_a_damaged_json_file_is_named(tmp_path, content, fault):
    data_dir = femnist(tmp_path)
    path = tmp_path / "femnist/data/train/all_data_1_niid_0_keep_0_train_9.json"
    if isinstance(content, str):
        path.write_text(content)
    else:
        leaf_file(path, {"a": content})
    with pytest.raises(ConfigError, match=rf"all_data_1.*cannot be read \(.*{fault}"):
        Femnist().load(data_dir)


def tweet(text: str) -> list[str]:
    return ["2087", "Sat May 16 2009", "NO_QUERY", "robot", text]


def sent140(root: Path, labels: tuple[Any, ...] = ("4", "0", 0, 1)) -> str:
    folder = root / "sent140" / "data"
    first, second, third, fourth = labels
    leaf_file(
        folder / "train" / "all_data.json",
        {
            "zoe": ([tweet("Good, GOOD day!"), tweet("unheard")], [first, second]),
            "bob": ([tweet("good " * 30)], [third]),
        },
    )
    leaf_file(folder / "test" / "all_data.json", {"zoe": ([tweet("")], [fourth])})
    lines = [
        " ".join([word, *[str(value)] * 300])
        for word, value in (("good", 0.5), ("day", -1.25), (",", 2.0), ("no", 9.0))
    ]
    (root / "sent140" / "glove.6B.300d.txt").write_text("\n".join(lines) + "\n")
    return str(root)


def test_tweets_are_word_vectors(tmp_path):
    dataset = Sent140()
    train, test = dataset.load(sent140(tmp_path))
    assert train.x.shape == (3, *dataset.shape) == (3, 25, 300)
    assert train.x.dtype == torch.float32
    first = [0.5, 2.0, 0.5, -1.25, 0.0]
    for place in (0, 299):
        assert train.x[0, :, place].tolist() == first + [0.0] * 20
    assert not train.x[1].any()
    assert train.x[2, :, 7].tolist() == [0.5] * 25
    assert not test.x.any()
    assert train.labels.tolist() == [1, 0, 0]
    assert test.labels.tolist() == [1]
    assert owners(train).tolist() == [1, 1, 0]


def test_word_vectors_that_are_cut_off_are_named(tmp_path):
    data_dir = sent140(tmp_path)
    path = tmp_path / "sent140" / "glove.6B.300d.txt"
    path.write_text(path.read_text()[:-20])
    with pytest.raises(ConfigError, match=r"glove.*line 4 has 29\d of 300 numbers"):
        Sent140().load(data_dir)
