from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cfl_flower.config.compose import compose_config
from cfl_flower.data.datasets.npz import Npz
from cfl_flower.errors import ConfigError


def write(folder: Path, **arrays: Any) -> str:
    np.savez(folder / "data.npz", **arrays)
    return str(folder)


def test_the_file_tells_shape_and_classes(tmp_path):
    x = np.zeros((3, 6, 5), np.uint8)
    folder = write(tmp_path, x_train=x, y_train=[2, 0, 1], x_test=x, y_test=[0, 0, 1])
    known = Npz().complete(folder)
    assert (known.shape, known.classes, known.names) == ((1, 6, 5), 3, ())
    assert Npz().load(folder)[0].labels.tolist() == [2, 0, 1]


def test_one_class_alone_is_nothing_to_learn():
    with pytest.raises(ConfigError, match=r"classes=1 .*; use 0 or at least 2"):
        Npz(classes=1)


def test_labels_are_numbered_by_name_or_as_the_settings_order_them(tmp_path):
    x, y = np.zeros((4, 2)), ["pear", "fig", "pear", "fig"]
    folder = write(tmp_path, x=x, y=y)
    known = Npz(test_fraction=0.5).complete(folder)
    assert (known.shape, known.names) == ((2,), ("fig", "pear"))
    train, test = known.load(folder)
    assert sorted(train.labels.tolist()) == sorted(test.labels.tolist()) == [0, 1]
    ordered = Npz(test_fraction=0.5, names=("pear", "kiwi", "fig"))
    assert ordered.complete(folder).classes == 3
    assert sorted(ordered.load(folder)[0].labels.tolist()) == [0, 2]
    # The arrays are made once, whatever the labels' order.
    assert ordered.recipe() == Npz(test_fraction=0.5).recipe()


def test_inputs_are_standardised_by_the_training_set_alone(tmp_path):
    train, test = np.array([[1.0, 5], [3, 5]]), np.array([[5.0, 6]])
    folder = write(tmp_path, x_train=train, y_train=[0, 1], x_test=test, y_test=[1])
    scaled = Npz(standardise="pooled").load(folder)
    assert scaled[0].x.tolist() == [[-1, 0], [1, 0]]
    assert scaled[1].x.tolist() == [[3, 1]]


def test_channels_of_own_images_are_normalised_one_by_one(tmp_path):
    x = np.uint8(np.tile([0, 255, 255], (4, 2, 2, 1)))
    folder = write(tmp_path, x=x, y=[0, 0, 1, 1])
    scaling = [[0.0, 0.5, 0.5], [1.0, 0.5, 0.25]]
    train, _ = Npz(test_fraction=0.5, normalise=scaling).load(folder)
    assert train.x[0, :, 0, 0].tolist() == [0, 1, 2]
    with pytest.raises(ConfigError, match="one for each channel, of 3"):
        Npz(test_fraction=0.5, normalise=[[0.0, 0.5], [1.0, 1.0]]).complete(folder)


NUMBERS = {
    21: np.resize(np.arange(21) / 4, 5000),
    # As 1.5 and 1.50, which are one number.
    30: np.resize([f"{n}.{d}" for n in range(3) for d in range(10)], 99),
    102: [f"{sign}{n}.5" for sign in "+-" for n in range(51)] * 9,
    151: [*range(151), *range(100)],
    200: [f"patient {n}" for n in range(200)],
}
"""Labels that are no classes, by how many of them there are."""


@pytest.mark.parametrize(
    ("arrays", "settings", "words"),
    [
        ({"x": [1.0, 2], "y": [0, 1]}, {}, r"inputs of shape \(2,\)"),
        ({"x": np.ones((2, 1)), "y": [0, 1]}, {}, "one sample of each class, .* add"),
        (
            {"x": np.ones((2, 1)), "y": [0, 1], "owner": [3, 4]},
            {},
            "one sample of each owner, .* add",
        ),
        (
            {"x": np.ones((500, 1)), "y": np.linspace(0, 1, 500)},
            {},
            "500 different labels in 500 samples, as '0.0'; regression is not",
        ),
        *(
            ({"x": np.ones((len(y), 1)), "y": y}, {}, f"{n} different labels in")
            for n, y in NUMBERS.items()
        ),
        (
            {"x": np.ones((8, 1)), "y": list("aabbaabb")},
            {"names": ("b", "c")},
            "class 'a', which is none of b to c; correct dataset.names or leave",
        ),
        (
            {"x": np.ones((8, 1)), "y": [0, 0, 1, 1] * 2},
            {"shape": (2,), "classes": 2},
            r"dataset.shape=\[2\] is not allowed; use \[1\] as in the .npz file",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(arrays, settings, words, tmp_path):
    folder = write(tmp_path, **arrays)
    with pytest.raises(ConfigError, match=words) as error:
        Npz(**settings).load(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "y", [np.arange(20) / 4, np.arange(100), [f"v1.{d}" for d in range(40)]]
)
def test_classes_may_have_numbers_for_names(y, tmp_path):
    folder = write(tmp_path, x=np.ones((40 * len(y), 1)), y=np.tile(y, 40))
    assert Npz().complete(folder).classes == len(y)


def test_a_label_may_be_in_a_row_of_its_own(tmp_path):
    """As in keras' files."""
    x, y = np.zeros((4, 2, 2, 3), np.uint8), np.array([[0], [1], [0], [1]])
    folder = write(tmp_path, x_train=x, y_train=y, x_test=x, y_test=y)
    train, _ = Npz().load(folder)
    assert train.labels.tolist() == [0, 1, 0, 1]


def test_a_run_keeps_what_the_file_tells(tmp_path):
    """So that its models can be reported and served where the file is not."""
    folder = write(tmp_path, x=np.zeros((40, 3)), y=["yes", "no"] * 20)
    config = compose_config(
        ["dataset=npz", f"data_dir={folder}", "partition=iid", "drift=none"]
    )
    assert config.resolved["dataset"]["shape"] == [3]
    assert config.resolved["dataset"]["names"] == ["no", "yes"]
    assert config.dataset.classes == config.resolved["dataset"]["classes"] == 2


@pytest.mark.parametrize(
    ("train", "test", "common"),
    [
        (["<=50K", ">50K"], ["<=50K.", ">50K."], False),
        ([0, 1], [2, 3], False),
        (["cat", "dog"], ["dog", "cow"], True),
    ],
)
def test_two_parts_without_a_common_class_are_refused(train, test, common, tmp_path):
    x = np.linspace(0, 1, 20)[:, None]
    folder = write(tmp_path, x_train=x, x_test=x, y_train=train * 10, y_test=test * 10)
    if common:
        Npz().load(folder)
        return
    ours, others = (", ".join(map(str, labels)) for labels in (train, test))
    with pytest.raises(ConfigError, match=f"{ours} for training, but {others} for"):
        Npz().load(folder)
