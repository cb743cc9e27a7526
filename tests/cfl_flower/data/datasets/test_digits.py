import numpy as np
import pytest
import torch

from cfl_flower.data.datasets.digits import Digits
from cfl_flower.data.reading.pool import Pool


@pytest.fixture(scope="module")
def pools() -> tuple[Pool, Pool]:
    return Digits(test_fraction=0.2).load()


def test_every_label_gives_the_same_share_to_the_test(pools):
    train, test = (np.bincount(pool.labels, minlength=10) for pool in pools)
    assert test / (train + test) == pytest.approx(0.2, abs=0.01)


def test_the_shape_and_the_labels_are_known_without_loading(pools):
    dataset = Digits()
    assert pools[0].x.shape[1:] == dataset.shape
    assert np.unique(pools[0].labels).tolist() == list(range(dataset.classes))
    assert Digits(size=28).load()[1].x.shape[1:] == Digits(size=28).shape == (1, 28, 28)
    images = torch.cat([pool.x for pool in pools]).flatten(1)
    assert len(torch.unique(images, dim=0)) == 1797
    assert (images.min(), images.max()) == (0, 1)


def test_the_digits_come_from_the_cache_and_without_one_all_the_same(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made, kept = Digits().load(), Digits().load()
    assert list((tmp_path / "cache").rglob("x.train.npy"))
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for one, *others in zip(made, kept, Digits().load(), strict=True):
        assert all(torch.equal(one.x, other.x) for other in others)
        assert all(torch.equal(one.y, other.y) for other in others)
