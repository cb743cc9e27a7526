from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from cfl_flower.data.datasets.hugging_face import HuggingFace
from cfl_flower.errors import ConfigError
from tests.cfl_flower.data.pools import owners

datasets: Any = pytest.importorskip("datasets", reason="needs pip install datasets")

NAMES = ["owl", "cat", "bee"]


def pictures(count: int) -> Any:
    """Return pictures whose brightness is 50 times the label."""
    labels = [number % 3 for number in range(count)]
    grey = [Image.fromarray(np.full((4, 6), 50 * label, np.uint8)) for label in labels]
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=NAMES),
            "who": datasets.Value("string"),
        }
    )
    who = [f"w{number % 2}" for number in range(count)]
    columns = {"image": grey, "label": labels, "who": who}
    return datasets.Dataset.from_dict(columns, features=features)


@pytest.fixture
def data_dir(tmp_path: Path) -> str:
    split = datasets.DatasetDict({"train": pictures(30), "test": pictures(6)})
    split.save_to_disk(tmp_path / "animals")
    return str(tmp_path)


def test_pictures_and_names_of_labels_are_read(data_dir):
    animals = HuggingFace(path="animals", image="image", size=2, channels=1)
    known = animals.complete(data_dir)
    assert (known.shape, known.names) == ((1, 2, 2), ("bee", "cat", "owl"))
    train, test = known.load(data_dir)
    assert (len(train.labels), len(test.labels)) == (30, 6)
    brightness = train.x[:, 0, 0, 0].numpy()
    # bee is 0 here and 2 there, and so on.
    assert brightness.tolist() == (50 * (2 - train.labels)).tolist()


def test_without_a_test_split_a_share_is_held_out(data_dir):
    animals = HuggingFace(path="animals", image="image", size=2, test=None)
    train, test = animals.load(data_dir)
    assert (len(train.labels), len(test.labels)) == (24, 6)


def test_a_folder_of_a_csv_is_read_as_load_dataset_does(tmp_path):
    lines = [f"{number},{'ab'[number % 2]},{number % 5}" for number in range(20)]
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "train.csv").write_text("\n".join(["v,label,who", *lines]))
    few = HuggingFace(path="few", owner="who")
    train, test = few.load(str(tmp_path))
    assert few.complete(str(tmp_path)).names == ("a", "b")
    assert train.x.shape == (15, 1)
    assert sorted(owners(test).tolist()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"train": "all"}, "dataset.train=all is not allowed; use one of train, test"),
        ({"image": "who"}, "dataset.image=who is not allowed; use a column of images"),
        ({"label": "kind"}, "dataset.label=kind is no column of .* image, label, who"),
    ],
)
def test_what_does_not_fit_is_one_line(settings, words, data_dir):
    values: dict[str, Any] = {"path": "animals", "image": "image", **settings}
    with pytest.raises(ConfigError, match=words) as error:
        HuggingFace(**values).load(data_dir)
    assert "\n" not in str(error.value)


def test_a_folder_that_is_no_dataset_is_one_line(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="path=empty cannot be loaded"):
        HuggingFace(path="empty").load(str(tmp_path))


def test_named_columns_are_texts_and_owners_keep_their_digits(tmp_path):
    named = datasets.ClassLabel(names=["cook", "nurse", "pilot"])
    kinds = {"job": named, "who": datasets.Value("int64"), "label": named}
    rows = {
        "job": [row % 3 for row in range(60)],
        "who": [2**60 + row % 4 for row in range(60)],
        "label": [row % 2 for row in range(60)],
    }
    rows["job"][0] = -1
    rows["who"][1] = None
    features = datasets.Features(kinds)
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "own")
    dataset = HuggingFace(path="own", owner="who", missing="drop")
    train, test = dataset.load(str(tmp_path))
    assert train.x.shape[1] == 3
    assert len(train.labels) + len(test.labels) == 58
    assert len(set(train.owners.tolist())) == 4
