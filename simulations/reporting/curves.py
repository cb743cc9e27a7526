"""Charts that compare methods: over the rounds or the bytes, and by their scores.

A line is the mean over a method's seeds. A script may name one method, `ISOLATED`,
which these charts then set off from others.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from cfl_flower.analysis.comparison import Rows
from cfl_flower.analysis.leads import half_width
from simulations.reporting.charts import (
    GREY,
    HALF,
    INK,
    Chart,
    Spec,
    layer,
    number,
    rounds_axis,
    tooltip_of,
)
from simulations.reporting.figures import MOST_BANDS, Line, Lines

Row = dict[str, Any]
COLOUR: Spec = {"field": "colour", "type": "nominal", "scale": None}
EACH: Spec = {"field": "method", "type": "nominal"}
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


def traffic(lines: Lines) -> Chart:
    """Draw the accuracy over the bytes sent so far, both ways."""
    rows = _rows(lines, "accuracy", percent=True)
    span = (0.0, max(row["megabytes"] for row in rows))
    x = number("megabytes", span, title="megabytes sent, up and down", grid=False)
    y = {"title": "accuracy over all samples", "format": ".0%", "tickMinStep": 0.01}
    return Chart(rows, _draw(lines, rows, x, y), 330, params=[ISOLATED])


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
    for server_round, mean, spread, sent in zip(
        rounds, means, spreads, line.sent(rounds), strict=True
    ):
        parts = [mean, spread] if several else [mean]
        shown = " ± ".join(pattern.format(unit * part) for part in parts)
        yield {
            "method": line.label,
            "round": int(server_round),
            "mean": _rounded(mean),
            "low": _rounded(mean - spread),
            "high": _rounded(mean + spread),
            "megabytes": _rounded(sent),
            "shown": shown + "%" * percent,
            "sent": f"{sent:.2f} MB",
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
    colours, patterns = zip(
        *((line.colour, line.dashes) for line in lines), strict=True
    )
    colour, dashes = (
        {"field": "method", "scale": {"domain": names, "range": each}, "legend": None}
        for each in (colours, patterns)
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
        name = {"opacity": set_off(usual, off=0.6), "color": {**COLOUR, "field": "ink"}}
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
    titles = {
        "method": "method",
        "round": "round",
        "shown": what,
        "sent": "sent so far",
    }
    # A cell around each point is what is met, and has the point as its own datum. Vega-
    # Lite 6.4 forgets that of fields of text (its pull request 9707).
    pairs = (
        f"{json.dumps(t)}: (datum.datum || datum).{key}" for key, t in titles.items()
    )
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


SCORES: Mapping[str, tuple[str, float]] = {
    "final": ("Accuracy at the end, in %", 100),
    "mean": ("Mean accuracy over the rounds, in %", 100),
    "rounds_to_recover": ("Rounds to recover from a drift", -1),
}
"""Numbers of a score: label, and factor, negative where fewer are better."""


def dots(lines: Lines, rows: Rows, key: str) -> Chart | None:
    """Draw a score of each method, the best on top; None if no run has it.

    A dot is the mean over seeds, small ones are the seeds, and a bar is the 95%
    interval of the mean (Student's t), of three seeds or more.
    """
    title, factor = SCORES[key]
    found: list[Row] = []
    seeds: list[Row] = []
    for line in lines:
        scores = [each.score for each in rows[line.label]]
        known = [
            abs(factor) * v for v in (getattr(s, key) for s in scores) if v is not None
        ]
        missed = sum(score.never_recovered for score in scores)
        entry: Row = {"method": line.label, "colour": line.colour}
        entry["shown"] = "-"
        if missed and factor < 0:
            entry["shown"] = f"{len(known)} of {len(scores)}" if known else "never"
        if known and len(known) == len(scores):
            half = half_width(known) or 0.0
            mean = float(np.mean(known))
            low = max(mean - half, 0.0)
            entry |= {"mean": mean, "low": low, "high": mean + half}
            entry["shown"] = f"{mean:.1f}"
        found.append(entry)
        seeds += [{**entry, "mean": value} for value in known]
    done = [entry for entry in found if "mean" in entry]
    if not done:
        return None
    found.sort(key=lambda entry: -factor * entry.get("mean", -factor * inf))
    order = [entry["method"] for entry in found]
    ends = [entry[key] for entry in done for key in ("low", "high")]
    ends += [entry["mean"] for entry in seeds]
    room = max(0.05 * (max(ends) - min(ends)), 0.5)
    # No share is more than all.
    highest = max(ends) + room if factor < 0 else min(max(ends) + room, factor)
    span = (max(min(ends) - room, 0.0), highest)
    axis = {"title": None, "ticks": False, "domain": False, "labelLimit": 130}
    y = {**EACH, "scale": {"domain": order}, "axis": {**axis, "grid": True}}
    x = number("mean", span, title=None, grid=False, tickCount=5, tickMinStep=1)
    shared = {"y": y, "color": COLOUR, "opacity": set_off()}
    bar = {**shared, "x": {**x, "field": "low"}, "x2": {"field": "high"}}
    faint = {**shared, "x": x, "opacity": set_off("true", 0.45, 0.1)}
    dot = {**shared, "x": x, "tooltip": tooltip_of(method="method", shown=title)}
    value = {"y": y, "x": {"value": "width"}, "text": {"field": "shown"}}
    layers = [
        layer("rule", bar, done, strokeWidth=2, clip=True),
        layer("point", faint, seeds, filled=True, size=22),
        layer("point", dot, done, filled=True, size=80),
        layer("text", value, found, align="left", dx=6, fontSize=11),
    ]
    return Chart([], layers, 30 + 20 * len(found), params=[ISOLATED], width=HALF)
