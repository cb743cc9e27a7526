"""Charts that compare methods over the rounds.

A line is the mean over a method's seeds. A script may name one method, `ISOLATED`,
which these charts then set off from others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from simulations.reporting.charts import (
    GREY,
    HALF,
    INK,
    Chart,
    Spec,
    layer,
    number,
    rounds_axis,
)
from simulations.reporting.figures import MOST_BANDS, Line, Lines

Row = dict[str, Any]
ISOLATED: Spec = {"name": "isolated", "value": None}
MOST_LEADERS = 3
"""Methods in full colour where there are more than `MOST_BANDS`."""
MOST_MARKS = 40
"""Drifts that are marked in a picture."""
GAP = 0.06
"""Between the labels of lines, as a share of the axes' height."""
MARGIN = 0.04
"""Above and below the lines, as a share of what they span."""


def find_leaders(lines: Lines) -> list[str]:
    """Return the methods that are in full colour: all if there are few, else the best.

    By their accuracy at the end.
    """
    rivals = [line for line in lines if not line.is_reference]
    if len(rivals) > MOST_BANDS:
        rivals.sort(key=lambda line: -line.series("accuracy")[1][:, -1].mean())
        rivals = rivals[:MOST_LEADERS]
    return [line.label for line in rivals]


def set_off(usual: str = "true", on: float = 1.0, off: float = 0.35) -> Spec:
    """Return the opacity of marks: of the isolated method, else of the usual ones."""
    test = f"isolated === null ? {usual} : datum.method === isolated"
    return {"condition": {"test": test, "value": on}, "value": off}


def curves(
    lines: Lines,
    key: str,
    label: str,
    percent: bool = False,
    height: int = 300,
    width: int = HALF,
) -> Chart:
    """Draw one number over the rounds: each method's mean over seeds, and its spread.

    Of many methods some stand out, or the isolated one.

    The band is a standard deviation on either side; grey lines stand before
    the rounds whose tests are the first on changed data, if all runs have the same.
    """
    rows = _rows(lines, key, percent)
    done = [row["round"] for row in rows]
    last = max(done)
    changes = {tuple(run.tested_drifts) for line in lines for run in line.runs}
    drifts = next(iter(changes)) if len(changes) == 1 else ()
    if len(drifts) > MOST_MARKS:
        drifts = ()
    # As wide as a line, on any paper.
    thin = (last - min(done)) / 300
    shades = [{"round": each - 0.5, "end": each - 0.5 + thin} for each in drifts]
    x = rounds_axis(min(done), last)
    around = {"x": x, "x2": {"field": "end"}}
    shaded = layer("rect", around, shades, color=GREY, opacity=0.4)
    y: Row = {"title": label}
    if percent:
        y |= {"format": ".0%", "tickMinStep": 0.01}
    elif key == "num_clusters":
        y |= {"format": "d", "tickMinStep": 1}
    layers = [shaded, *_draw(lines, rows, x, y)]
    return Chart(rows, layers, height, params=[ISOLATED], width=width)


def _rows(lines: Lines, key: str, percent: bool) -> list[Row]:
    """Return what is drawn, in the order of drawing.

    What stands out is on top of the others; references are last, because their dashes
    hide no line below them.
    """
    leaders = find_leaders(lines)
    behind = sorted(lines, key=lambda line: (line.is_reference, line.label in leaders))
    return [row for line in behind for row in _measured(line, key, percent)]


def _measured(line: Line, key: str, percent: bool = False) -> Iterator[Row]:
    """Yield a method's mean and spread in each round, and what tells of them."""
    rounds, values = line.series(key)
    means = values.mean(axis=0)
    several = len(values) > 1
    spreads = values.std(axis=0, ddof=1) if several else np.zeros(len(rounds))
    pattern, unit = ("{:.1f}", 100) if percent else ("{:.4g}", 1)
    for server_round, mean, spread in zip(rounds, means, spreads, strict=True):
        parts = [mean, spread] if several else [mean]
        shown = " ± ".join(pattern.format(unit * part) for part in parts)
        yield {
            "method": line.label,
            "round": int(server_round),
            "mean": _rounded(mean),
            "low": _rounded(mean - spread),
            "high": _rounded(mean + spread),
            "shown": shown + "%" * percent,
        }


def _rounded(value: float) -> float:
    return float(f"{value:.6g}")


def _draw(lines: Lines, rows: Sequence[Row], x: Spec, axis: Row) -> list[Spec]:
    """Return bands, lines, the names at their ends, and what tells their values."""
    low = min(row["low"] for row in rows)
    high = max(row["high"] for row in rows)
    room = MARGIN * (high - low) or 0.5
    domain = (low - room, high + room)
    y = number("mean", domain, **axis)
    names = [line.label for line in lines]
    ranges = [line.colour for line in lines], [line.dashes for line in lines]
    colour, dashes = (
        {"field": "method", "scale": {"domain": names, "range": each}, "legend": None}
        for each in ranges
    )
    shown = [line.label for line in lines if line.is_reference]
    usual = f"indexof({find_leaders(lines) + shown}, datum.method) >= 0"
    place = {"x": x, "y": y, "color": colour}
    style = {"color": colour, "strokeDash": dashes, "opacity": set_off(usual)}
    found = [layer("line", {**place, **style}, strokeWidth=2)]
    if any(len(line.runs) > 1 for line in lines):
        few = "true" if len(lines) <= MOST_BANDS else "false"
        band = {"x": x, "y": number("low", domain), "y2": {"field": "high"}}
        band |= {"color": colour, "opacity": set_off(few, 0.18, 0)}
        found.insert(0, layer("area", band, opacity=0.15))
    inks = {line.label: INK.get(line.colour, line.colour) for line in lines}
    ends = {row["method"]: {**row, "ink": inks[row["method"]]} for row in rows}
    if len(ends) > 1:
        ink = {"field": "ink", "type": "nominal", "scale": None}
        name = {"opacity": set_off(usual, off=0.6), "color": ink}
        found += _label(list(ends.values()), x, domain, style, name)
    return [*found, _tell(place, axis["title"])]


def _label(
    ends: Sequence[Row], x: Spec, domain: tuple[float, float], style: Spec, text: Spec
) -> list[Spec]:
    """Name each line where it ends, beside a piece of it, the names apart."""
    low, high = domain
    ends = sorted(ends, key=lambda end: end["mean"])
    heights = [(end["mean"] - low) / (high - low) for end in ends]
    for end, place in zip(ends, spread_out(heights, GAP), strict=True):
        end["place"] = low + place * (high - low)
    y = number("mean", domain)
    right = {"value": "width"}
    there = {"x": right, "y": {**y, "field": "place"}}
    leader = {"x": x, "y": y, "x2": right, "y2": {"field": "place"}}
    leader |= {key: style[key] for key in ("color", "opacity")}
    sample = {**there, "x2": right, **style}
    name = {**there, **text, "text": {"field": "method"}}
    return [
        layer("rule", leader, ends, x2Offset=10, strokeWidth=1, strokeDash=[1, 2]),
        layer("rule", sample, ends, xOffset=10, x2Offset=26, strokeWidth=2),
        layer("text", name, ends, align="left", baseline="middle", dx=30),
    ]


def _tell(place: Spec, what: str) -> Spec:
    """Return a point that appears where a pointer is nearest, with its values."""
    hover = {"type": "point", "on": "pointerover", "clear": "pointerout"}
    seen = {"condition": {"param": "hover", "empty": False, "value": 1}, "value": 0}
    titles = {"method": "method", "round": "round", "shown": what}
    # A cell around each point is what is met, and has the point as its own datum. Vega-
    # Lite 6.4 forgets that of fields of text (its pull request 9707).
    pairs = (f"{json.dumps(t)}: (datum.datum || datum).{k}" for k, t in titles.items())
    tooltip = {"value": {"expr": f"{{{', '.join(pairs)}}}"}}
    points = {**place, "opacity": seen, "tooltip": tooltip}
    return {
        **layer("point", points, filled=True, size=70),
        "params": [{"name": "hover", "select": {**hover, "nearest": True}}],
    }


def spread_out(heights: Sequence[float], gap: float) -> list[float]:
    """Move ascending heights as far apart as a gap, and as little as that takes.

    They stay between 0 and 1 as far as there is room.

    Examples
    --------
    >>> spread_out([0.1, 0.5, 0.5], 0.2)
    [0.1, 0.4, 0.6]
    """
    from scipy.optimize import isotonic_regression  # noqa: PLC0415 - slow to import

    steps = gap * np.arange(len(heights))
    # Heights less their steps must not fall: the nearest such sequence is isotonic.
    found = isotonic_regression(np.array(heights) - steps).x
    found = np.clip(found, 0.0, max(0.0, 1.0 - steps[-1]))
    return [round(float(each), 6) for each in found + steps]
