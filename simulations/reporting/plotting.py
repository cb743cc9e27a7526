"""What all pictures share: colours, axes, and files with the same bits each time."""

from __future__ import annotations

import io
import re
from pathlib import Path

import matplotlib as mpl
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cfl_flower.settings import require
from simulations.shell.terminal import writable

# Paul Tol's "muted" scheme, which colour-blind readers can tell apart.
COLOURS = (
    *("#332288", "#CC6677", "#117733", "#DDCC77", "#88CCEE"),
    *("#882255", "#44AA99", "#999933", "#AA4499", "#DDDDDD"),
)

# The same from a light colour on: for areas side by side.
AREAS = tuple(COLOURS[place] for place in (1, 0, 3, 2, *range(4, 10)))

FORMATS: dict[str, dict[str, None]] = {
    ".png": {},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}
"""Known pictures, and what to leave out of them: same seed, same bits."""


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches."""
    return Figure(figsize=(width, height), layout="constrained")


def count_in_integers(axis: Axis, most: int | None = None) -> None:
    """Mark an axis with whole numbers, at most so many steps."""
    axis.set_major_locator(MaxNLocator(most or "auto", integer=True))


def check_format(output: Path) -> None:
    """Raise a `ConfigError` for a file of an unknown kind."""
    known = output.suffix.lower() in FORMATS
    require(known, "--output", output, f"a name that ends in {', '.join(FORMATS)}")


def write(figure: Figure, path: Path) -> None:
    """Write a picture, or raise a `ConfigError`."""
    metadata = FORMATS[path.suffix.lower()]
    with (
        writable("--output", path, "name another file"),
        mpl.rc_context({"svg.hashsalt": "cfl-flower"}),
    ):
        figure.savefig(path, dpi=120, metadata=metadata)


def to_svg(figure: Figure, name: str) -> str:
    """Return a figure as an SVG element; the same figure gives the same text.

    Its ids start with the name, so that many figures can be in one page.
    """
    with mpl.rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    own = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{name}-", svg)
    return own[own.index("<svg") :]
