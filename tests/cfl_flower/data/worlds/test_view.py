"""What turns do to images, on cases computed by hand."""

import pytest
import torch

from cfl_flower.data.worlds.view import rotate


def images(height: int = 6, width: int = 5) -> torch.Tensor:
    shape = (4, 3, height, width)
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def test_quarter_turns_are_exact_and_counter_clockwise():
    x = torch.tensor([[[[1.0, 2], [3, 4]]]])
    assert rotate(x, 90)[0, 0].tolist() == [[2, 4], [1, 3]]
    assert torch.equal(rotate(rotate(x, 90), 270), x)
    assert rotate(x, 0) is x
    assert rotate(x, 720) is x


@pytest.mark.parametrize("quarter", [90, 180, 270])
def test_any_angle_turns_the_same_way(quarter):
    close = rotate(images(9, 9), quarter + 1e-3)
    assert torch.allclose(close, rotate(images(9, 9), quarter), atol=1e-3)


def test_the_centre_stays_and_the_corners_are_cut():
    turned = rotate(images(9, 9), 45)
    assert torch.allclose(turned[:, :, 4, 4], images(9, 9)[:, :, 4, 4], atol=1e-5)
    assert not turned[:, :, 0, 0].any()


def test_images_that_are_not_square_keep_their_shape_and_their_pixels():
    x = torch.zeros(1, 1, 5, 9)
    x[0, 0, 2, 6] = 1  # two pixels right of the centre
    turned = rotate(x, 90)
    assert turned.shape == x.shape
    assert turned[0, 0].argmax() == 0 * 9 + 4  # two pixels above it
