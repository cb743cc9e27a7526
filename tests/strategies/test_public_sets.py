import numpy as np
import pytest
import torch

from cfl_flower.config.compose import compose_config
from cfl_flower.data.datasets.digits import Digits
from cfl_flower.data.datasets.own import Folder
from cfl_flower.data.reading.pool import Pool
from cfl_flower.data.worlds.view import rotate
from cfl_flower.errors import ConfigError
from cfl_flower.learning.testing import evaluate
from cfl_flower.models import CcflCnn, FlatModel, Mlp
from strategies.families.public_sets import (
    Distribution,
    Samples,
    Validation,
    distributions,
    public_sets,
    sets_in_folders,
)


def test_mixtures_are_of_turned_datasets(tmp_path):
    options = ["partition=mixtures", "partition.clusters=4", "drift=mixture_redraw"]
    config = compose_config([*options, f"output_dir={tmp_path}"])
    found = distributions(config.partition, config.timeline)
    assert [each.degrees for each in found] == [0, 90, 180, 270]
    pool = Digits().load("")[0]
    same = [each.draw(pool, 20, np.random.default_rng(0)) for each in found]
    for number, samples in enumerate(same):
        assert torch.equal(samples.x, rotate(same[0].x, 90 * number))
        assert torch.equal(samples.y, same[0].y)


def test_label_groups_are_their_own_distributions(tmp_path):
    options = ["partition.groups=3", "drift=none", f"output_dir={tmp_path}"]
    config = compose_config(options)
    found = distributions(config.partition, config.timeline)
    assert len(found) == 3
    pool = Digits().load("")[0]
    sets = public_sets(found, pool, 200, 0, "public")
    world = config.timeline.world(1)
    for concept, samples in enumerate(sets):
        client = int(np.flatnonzero(config.timeline.concepts(1) == concept)[0])
        held = set(np.flatnonzero(world.demand[client] > 0).tolist())
        assert set(samples.y.tolist()) <= held
    other = public_sets(found, pool, 200, 0, "cluster-tests")
    assert not torch.equal(sets[0].x, other[0].x)


def test_samples_are_renamed_and_drawn_once():
    pool = Digits().load("")[0]
    weights = np.zeros(10)
    weights[[3, 7]] = 1.0
    names = np.arange(10)[::-1].copy()
    samples = Distribution(weights, 0.0, names, 0).draw(
        pool, 10**6, np.random.default_rng(0)
    )
    count = int(np.isin(pool.labels, [3, 7]).sum())
    assert len(samples.y) == count
    assert set(samples.y.tolist()) == {6, 2}


def test_a_servers_own_sets_lie_in_folders(tmp_path):
    rng = np.random.default_rng(0)
    for name, count in (("b", 30), ("a", 20)):
        (tmp_path / name).mkdir()
        x = rng.random((count, 3), np.float32)
        np.savez(tmp_path / name / "samples.npz", x=x, y=rng.integers(0, 4, count))
    dataset = Folder(shape=(3,), classes=4, test_fraction=0.1)
    first, second = sets_in_folders(dataset, str(tmp_path))
    assert len(first.y) < len(second.y)
    assert first.x.shape[1:] == (3,)
    with pytest.raises(ConfigError, match=r"public_dir=.*none has no folders"):
        sets_in_folders(dataset, str(tmp_path / "none"))


def test_labels_that_have_not_arrived_are_not_public(tmp_path):
    arriving = ["drift=label_buckets", "partition=iid", f"output_dir={tmp_path}"]
    config = compose_config([*arriving, "drift.buckets=5"])
    (found,) = distributions(config.partition, config.timeline)
    visible = config.timeline.world(1).visible[0]
    assert 0 < visible.sum() < 10
    assert np.array_equal(found.weights > 0, visible)


def test_labels_are_drawn_by_their_weights_however_many_samples_they_have():
    pool = Digits().load("")[0]
    many, some = (np.flatnonzero(pool.labels == label) for label in (0, 1))
    rows = np.concatenate([many, some[:30]])
    few = Pool(pool.x[rows], pool.y[rows], pool.labels[rows])
    weights = np.zeros(10)
    weights[:2] = 1.0
    found = Distribution(weights, 0.0, np.arange(10), 0)
    drawn = [found.draw(few, 8, np.random.default_rng(n)).y for n in range(60)]
    assert torch.cat(drawn).double().mean() == pytest.approx(0.5, abs=0.06)


@pytest.fixture
def sets() -> list[Samples]:
    made = torch.Generator().manual_seed(0)
    return [
        Samples(
            torch.rand(150 + 20 * k, 1, 16, 16, generator=made),
            torch.randint(0, 10, (150 + 20 * k,), generator=made),
        )
        for k in range(3)
    ]


@pytest.mark.parametrize("settings", [CcflCnn([4, 6]), Mlp(8)])
def test_losses_equal_those_of_a_plain_test(settings, sets):
    network = FlatModel(settings.build((1, 16, 16), 10))
    vectors = [FlatModel(settings.build((1, 16, 16), 10)).to_vector() for _ in range(3)]
    validation = Validation(network, sets)
    plain = FlatModel(settings.build((1, 16, 16), 10))
    for vector in vectors:
        found = [evaluate(plain.load(vector), each.x, each.y)[0] for each in sets]
        assert validation.losses(vector) == pytest.approx(found, rel=1e-5)
    own = validation.own(vectors)
    for vector, each, (loss, accuracy) in zip(vectors, sets, own, strict=True):
        expected, correct = evaluate(plain.load(vector), each.x, each.y)
        assert loss == pytest.approx(expected, rel=1e-5)
        assert accuracy == pytest.approx(correct / len(each.y))


def test_only_models_that_changed_are_tested_again(sets):
    network = FlatModel(Mlp(8).build((1, 16, 16), 10))
    validation = Validation(network, sets)
    vectors = [FlatModel(Mlp(8).build((1, 16, 16), 10)).to_vector() for _ in range(3)]
    first = validation.own(vectors)
    assert validation.sizes.tolist() == [150, 170, 190]
    # What is known is not looked at again, be it written to meanwhile.
    vectors[0][:] = 0
    assert validation.own(vectors) == first
    changed = [vectors[0], vectors[1] + np.float32(1), vectors[2]]
    again = validation.own(changed)
    assert (again[0], again[2]) == (first[0], first[2])
    assert again[1] != first[1]


def test_any_number_of_threads_finds_the_same_bits():
    made = torch.Generator().manual_seed(0)
    x = torch.rand(1000, 1, 28, 28, generator=made)
    sets = [Samples(x, torch.randint(0, 10, (1000,), generator=made))]
    network = FlatModel(CcflCnn([4, 6]).build((1, 28, 28), 10))
    vector = network.to_vector()
    found = [Validation(network, sets, count).own([vector]) for count in (1, 2, 5)]
    assert found[0] == found[1] == found[2]
