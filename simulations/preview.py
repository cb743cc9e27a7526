"""Who holds what, and when it changes, before any training: as text and as a picture.

    python -m simulations.preview drift=sudden partition=dirichlet rounds=200
    python -m simulations.preview drift=swap_all clients=1000 --output /tmp/swaps.svg

Arguments are Hydra's overrides; ``--output`` names the picture, a .png, .svg or .pdf
(preview.png). Exit codes as `simulations.run`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import QuadMesh
from matplotlib.colors import (
    BoundaryNorm,
    Colormap,
    ListedColormap,
    LogNorm,
    Normalize,
)
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter, StrMethodFormatter
from rich.columns import Columns as SideBySide
from rich.console import Console
from rich.table import Table

from cfl_flower.config import RunConfig, compose_config
from cfl_flower.data.stream import Stream, View
from cfl_flower.errors import CflError, ConfigError
from cfl_flower.server_app import make_console, open_stream
from cfl_flower.settings import require
from cfl_flower.types import FloatArray, IntArray
from simulations.run import report

ROWS = 12
"""Periods in the table."""

ROUNDS = 200
"""Periods in the ribbon of the picture."""

CLIENTS = 200
"""Clients in the picture."""

LINES = 60
"""Changes that are drawn as lines through the ribbon; more would hide it."""

FIRST_CLIENTS = 20
"""Clients in the text."""

BLOCKS = "▁▂▃▄▅▆▇█"

FORMATS: dict[str, dict[str, None]] = {
    ".png": {},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}
"""Known pictures, and what to leave out of them: same seed, same bits."""

# Paul Tol's "muted" scheme, which colour-blind readers can tell apart.
COLOURS = (
    *("#CC6677", "#332288", "#DDCC77", "#117733", "#88CCEE"),
    *("#882255", "#44AA99", "#999933", "#AA4499", "#DDDDDD"),
)

# From a light colour on, which still is no white: few samples are not none.
AMOUNTS = ListedColormap(mpl.colormaps["Blues"](np.linspace(0.18, 1, 256)))


@dataclass(frozen=True)
class Columns:
    """What a client's samples are counted by: labels, or what a mixture is of.

    Attributes
    ----------
    names : list of str
    what : str
        What one of them is.
    """

    names: list[str]
    what: str

    @classmethod
    def of(cls, view: View) -> Columns:
        """Return the distributions of a mixture by their rotation, or the labels."""
        if len(view.turns) > 1:
            return cls([f"{turn:.4g}°" for turn in view.turns], "rotation")
        return cls([str(label) for label in range(len(view.relabel))], "label")


@dataclass(frozen=True)
class Holdings:
    """What all clients hold in one round.

    Attributes
    ----------
    counts : int array of shape (clients, columns)
        Training samples by label, as the client calls it, or by distribution.
    prints : list of bytes
        A fingerprint of each client's samples, labels and rotation.
    concepts : int array of shape (clients,)
    """

    counts: IntArray
    prints: list[bytes]
    concepts: IntArray


@dataclass(frozen=True)
class Period:
    """Some rounds in which nothing changes.

    Attributes
    ----------
    number : int
        From 0.
    start, end : int
        The first round and the last.
    concepts : int
        Different true concepts.
    moved, changed : int or None
        Clients whose true concept, and whose data (samples, labels or rotation), are
        not those of the period before; None for the first.
    sizes : int array of shape (clients,)
        Training samples of each client.
    """

    number: int
    start: int
    end: int
    concepts: int
    moved: int | None
    changed: int | None
    sizes: IntArray


@dataclass(frozen=True)
class Preview:
    """The numbers of a preview.

    Attributes
    ----------
    total : int
        Rounds of the run.
    starts : list of int
        The first round of every period.
    late : list of int
        Rounds of changes that come after the run.
    periods : list of Period
        At most `ROWS`, the last one included.
    columns : Columns
        What the samples are counted by.
    counts : list of int arrays of shape (clients, columns)
        Training samples in the first, the second and the last period, or in the first
        alone if there is no other.
    sampled : list of int
        Starts of at most `ROUNDS` periods, evenly.
    history : int array of shape (clients, len(sampled))
        The true concepts in these periods.
    sizes : int array of shape (clients in the picture, len(sampled)) or None
        Training samples in these periods, where they change and no concept does.
    """

    total: int
    starts: list[int]
    late: list[int]
    periods: list[Period]
    columns: Columns
    counts: list[IntArray]
    sampled: list[int]
    history: IntArray
    sizes: IntArray | None


def evenly(count: int, most: int) -> list[int]:
    """Return at most so many of the numbers below ``count``, first and last included.

    Examples
    --------
    >>> evenly(9, 3)
    [0, 4, 8]
    """
    chosen: list[int] = np.linspace(0, count - 1, min(count, most)).round().tolist()
    return [int(number) for number in chosen]


def period_starts(changes: Sequence[int], total: int) -> list[int]:
    """Return the first round of every period of a run."""
    return sorted({1, *(round for round in changes if round <= total)})


def shown_periods(count: int) -> list[int]:
    """Return which periods the table shows: all, or the first ones and the last."""
    return list(range(count)) if count <= ROWS else [*range(ROWS - 1), count - 1]


def fingerprint(view: View) -> bytes:
    """Return what differs wherever a client's data differ."""
    state = blake2b(digest_size=16)
    arrays = (view.train_indices, view.labels, view.test_indices, view.test_labels)
    state.update(repr((view.degrees, *(len(array) for array in arrays))).encode())
    for array in arrays:
        state.update(array.tobytes())
    return state.digest()


def tally(view: View) -> IntArray:
    """Count training samples by the `Columns` of a view."""
    mixed = len(view.turns) > 1
    kinds, count = view.train_parts if mixed else view.labels, Columns.of(view).names
    return np.bincount(kinds, minlength=len(count))


def holdings(stream: Stream, round: int) -> Holdings:
    """Look at all clients in one round."""
    concepts = stream.timeline.concepts(round)
    views = (stream.view(client, round) for client in range(len(concepts)))
    counts, prints = zip(
        *((tally(view), fingerprint(view)) for view in views),
        strict=True,
    )
    return Holdings(np.stack(counts), list(prints), concepts)


def summarise(
    number: int, start: int, end: int, now: Holdings, before: Holdings | None
) -> Period:
    """Return the numbers of one period, compared with the one before."""
    moved = changed = None
    if before is not None:
        moved = int((now.concepts != before.concepts).sum())
        both = zip(now.prints, before.prints, strict=True)
        changed = sum(new != old for new, old in both)
    concepts = len(np.unique(now.concepts))
    sizes = now.counts.sum(axis=1)
    return Period(number, start, end, concepts, moved, changed, sizes)


def preview(stream: Stream, total: int) -> Preview:
    """Collect the numbers in one walk through the rounds.

    Only the periods of the table and those before them are looked at client by client.

    Parameters
    ----------
    stream : Stream
    total : int
        Rounds of the run.

    Raises
    ------
    ConfigError
        If the samples cannot be dealt as the partition wants.
    """
    starts = period_starts(stream.timeline.rounds, total)
    count, ends = len(starts), [round - 1 for round in starts[1:]] + [total]
    shown, sampled = shown_periods(count), evenly(count, ROUNDS)
    periods, counts, history = [], [], []
    before: Holdings | None = None
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if number in sampled:
            history.append(stream.timeline.concepts(start))
        now = None
        if number in shown or number + 1 in shown:
            now = holdings(stream, start)
        if now and number in shown:
            periods.append(summarise(number, start, end, now, before))
        if now and number in (0, 1, count - 1):
            counts.append(now.counts)
        before = now
    # Of two periods, the second is the last one, too.
    counts += counts[1:] if count == 2 else []
    late = [round for round in stream.timeline.rounds if round > total]
    rounds = [starts[number] for number in sampled]
    concepts = np.stack(history, axis=1)
    return Preview(
        total,
        starts,
        late,
        periods,
        Columns.of(stream.view(0, 1)),
        counts,
        rounds,
        concepts,
        changing_sizes(stream, rounds, concepts),
    )


def changing_sizes(
    stream: Stream, rounds: Sequence[int], history: IntArray
) -> IntArray | None:
    """Return the training samples of the clients in the picture, if it needs them.

    It does where no concept changes but the numbers of samples do.
    """
    if (history != history[:, :1]).any():
        return None
    rows = rows_by_concept(history)
    sizes = np.array(
        [
            [len(stream.view(client, round).train_indices) for client in rows]
            for round in rounds
        ]
    ).T
    return sizes if (sizes != sizes[:, :1]).any() else None


def rows_by_concept(history: IntArray, most: int = CLIENTS) -> IntArray:
    """Return the clients of the picture by their first concept, then the later ones.

    Sampled only when sorted: every fifth client by id would miss whole groups of those
    that a drift chooses by id modulo 10.

    Parameters
    ----------
    history : int array of shape (clients, periods)
    most : int

    Returns
    -------
    int array of shape (at most ``most``,)
    """
    order = np.lexsort(history.T[::-1])
    return order[evenly(len(order), most)]


def shares(counts: IntArray) -> FloatArray:
    """Return each client's label distribution; 0 everywhere for one without samples."""
    sums: FloatArray = np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return counts / sums


def bars(share: FloatArray, largest: float, width: int) -> str:
    """Return one block per label; a dot for a label that is not held.

    Parameters
    ----------
    share : array of shape (L,)
    largest : float
        What a full block stands for.
    width : int
        Characters per label.
    """
    levels = np.ceil(share / (largest or 1.0) * len(BLOCKS)).astype(int)
    marks = ("·" if level == 0 else BLOCKS[level - 1] for level in levels)
    return "".join(mark.ljust(width) for mark in marks)


def ruler(names: Sequence[str], width: int) -> str:
    """Return the names above their columns, as far as they have room.

    Examples
    --------
    >>> ruler([str(label) for label in range(11)], 2)
    '0         5         10'
    """
    step = 1 if len(names) <= 10 else (5 if width > 1 else 10)
    return "".join(name.ljust(step * width) for name in names[::step]).rstrip()


def log_ticks(largest: int) -> list[int]:
    """Return round numbers up to the largest one, at most eight, for a log scale.

    Examples
    --------
    >>> log_ticks(40)
    [1, 2, 5, 10, 20]
    """
    decades = [10**power for power in range(len(str(largest)))]
    fine = [digit * ten for ten in decades for digit in (1, 2, 5)]
    ticks = fine if len(decades) <= 3 else decades
    return [tick for tick in ticks if tick <= largest]


def headline(config: RunConfig) -> str:
    """Say in one line what it is."""
    names = config.names
    return (
        f"{names['dataset']}, {config.clients:,} clients, partition "
        f"{names['partition']}, drift {names['drift']}, seed {config.seed}, "
        f"{config.rounds:,} rounds"
    )


def period_table(found: Preview) -> Table:
    """Return the table of periods."""
    table = Table(title="When it changes, and for how many clients", title_style="bold")
    table.add_column("rounds", justify="right")
    table.add_column("true\nconcepts", justify="right")
    for what in ("concept", "data"):
        table.add_column(f"clients whose\n{what} changed", justify="right")
    for which in ("smallest", "median", "largest"):
        table.add_column(f"{which}\nclient", justify="right")
    left_out = len(found.starts) - len(found.periods)
    for period in found.periods:
        if left_out and period is found.periods[-1]:
            table.add_row(f"… {left_out:,} periods left out")
        sizes = (np.min(period.sizes), np.median(period.sizes), np.max(period.sizes))
        table.add_row(
            _span(period.start, period.end).split()[1],
            f"{period.concepts:,}",
            *("–" if n is None else f"{n:,}" for n in (period.moved, period.changed)),
            *(f"{size:,g}" if size < 1e5 else f"{size:,.0f}" for size in sizes),
        )
    return table


def share_tables(found: Preview) -> list[Table]:
    """Return text pictures of the first clients: at first, and after a change."""
    parts = [shares(counts[:FIRST_CLIENTS]) for counts in found.counts[:2]]
    largest = max(float(part.max()) for part in parts)
    names = found.columns.names
    width = 1 if len(names) > FIRST_CLIENTS else 1 + max(map(len, names[:10]))
    tables = []
    for period, part in zip(found.periods, parts, strict=False):
        table = Table(box=None, padding=(0, 1, 0, 0), title_justify="left")
        table.title = _span(period.start, period.end).capitalize()
        table.add_column("client", justify="right")
        table.add_column("samples", justify="right")
        table.add_column(ruler(names, width), no_wrap=True)
        for client, row in enumerate(part):
            size = f"{period.sizes[client]:,}"
            table.add_row(str(client), size, bars(row, largest, width))
        tables.append(table)
    return tables


def show(found: Preview, title: str, console: Console) -> None:
    """Print a preview."""
    console.print(title, style="bold", highlight=False, soft_wrap=True)
    for line in notes(found):
        console.print(line, style="yellow", highlight=False, soft_wrap=True)
    console.print(period_table(found))
    largest = max(float(shares(c[:FIRST_CLIENTS]).max()) for c in found.counts[:2])
    clients = min(FIRST_CLIENTS, len(found.history))
    console.print(
        f"The first {clients} clients' training samples by {found.columns.what}; "
        f"█ is {largest:.0%} of a client's samples, · none",
        highlight=False,
    )
    console.print(SideBySide(share_tables(found), padding=(0, 4)))


def notes(found: Preview) -> list[str]:
    """Return what a user should know, a line each."""
    lines = []
    if found.late:
        rounds = ", ".join(map(str, found.late[:5])) + ", …" * (len(found.late) > 5)
        lines.append(f"After the last round, so without effect: changes at {rounds}")
    if len(found.starts) == 1:
        lines.append("Nothing changes in this run")
    empty = sum(not size for size in found.periods[0].sizes)
    if empty:
        lines.append(f"{empty:,} clients have no training samples in round 1")
    return lines


def draw(found: Preview, title: str) -> Figure:
    """Draw who holds what at first and at last, and the true concepts between."""
    rows = rows_by_concept(found.history)
    maps = [found.counts[0], *found.counts[2:]]
    spans = [_span(*ends) for ends in _ends(found)]
    figure = Figure(figsize=(4.0 * len(maps) + 6.5, 7.5), layout="constrained")
    FigureCanvasAgg(figure)
    widths = [1.0] * len(maps) + [1.5]
    panels: list[Axes] = list(figure.subplots(1, len(widths), width_ratios=widths))
    _draw_counts(
        figure, panels[:-1], [part[rows] for part in maps], spans, found.columns
    )
    if found.sizes is None:
        _draw_history(figure, panels[-1], found, rows)
    else:
        _draw_sizes(figure, panels[-1], found, found.sizes)
    clients, places = len(found.history), evenly(len(rows), 20)
    some = (
        f"{len(rows):,} of {clients:,}" if len(rows) < clients else f"all {clients:,}"
    )
    panels[0].set_ylabel(f"client ({some}, sorted by true concept)", fontsize=12)
    for panel in panels:
        panel.set_yticks(places, [str(rows[place]) for place in places])
        panel.tick_params(labelsize=10)
    figure.suptitle(title, fontsize=15)
    return figure


def _draw_counts(
    figure: Figure,
    panels: list[Axes],
    counts: list[IntArray],
    spans: list[str],
    columns: Columns,
) -> None:
    labels = columns.what == "label"
    # Sizes often follow a power law; the shares of a mixture do not.
    largest = max(2, *(int(part.max()) for part in counts))
    norm = LogNorm(1, largest) if labels else Normalize(0, 1)
    maps = counts if labels else [shares(part) for part in counts]
    colours = AMOUNTS.with_extremes(bad="white")
    for panel, part, span in zip(panels, maps, spans, strict=False):
        held = np.ma.masked_equal(part, 0)
        picture = panel.imshow(
            held, cmap=colours, norm=norm, aspect="auto", interpolation="nearest"
        )
        panel.set_title(f"Who holds what in {span}", fontsize=12)
        if labels:
            panel.set_xlabel("label, as the client calls it", fontsize=12)
            panel.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        else:
            panel.set_xlabel(f"distribution, by its {columns.what}", fontsize=12)
            panel.set_xticks(range(len(columns.names)), columns.names)
    bar = figure.colorbar(picture, ax=panels, location="bottom", shrink=0.8)
    if labels:
        ticks = log_ticks(int(norm.vmax or 1))
        bar.set_ticks(ticks, labels=[f"{tick:,}" for tick in ticks])
        bar.minorticks_off()
    else:
        bar.ax.xaxis.set_major_formatter(PercentFormatter(1))
    what = "training samples of a client" if labels else "share of a client's samples"
    bar.set_label(f"{what} (white: none)", fontsize=11)


def _draw_history(figure: Figure, panel: Axes, found: Preview, rows: IntArray) -> None:
    numbers, codes = np.unique(found.history[rows], return_inverse=True)
    count = len(numbers)
    colours = ListedColormap(
        COLOURS[:count]
        if count <= len(COLOURS)
        else mpl.colormaps["viridis"](np.linspace(0, 1, count))
    )
    norm = BoundaryNorm(np.arange(count + 1) - 0.5, max(count, 2))
    values = codes.reshape(len(rows), -1)
    picture = _draw_rounds(panel, found, values, "True concept", colours, norm)
    places = evenly(count, len(COLOURS))
    bar = figure.colorbar(picture, ax=panel, location="bottom", shrink=0.8)
    bar.set_ticks(places, labels=[str(numbers[place]) for place in places])
    bar.set_label("true concept, by first appearance", fontsize=11)


def _draw_sizes(figure: Figure, panel: Axes, found: Preview, sizes: IntArray) -> None:
    norm = Normalize(0, max(1, int(sizes.max())))
    picture = _draw_rounds(panel, found, sizes, "Samples", AMOUNTS, norm)
    bar = figure.colorbar(picture, ax=panel, location="bottom", shrink=0.8)
    bar.ax.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    bar.ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    bar.set_label("training samples of a client (no concept changes)", fontsize=11)


def _draw_rounds(
    panel: Axes,
    found: Preview,
    values: IntArray,
    what: str,
    colours: Colormap,
    norm: Normalize,
) -> QuadMesh:
    """Draw a value of each client over the rounds, with their changes."""
    picture = panel.pcolormesh(
        np.array([*found.sampled, found.total + 1]) - 0.5,
        np.arange(len(values) + 1) - 0.5,
        values,
        cmap=colours,
        norm=norm,
        rasterized=True,
    )
    panel.invert_yaxis()
    changes = found.starts[1:]
    _draw_changes(panel, np.array(changes) - 0.5)
    times = "1 change" if len(changes) == 1 else f"{len(changes):,} changes"
    # Above the marks, where there are any.
    space = 12.0 if len(changes) > LINES else None
    panel.set_title(f"{what} of each client ({times})", fontsize=12, pad=space)
    panel.set_xlabel("round", fontsize=12)
    panel.xaxis.set_major_locator(MaxNLocator(10, integer=True))
    return picture


def _draw_changes(panel: Axes, places: FloatArray) -> None:
    """Draw a line at each change; where there are many, a mark above the picture."""
    where: Any = {"transform": panel.get_xaxis_transform(), "clip_on": False}
    if len(places) > LINES:
        panel.vlines(places, 1.002, 1.015, color="black", linewidth=0.6, **where)
        return
    width = float(np.clip(20 / max(1, len(places)), 0.5, 1.2))
    panel.vlines(places, 0, 1, color="white", linewidth=2.5 * width, **where)
    panel.vlines(places, 0, 1, color="black", linewidth=width, **where)


def _ends(found: Preview) -> list[tuple[int, int]]:
    """Return the rounds of the first period and of the last."""
    edges = [(one, two - 1) for one, two in pairwise([*found.starts, found.total + 1])]
    return [edges[0], edges[-1]]


def _span(start: int, end: int) -> str:
    return f"round {start:,}" if start == end else f"rounds {start:,}–{end:,}"


def write(figure: Figure, path: Path) -> None:
    """Write a picture.

    Raises
    ------
    ConfigError
        If the file cannot be written.
    """
    metadata = FORMATS[path.suffix.lower()]
    try:
        with mpl.rc_context({"svg.hashsalt": "cfl-flower"}):
            figure.savefig(path, dpi=120, metadata=metadata)
    except OSError as error:
        raise ConfigError(
            f"--output={path} cannot be written ({error.strerror}); name another file"
        ) from error


class _Parser(argparse.ArgumentParser):
    """Whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        """Raise a `ConfigError`."""
        raise ConfigError(f"{message}; see --help")


def parse_arguments(arguments: Sequence[str]) -> tuple[list[str], Path]:
    """Return the overrides and the picture's path.

    Raises
    ------
    ConfigError
    """
    parser = _Parser(
        prog="python -m simulations.preview",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("overrides", nargs="*", help="Hydra's overrides, key=value")
    parser.add_argument("--output", type=Path, default=Path("preview.png"))
    found: Any = parser.parse_intermixed_args(list(arguments))
    output: Path = found.output.expanduser()
    known = output.suffix.lower() in FORMATS
    require(known, "--output", output, f"a name that ends in {', '.join(FORMATS)}")
    ok = output.parent.is_dir() and not output.is_dir()
    require(ok, "--output", output, "a file in an existing folder")
    return list(found.overrides), output


def run(arguments: Sequence[str]) -> None:
    """Print and draw a preview.

    Raises
    ------
    CflError
    """
    overrides, output = parse_arguments(arguments)
    config = compose_config(overrides)
    found, title = preview(open_stream(config), config.rounds), headline(config)
    console = make_console()
    show(found, title, console)
    write(draw(found, title), output)
    some = f" ({CLIENTS} of {config.clients:,} clients)"
    console.print(
        f"saved in {output}{some if config.clients > CLIENTS else ''}", soft_wrap=True
    )


def main(arguments: Sequence[str]) -> int:
    """Run the door and return the exit code."""
    try:
        run(arguments)
    except CflError as error:
        return report(error)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
