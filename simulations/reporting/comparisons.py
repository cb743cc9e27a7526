"""The charts of a page that compare methods: over the rounds, and by their scores.

A script may name one method, `ISOLATED`, which these charts then set off from others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from cfl_flower.analysis.comparison import Rows
from cfl_flower.analysis.leads import find_lead
from simulations.reporting import figures
from simulations.reporting.charts import (
    HALF,
    INK,
    Chart,
    Spec,
    layer,
    number,
    tooltip_of,
)
from simulations.reporting.figures import MOST_BANDS, NAMES, Lines

COLOUR: Spec = {"field": "colour", "type": "nominal", "scale": None}
EACH: Spec = {"field": "method", "type": "nominal"}
PERCENT: Spec = {"format": ".0%", "tickMinStep": 0.01}
ISOLATED: Spec = {"name": "isolated", "value": None}
MOST_LEADERS = 3
"""Methods in full colour where there are more than `MOST_BANDS`."""
Row = dict[str, Any]


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


def over_rounds(
    lines: Lines,
    key: str,
    title: str,
    percent: bool = False,
    height: int = 300,
    width: int = HALF,
) -> Chart:
    """Draw `curves` for a page: of many methods some stand out, or the isolated one."""
    leaders = find_leaders(lines)
    # What is drawn last is on top.
    behind = sorted(lines, key=lambda line: (line.label in leaders, line.is_reference))
    drawn = figures.curves(behind, key, title, percent)
    shown = leaders + [line.label for line in lines if line.is_reference]
    few = "true" if len(lines) <= MOST_BANDS else "false"
    inks = {line.label: INK.get(line.colour, line.colour) for line in lines}
    layers = [dict(each) for each in drawn.layers]
    for each in layers:
        kind = each["mark"]["type"]
        encoding = dict(each["encoding"])
        if kind == "area":
            encoding["opacity"] = set_off(few, 0.18, 0)
        if kind in ("line", *NAMES):
            off = 0.6 if kind == "text" else 0.35
            usual = f"indexof({shown}, datum.method) >= 0"
            encoding["opacity"] = set_off(usual, off=off)
        if kind == "text":
            rows = each["data"]["values"]
            named = [{**row, "ink": inks[row["method"]]} for row in rows]
            each["data"] = {"values": named}
            encoding["color"] = {**COLOUR, "field": "ink"}
        if percent and "axis" in encoding.get("y", {}):
            encoding["y"] = {**encoding["y"], "axis": {"title": title, **PERCENT}}
        each["encoding"] = encoding
    return replace(drawn, layers=layers, height=height, width=width, params=[ISOLATED])


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
            estimate = find_lead((value, 0.0) for value in known)
            half = (estimate.half_width if estimate else None) or 0.0
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
