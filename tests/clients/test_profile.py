import pytest
import torch

from clients.profile import ProfileClient


@pytest.mark.parametrize("count", [1, 6, 7])
def test_a_half_is_drawn_without_replacement_and_rounded_up(count, make_context):
    client = ProfileClient(make_context(1))
    samples = torch.arange(count).float(), torch.arange(count)
    x, y = client.draw(samples, 3, 2)
    assert torch.equal(x, y.float())
    halves = y.reshape(3, (count + 1) // 2).tolist()
    assert all(len(set(half)) == len(half) for half in halves)
    assert client.draw(samples, 0, 2) == samples
    again, other = (client.draw(samples, 3, round)[1] for round in (2, 3))
    assert torch.equal(again, y)
    assert count < 6 or not torch.equal(other, y)
