"""Samples as they look through other sensors, in other light, or in noise.

Of the corruptions of Hendrycks and Dietterich (ICLR 2019, arXiv 1903.12261) those that
are one line, each with a strength of its own unit. Values are not clipped to [0, 1],
since a dataset may have been normalised.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import conv2d, pad


def blur(x: Tensor, sigma: float) -> Tensor:
    """Blur images, shape (n, channels, height, width), by a Gaussian, in pixels."""
    reach = max(1, int(3 * sigma + 0.5))
    distances = torch.arange(-reach, reach + 1, dtype=x.dtype, device=x.device)
    weights = torch.exp(-((distances / sigma) ** 2) / 2)
    weights = weights / weights.sum()
    channels = x.shape[1]
    # Pixels beyond the edge are those at the edge, however small the image.
    wide = pad(x, (reach, reach, reach, reach), mode="replicate")
    rows = weights.view(1, 1, 1, -1).expand(channels, 1, 1, -1)
    columns = weights.view(1, 1, -1, 1).expand(channels, 1, -1, 1)
    return conv2d(conv2d(wide, rows, groups=channels), columns, groups=channels)


def contrast(x: Tensor, factor: float) -> Tensor:
    """Multiply the distance of pixels from the mean of their image's channel."""
    mean = x.mean((-2, -1), keepdim=True)
    return mean + factor * (x - mean)


def colour(x: Tensor, share: float) -> Tensor:
    """Move a share of each colour on: of red to green, to blue, and to red."""
    return (1 - share) * x + share * x.roll(1, dims=1)


IMAGES = {"blur": blur, "contrast": contrast, "colour": colour}
"""What is done to images alone; `colour` to those with three channels."""
