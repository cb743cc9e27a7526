"""Images turned by an angle."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample


def rotate(images: Tensor, degrees: float) -> Tensor:
    """Turn images counter-clockwise.

    Quarter turns of square images are exact; others interpolate, with 0 outside.

    Parameters
    ----------
    images : Tensor, shape (n, channels, height, width), float32
    degrees : float
    """
    if degrees % 360 == 0:
        return images
    if degrees % 90 == 0 and images.shape[-1] == images.shape[-2]:
        return torch.rot90(images, int(degrees // 90), (-2, -1))
    angle = math.radians(degrees)
    (height, width) = images.shape[-2:]
    cosine = math.cos(angle)
    sine = math.sin(angle)
    turn = torch.tensor(
        [[cosine, -sine * height / width, 0], [sine * width / height, cosine, 0]],
        device=images.device,
    )
    size = list(images.shape)
    grid = affine_grid(turn.expand(size[0], 2, 3), size, align_corners=False)
    return grid_sample(images, grid, align_corners=False)
