"""Samples as they look through other sensors, in other light, or in noise.

Of the corruptions of Hendrycks and Dietterich (ICLR 2019, arXiv 1903.12261) those that
are one line, each with a strength of its own unit. Values are not clipped to [0, 1],
since a dataset may have been normalised.
"""

from __future__ import annotations

import torch
from torch import Tensor


def blur(x: Tensor, sigma: float) -> Tensor:
    """Blur images, shape (n, channels, height, width), by a Gaussian, in pixels."""
    (height, width) = x.shape[-2:]
    columns = _spread(height, sigma).to(x.device)
    rows = _spread(width, sigma).to(x.device)
    return columns @ x @ rows.T


def _spread(size: int, sigma: float) -> Tensor:
    """Return what each of so many pixels in a row gets of each, shape (size, size).

    Pixels beyond the edge are those at the edge. A product with the matrix takes less
    time than a convolution of each channel.
    """
    reach = max(1, int(3 * sigma + 0.5))
    distances = torch.arange(-reach, reach + 1)
    weights = torch.exp(-((distances / sigma) ** 2) / 2)
    sources = (torch.arange(size)[:, None] + distances).clamp(0, size - 1)
    shares = (weights / weights.sum()).expand(size, -1)
    return torch.zeros(size, size).scatter_add_(1, sources, shares)


def contrast(x: Tensor, factor: float) -> Tensor:
    """Multiply the distance of pixels from the mean of their image's channel."""
    mean = x.mean((-2, -1), keepdim=True)
    return mean + factor * (x - mean)


def colour(x: Tensor, share: float) -> Tensor:
    """Move a share of each colour on: of red to green, to blue, and to red."""
    return (1 - share) * x + share * x.roll(1, dims=1)


IMAGES = {"blur": blur, "contrast": contrast, "colour": colour}
"""What is done to images alone; `colour` to those with three channels."""
