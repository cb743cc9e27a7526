"""The charts of a page that compare methods: over the rounds, at the end, and by cost.

A script may name one method, `ISOLATED`, which these charts then set off from others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from cfl_flower.analysis.comparison import Rows
from cfl_flower.analysis.leads import find_lead
from simulations.reporting import figures
from simulations.reporting.charts import (
    GREY,
    HALF,
    INK,
    PAPER,
    Chart,
    Spec,
    layer,
    number,
    tooltip_of,
)
from simulations.reporting.figures import MOST_BANDS, NAMES, Line, Lines, spread_out
from simulations.reporting.findings import BOUNDS

COLOUR: Spec = {"field": "colour", "type": "nominal", "scale": None}
EACH: Spec = {"field": "method", "type": "nominal"}
FEW: Spec = {"title": None, "tickCount": 3}
ROUNDS: Spec = {"format": "d", "grid": False}
PERCENT: Spec = {"format": ".0%", "tickMinStep": 0.01}
ISOLATED: Spec = {"name": "isolated", "value": None}
MOST_LEADERS = 3
"""Methods in full colour where there are more than `MOST_BANDS`."""
LINE_OF_TEXT = 16
"""Pixels between the names of dots."""
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


def against(line: Line, reference: Line, main: Chart) -> Chart:
    """Draw the accuracy of a method beside that of a reference, small, as the main."""
    drawn = over_rounds([reference, line], "accuracy", "", True, 150, 215)
    domain = main.layers[-1]["encoding"]["y"]["scale"]
    kept = [each for each in drawn.layers if each["mark"]["type"] not in NAMES]
    for each in kept:
        encoding = each["encoding"]
        sides = {"x": {"axis": {**ROUNDS, **FEW}}}
        if "y" in encoding:
            sides["y"] = {"scale": domain, "axis": {**PERCENT, **FEW}}
        for side, own in sides.items():
            encoding[side] = {**encoding[side], **own}
    return replace(drawn, layers=kept)


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


def cost(lines: Lines, rows: Rows) -> Chart | None:
    """Draw the accuracy at the end over what was sent, and who is dominated by nobody.

    None unless any method sends anything.
    """
    senders = []
    for line in lines:
        scores = [each.score for each in rows[line.label]]
        ends = [score.final for score in scores if score.final is not None]
        sent = float(np.mean([s.bytes_up + s.bytes_down for s in scores])) / 1e6
        if not sent or len(ends) < len(scores):
            continue
        entry: Row = {"method": line.label, "colour": line.colour}
        entry["ink"] = INK.get(line.colour, line.colour)
        entry |= {"sent": sent, "said": f"{sent:.1f} MB"}
        entry |= {"mean": float(np.mean(ends)), "shown": f"{100 * np.mean(ends):.1f}%"}
        entry["bound"] = line.runs[0].strategy in BOUNDS
        senders.append(entry)
    if not senders:
        return None
    front = find_front(senders)
    sizes = [entry["sent"] for entry in senders]
    room = 0.15 * (max(sizes) - min(sizes)) or 0.15 * max(sizes)
    span = (max(min(sizes) - room, 0.0), max(sizes) + room)
    axis = {"title": "megabytes sent, up and down", "grid": False}
    x = number("sent", span, **axis)
    means = [entry["mean"] for entry in senders]
    room = 0.08 * (max(means) - min(means)) or 0.05
    domain = (min(means) - room, min(max(means) + room, 1.0))
    y = number("mean", domain, title="accuracy at the end", **PERCENT)
    height = 300
    for entry in senders:
        entry["across"] = float(np.interp(entry["sent"], span, (0, 1)))
    _place_names(senders, domain, LINE_OF_TEXT / (height - 50))
    told = tooltip_of(method="method", said="sent", shown="accuracy at the end")
    shown = set_off()
    place = {"x": x, "y": y, "opacity": shown}
    dot = {**place, "color": COLOUR, "tooltip": told}
    name = {**place, "y": {**y, "field": "place"}, "text": {"field": "method"}}
    name |= {"color": {**COLOUR, "field": "ink"}}
    others = [entry for entry in senders if entry not in front]
    edge = {**front[-1], "sent": span[1]}
    steps = {"interpolate": "step-after", "color": GREY, "strokeWidth": 1}
    layers = [
        layer("line", {"x": x, "y": y}, [*front, edge], **steps),
        layer("point", dot, front, filled=True, size=130),
        layer("point", dot, others, size=70, strokeWidth=2),
        layer("text", name, senders, align="left", baseline="bottom", dx=8, dy=-2),
    ]
    return Chart([], layers, height, params=[ISOLATED], width=PAPER)


def find_front(senders: Sequence[Row]) -> list[Row]:
    """Return the methods than which none is both cheaper and more accurate.

    Those that know more than a method can are no rivals.

    Examples
    --------
    >>> entries = [(1, 0.5), (2, 0.4), (3, 0.9)]
    >>> rows = [{"sent": s, "mean": m, "bound": False} for s, m in entries]
    >>> [row["sent"] for row in find_front(rows)]
    [1, 3]
    """
    found: list[Row] = []
    # What differs by less than a hundredth costs the same.
    for entry in sorted(senders, key=lambda e: (float(f"{e['sent']:.1e}"), -e["mean"])):
        if not entry["bound"] and (not found or entry["mean"] > found[-1]["mean"]):
            found.append(entry)
    return found or list(senders)


def _place_names(
    senders: Sequence[Row], domain: tuple[float, float], gap: float
) -> None:
    """Move the names of methods that sent much the same apart."""
    low, high = domain
    columns: dict[int, list[Row]] = {}
    for entry in sorted(senders, key=lambda entry: float(entry["mean"])):
        columns.setdefault(round(6 * entry["across"]), []).append(entry)
    for column in columns.values():
        heights = [(entry["mean"] - low) / (high - low) for entry in column]
        for entry, place in zip(column, spread_out(heights, gap), strict=True):
            entry["place"] = low + place * (high - low)
