import numpy as np

from cfl_flower.client.context import ClientContext
from clients.local import LocalClient


def own_model(context: ClientContext, before: int) -> np.ndarray:
    return context.state.load(before)["model"]


def test_a_client_goes_on_from_its_own_model(make_context):
    context = make_context(1)
    arrays, count, _ = LocalClient(context).fit([], {})
    assert arrays == []
    assert count == len(context.stream.view(2, 1).labels)
    later = make_context(4)
    LocalClient(later).fit([], {})
    expected, _ = LocalClient(later).train_from(own_model(context, before=4))
    assert np.array_equal(own_model(context, before=5), expected)
