from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from cfl_flower.data.datasets.digits import Digits
from cfl_flower.data.reading.pool import Pool
from cfl_flower.errors import ConfigError


@pytest.fixture(scope="module")
def pools() -> tuple[Pool, Pool]:
    return Digits(test_fraction=0.2).load()


def test_every_label_gives_the_same_share_to_the_test(
    pools: tuple[Pool, Pool],
) -> None:
    train, test = (np.bincount(pool.labels, minlength=10) for pool in pools)
    assert test / (train + test) == pytest.approx(0.2, abs=0.01)


def test_every_load_splits_alike(pools: tuple[Pool, Pool]) -> None:
    for one, again in zip(pools, Digits(test_fraction=0.2).load(), strict=True):
        assert torch.equal(one.x, again.x)
        assert torch.equal(one.y, again.y)


def test_the_shape_and_the_labels_are_known_without_loading(
    pools: tuple[Pool, Pool],
) -> None:
    dataset = Digits()
    assert pools[0].x.shape[1:] == dataset.shape
    assert np.unique(pools[0].labels).tolist() == list(range(dataset.classes))


def test_torch_and_numpy_see_the_same_labels(pools: tuple[Pool, Pool]) -> None:
    for pool in (*pools, pools[0].to("cpu")):
        assert pool.x.dtype == torch.float32
        assert pool.y.dtype == torch.int64
        assert pool.y.tolist() == pool.labels.tolist()


def test_enlarging_keeps_the_order_of_the_samples(pools: tuple[Pool, Pool]) -> None:
    large = Digits(test_fraction=0.2, size=16).load()[0]
    assert large.y.tolist() == pools[0].y.tolist()
    # Bilinear, factor 2: the mean over the image stays but for its border.
    assert large.x.mean() == pytest.approx(float(pools[0].x.mean()), abs=0.01)
    # Interpolated, not repeated: more than the 17 grey levels of the original.
    assert len(torch.unique(pools[0].x)) == 17
    assert len(torch.unique(large.x)) > 17


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1])
def test_a_test_set_of_nothing_or_everything_is_refused(fraction: float) -> None:
    with pytest.raises(
        ConfigError, match=r"dataset\.test_fraction=.*from 0.01 to 0.99"
    ):
        Digits(test_fraction=fraction)


def test_the_digits_come_from_the_cache_and_without_one_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made, kept = Digits().load(), Digits().load()
    assert list((tmp_path / "cache").rglob("x.train.npy"))
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    for one, *others in zip(made, kept, Digits().load(), strict=True):
        assert all(torch.equal(one.x, other.x) for other in others)
        assert all(torch.equal(one.y, other.y) for other in others)
