"""FedDrift's client: which data belong to which model, and when it notices a drift."""

import json
from dataclasses import replace

import numpy as np
import pytest

from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.types import Reply, Vector
from clients.feddrift import NEW, FedDriftClient
from strategies.feddrift import FedDriftSettings
from tests.clients.conftest import MakeContext

SETTINGS = FedDriftSettings(local=LocalTraining(epochs=1), delta=0.5)


@pytest.fixture
def model(make_context: MakeContext) -> Vector:
    """Return a model that fits what the client holds up to round 2."""
    client = FedDriftClient(replace(make_context(1), settings=SETTINGS))
    long = replace(SETTINGS.local, epochs=30)
    return client.train_from(client.context.initial(), long)[0]


def client_in(
    make_context: MakeContext, round: int, form: str = "original"
) -> FedDriftClient:
    settings = replace(SETTINGS, form=form)
    return FedDriftClient(replace(make_context(round), settings=settings))


def told(*steps: tuple[int, int]) -> dict[str, str]:
    return {"assigned": json.dumps(steps)}


def table(reply: Reply, count: int) -> tuple[np.ndarray, np.ndarray]:
    metrics = reply[2]
    losses = np.frombuffer(metrics["losses"], np.float32).reshape(count, count)  # type: ignore[arg-type]
    samples = np.frombuffer(metrics["counts"], np.float32)  # type: ignore[arg-type]
    return losses, samples


def test_a_drift_is_noticed_at_the_next_participation(make_context, model):
    """The client's data changed in round 3; the client is drawn in rounds 2 and 5."""
    # It remembers the loss of the best of two models, not of the other one.
    first = client_in(make_context, 2).fit([model, -model], told())
    assert (first[2]["chosen"], first[2]["step"]) == (0, 2)
    later = client_in(make_context, 5)
    found = later.fit([model], told((2, 0)))
    assert (found[2]["chosen"], found[2]["step"]) == (NEW, 5)
    # The new model starts from the best of those that there are.
    expected, count = client_in(make_context, 5).train_from(model)
    assert np.array_equal(found[0][0], expected)
    assert found[1] == count
    # Its data up to round 2 still belong to model 0, which is measured on them.
    losses, samples = table(found, 1)
    assert samples.tolist() == [first[1]]
    assert losses[0, 0] == pytest.approx(later.losses([model], later.samples(2))[0])
    # Had the result been lost, it would be noticed again; once known it is not.
    again = client_in(make_context, 6).fit([model], told((2, 0)))[2]
    assert (again["chosen"], again["step"]) == (NEW, 6)
    known = client_in(make_context, 7).fit([model, found[0][0]], told((2, 0), (6, 1)))
    assert (known[2]["chosen"], known[2]["step"]) == (1, 6)


def test_an_eager_client_trains_what_it_chose_before(make_context, model):
    client_in(make_context, 2, "eager").fit([model], told())
    asked = client_in(make_context, 5, "eager")
    chose = asked.answer([model, -model], told((2, 0)) | {"choose": True})[2]
    assert (chose["chosen"], chose["step"]) == (NEW, 5)
    alone = client_in(make_context, 5).fit([model, -model], told((2, 0)))
    assert all(chose[name] == value for name, value in alone[2].items())
    # The server says from which model those begin who drifted.
    found = client_in(make_context, 5, "eager").fit([-model], {"chosen": True})
    expected, count = client_in(make_context, 5).train_from(-model)
    assert np.array_equal(found[0][0], expected)
    assert (found[1], found[2]) == (count, {})
    # A round whose result is lost was not trained: it chooses again.
    again = client_in(make_context, 6, "eager")
    assert again.answer([model], told((2, 0)) | {"choose": True})[2]["chosen"] == NEW


def test_the_simplified_form_notices_only_in_the_round(make_context, model):
    missed = client_in(make_context, 5, "simplified").fit([model], told((2, 0)))
    assert missed[2]["chosen"] == 0
    drawn = client_in(make_context, 3, "simplified")
    found = drawn.fit([model], told((2, 0)))
    assert found[2]["chosen"] == NEW
    initial = drawn.context.initial()
    assert np.array_equal(found[0][0], drawn.train_from(initial)[0])


@pytest.mark.parametrize("form", ["original", "simplified"])
def test_a_model_is_trained_on_all_data_that_belong_to_it(make_context, model, form):
    client_in(make_context, 2, form).fit([model], told())
    later = client_in(make_context, 5, form)
    now = len(later.data(5).labels)
    fitting = later.train_from(model, replace(SETTINGS.local, epochs=30))[0]
    worse = -fitting
    # Both steps belong to model 1, whatever its number was.
    reply = later.fit([worse, fitting], told((2, 1)))
    losses, samples = table(reply, 2)
    assert reply[2]["chosen"] == 1
    held = later.data(5)
    if form == "original":
        rows = np.union1d(held.train_indices, later.data(2).train_indices)
        assert len(rows) > now
        held = replace(held, train_indices=rows)
    samples_of_model = later.samples_of(held)
    assert reply[1] == len(held.labels)
    assert samples.tolist() == [0, len(held.labels)]
    assert not losses[0].any()
    found = later.losses([worse, fitting], samples_of_model)
    assert losses[1] == pytest.approx(found)
    expected, _ = later.train_from(fitting, samples=samples_of_model)
    assert np.array_equal(reply[0][0], expected)


def test_a_sample_that_is_held_for_several_steps_counts_once(make_context):
    client = client_in(make_context, 1)
    view = client.data(1)
    some = replace(view, train_indices=view.train_indices[:9])
    renamed = replace(some, relabel=view.relabel[::-1].copy())
    assert len(client.unite([some, view])[1]) == len(view.labels)
    # Under another name it is another sample.
    assert len(client.unite([view, some, renamed])[1]) == len(view.labels) + 9


def test_a_client_without_samples_trains_nothing(make_context, model, monkeypatch):
    client = client_in(make_context, 2)
    empty = replace(client.data(2), train_indices=np.zeros(0, np.int64))
    monkeypatch.setattr(client, "data", lambda _: empty)
    assert client.fit([model], told())[1] == 0


def test_a_device_compares_with_its_last_loss(make_context, model, tmp_path):
    """It cannot look at the data before; those of round 3 are other ones."""

    def fit(round: int, models: list[Vector], *steps: tuple[int, int]) -> Reply:
        context = replace(make_context(round), settings=SETTINGS, folder=tmp_path)
        return FedDriftClient(context).fit(models, told(*steps))

    assert fit(1, [model])[2]["chosen"] == 0
    # The data are the same, however bad the model has become.
    assert fit(2, [-model], (1, 0))[2]["chosen"] == 0
    fit(2, [model], (1, 0))
    reply = fit(3, [model], (1, 0))
    assert reply[2]["chosen"] == NEW
    # Having started anew it compares with what it has now.
    reply = fit(4, [model, model], (1, 0), (3, 1))
    assert (reply[2]["chosen"], reply[2]["step"]) == (0, 3)
    assert table(reply, 2)[1].tolist() == [reply[1], 0]
