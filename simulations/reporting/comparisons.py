"""The charts of a page that compare methods: over the rounds, at the end, and by cost.

A script may name one method, `ISOLATED`, which these charts then set off from others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf
from typing import Any

import numpy as np

from cfl_flower.analysis.comparison import Rows
from cfl_flower.analysis.drift_metrics import Score
from cfl_flower.analysis.leads import find_lead
from simulations.reporting.charts import (
    GREY,
    HALF,
    PAPER,
    Chart,
    Spec,
    ink,
    layer,
    number,
    rounds_axis,
    tooltip_of,
)
from simulations.reporting.figures import MOST_MARKS, Line, Lines, spread_out
from simulations.reporting.findings import BOUNDS

PERCENT: Spec = {"format": ".0%", "tickMinStep": 0.01}
ISOLATED: Spec = {"name": "isolated", "value": None}
MOST_BANDS = 4
"""Methods whose spreads are shown together; of more, that of the isolated one."""
MOST_LEADERS = 3
"""Methods in full colour where there are more than `MOST_BANDS`."""
LINE_OF_TEXT = 16
"""Pixels between the names of lines."""
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


def set_off(usual: str, on: float = 1.0, off: float = 0.35) -> Spec:
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
    domain: tuple[float, float] | None = None,
) -> Chart:
    """Draw one number over the rounds: each method's mean over seeds, and its spread.

    The band is a standard deviation on either side; rounds whose tests are the first on
    changed data are shaded if they are the same for all runs. ``domain`` is that of a
    small chart, whose lines have no names.
    """
    leaders = find_leaders(lines)
    # What is drawn last is on top.
    behind = sorted(lines, key=lambda line: (line.label in leaders, line.is_reference))
    rows = [
        row
        for line in behind
        for row in _measured(line, key, percent, line.label in leaders)
    ]
    small = domain is not None
    low, high = domain or _domain(rows, percent, bands=len(lines) <= MOST_BANDS)
    first = min(row["round"] for row in rows)
    last = max(row["round"] for row in rows)
    x = rounds_axis(first, last)
    axis: Spec = {"title": title}
    if percent:
        axis |= PERCENT
    if key == "num_clusters":
        axis |= {"format": "d", "tickMinStep": 1}
    if small:
        axis |= {"title": None, "tickCount": 3}
        x["axis"] |= {"title": None, "tickCount": 3}
    y = number("mean", (low, high), **axis)
    marks = _lines(behind, rows, x, y)
    if not small and len(lines) > 1:
        height = max(height, LINE_OF_TEXT * len(lines) + 60)
        marks += _names(behind, rows, x, (low, high), LINE_OF_TEXT / (height - 50))
    layers = [_shade(lines, x, last), *marks, _tell({"x": x, "y": y}, title)]
    return Chart(rows, layers, height, params=[ISOLATED], width=width)


def _domain(
    rows: Sequence[Row], percent: bool, bands: bool = True
) -> tuple[float, float]:
    """Return what axis the means of rows fit on, or their bands."""
    low = min(row["low" if bands else "mean"] for row in rows)
    high = max(row["high" if bands else "mean"] for row in rows)
    room = 0.04 * (high - low) or 0.05 * abs(high) or 0.5
    if percent:
        return max(low - room, 0.0), min(high + room, 1.0)
    return low - room, high + room


def _measured(line: Line, key: str, percent: bool, leads: bool) -> Iterator[Row]:
    """Yield a method's mean and spread in each round, and what tells of them."""
    rounds, values = line.series(key)
    pattern = "{:.1f}%" if percent else "{:.4g}"
    scale = 100 if percent else 1
    for server_round, seeds in zip(rounds, values.T, strict=True):
        mean = float(seeds.mean())
        spread = float(seeds.std(ddof=1)) if len(seeds) > 1 else 0.0
        shown = pattern.format(scale * mean)
        if len(seeds) > 1:
            shown += f" ± {scale * spread:.2g}"
        yield {
            "method": line.label,
            "colour": line.colour,
            "leads": leads or line.is_reference,
            "round": int(server_round),
            "mean": round(mean, 5),
            "low": round(mean - spread, 5),
            "high": round(mean + spread, 5),
            "shown": shown,
        }


def find_shades(lines: Lines) -> Sequence[int]:
    """Return the rounds whose tests are the first on changed data.

    None if those are not the same for all runs, or too many to be told apart.
    """
    changes = {tuple(run.tested_drifts) for line in lines for run in line.runs}
    drifts = next(iter(changes)) if len(changes) == 1 else ()
    return drifts if len(drifts) <= MOST_MARKS else ()


def _shade(lines: Lines, x: Spec, last: float) -> Spec:
    shades = [
        {"round": server_round - 0.5, "end": min(server_round + 0.5, last)}
        for server_round in find_shades(lines)
    ]
    around = {"x": x, "x2": {"field": "end"}}
    return layer("rect", around, shades, color=GREY, opacity=0.3)


COLOUR: Spec = {"field": "colour", "type": "nominal", "scale": None}
EACH: Spec = {"field": "method", "type": "nominal"}


def _lines(lines: Lines, rows: Sequence[Row], x: Spec, y: Spec) -> list[Spec]:
    """Return a line for each method, and the bands of a few."""
    names = [line.label for line in lines]
    patterns = {"domain": names, "range": [line.dashes for line in lines]}
    shared = {"x": x, "color": COLOUR, "detail": EACH}
    few = len(lines) <= MOST_BANDS
    found = []
    if any(row["high"] > row["low"] for row in rows):
        bounds = {"y": {**y, "field": "low"}, "y2": {"field": "high"}}
        shown = set_off("true" if few else "false", 0.18, 0)
        found.append(layer("area", {**shared, **bounds, "opacity": shown}, clip=True))
    dashes = {**EACH, "scale": patterns, "legend": None}
    line = {**shared, "y": y, "strokeDash": dashes, "opacity": set_off("datum.leads")}
    return [*found, layer("line", line, strokeWidth=2)]


def _names(
    lines: Lines, rows: Sequence[Row], x: Spec, domain: tuple[float, float], gap: float
) -> list[Spec]:
    """Name each line where it ends, in its colour, the names apart from each other."""
    low, high = domain
    ends = [dict(row) for row in {row["method"]: row for row in rows}.values()]
    ends.sort(key=lambda end: float(end["mean"]))
    heights = [(end["mean"] - low) / (high - low) for end in ends]
    for end, place in zip(ends, spread_out(heights, gap), strict=True):
        end["place"] = low + place * (high - low)
        end["ink"] = ink(end["colour"])
    y = number("mean", domain)
    right = {"value": "width"}
    leader = {"x": x, "y": y, "x2": right, "y2": {"field": "place"}, "color": COLOUR}
    name = {
        "x": right,
        "y": {**y, "field": "place"},
        "text": {"field": "method"},
        "color": {**COLOUR, "field": "ink"},
        "opacity": set_off("datum.leads", 1, 0.6),
    }
    faint = {"opacity": set_off("datum.leads", 0.7)}
    return [
        layer("rule", {**leader, **faint}, ends, x2Offset=14, strokeWidth=1),
        layer("text", name, ends, align="left", baseline="middle", dx=17, limit=130),
    ]


def _tell(place: Spec, what: str) -> Spec:
    """Return a point that appears where a pointer is nearest, with its values."""
    hover = {"type": "point", "on": "pointerover", "clear": "pointerout"}
    seen = {"condition": {"param": "hover", "empty": False, "value": 1}, "value": 0}
    # A cell around each point is what is met, and has the point as its own datum. Vega-
    # Lite 6.4 forgets that of fields of text (its pull request 9707).
    titles = {"method": "method", "round": "round", "shown": what}
    pairs = [
        f"'{title}': (datum.datum || datum).{key}" for key, title in titles.items()
    ]
    tooltip = {"value": {"expr": f"{{{', '.join(pairs)}}}"}}
    points = {**place, "color": COLOUR, "opacity": seen, "tooltip": tooltip}
    return {
        **layer("point", points, filled=True, size=70),
        "params": [{"name": "hover", "select": {**hover, "nearest": True}}],
    }


def against(line: Line, reference: Line, domain: tuple[float, float]) -> Chart:
    """Draw the accuracy of a method beside that of a reference, in a small chart."""
    pair = [line] if line is reference else [reference, line]
    return over_rounds(pair, "accuracy", "accuracy", True, 150, 215, domain)


def accuracies(lines: Lines) -> tuple[float, float]:
    """Return what axis the accuracies of all methods fit on."""
    return _domain(
        [row for line in lines for row in _measured(line, "accuracy", True, True)], True
    )


SCORES: Mapping[str, tuple[str, float, Callable[[Score], float | None]]] = {
    "final": ("Accuracy at the end, in %", 100, lambda score: score.final),
    "mean": ("Mean accuracy over the rounds, in %", 100, lambda score: score.mean),
    "recovery": (
        "Rounds to recover from a drift",
        1,
        lambda score: score.rounds_to_recover,
    ),
}
"""What methods are sorted by: label, factor, and the number of a score."""


def dots(lines: Lines, rows: Rows, key: str) -> Chart | None:
    """Draw a score of each method, the best on top; None if no run has it.

    A dot is the mean over seeds, small ones are the seeds, and a bar is the 95%
    interval of the mean (Student's t), of three seeds or more.
    """
    title, factor, measure = SCORES[key]
    fewer_is_better = key == "recovery"
    found = []
    seeds = []
    for line in lines:
        values = [measure(each.score) for each in rows[line.label]]
        known = [factor * value for value in values if value is not None]
        entry: Row = {"method": line.label, "colour": line.colour, "shown": "never"}
        if known and len(known) == len(values):
            estimate = find_lead((value, 0.0) for value in known)
            half = (estimate.half_width if estimate else None) or 0.0
            mean = float(np.mean(known))
            # No share is more than all.
            most = inf if fewer_is_better else factor
            entry |= {"mean": mean, "low": mean - half, "high": min(mean + half, most)}
            entry["shown"] = f"{mean:.1f}"
        elif not any(each.score.never_recovered for each in rows[line.label]):
            entry["shown"] = "-"
        found.append(entry)
        seeds += [{**entry, "mean": value} for value in known if len(values) > 1]
    if not any("mean" in entry for entry in found):
        return None
    missing = inf if fewer_is_better else -inf
    found.sort(key=lambda entry: float(entry.get("mean", missing)))
    if not fewer_is_better:
        found.reverse()
    known = [
        v
        for entry in found
        for v in (entry.get("low"), entry.get("high"))
        if v is not None
    ]
    known += [each["mean"] for each in seeds]
    room = 0.5 if fewer_is_better else 0.05 * (max(known) - min(known)) or 0.5
    span = (min(known) - room, max(known) + room)
    order = [entry["method"] for entry in found]
    label = {"title": None, "ticks": False, "domain": False, "labelLimit": 130}
    y = {
        **EACH,
        "sort": order,
        "axis": {**label, "grid": True},
        "scale": {"domain": order},
    }
    x = number("mean", span, title=None, grid=False, tickCount=5, format="~r")
    if fewer_is_better:
        x["axis"]["tickMinStep"] = 1

    color = {"y": y, "color": COLOUR}
    shown = set_off("true")
    faint = {**color, "x": x, "opacity": set_off("true", 0.45, 0.1)}
    done = [entry for entry in found if "mean" in entry]
    bar = {
        **color,
        "x": {**x, "field": "low"},
        "x2": {"field": "high"},
        "opacity": shown,
    }
    told = tooltip_of(method="method", shown=title)
    dot = {**color, "x": x, "opacity": shown, "tooltip": told}
    value = {
        "y": y,
        "x": {"value": "width"},
        "text": {"field": "shown"},
        "opacity": shown,
    }
    layers = [
        layer("rule", bar, done, strokeWidth=2),
        layer("point", faint, seeds, filled=True, size=22),
        layer("point", dot, done, filled=True, size=80),
        layer("text", value, found, align="left", dx=6, fontSize=11),
    ]
    return Chart([], layers, 30 + 20 * len(found), params=[ISOLATED], width=HALF)


def cost(lines: Lines, rows: Rows) -> Chart | None:
    """Draw the accuracy at the end over what was sent, and who is dominated by nobody.

    None unless any method sends anything.
    """
    found = []
    for line in lines:
        scores = [each.score for each in rows[line.label]]
        ends = [score.final for score in scores if score.final is not None]
        if len(ends) < len(scores):
            continue
        sent = float(np.mean([s.bytes_up + s.bytes_down for s in scores])) / 1e6
        entry: Row = {"method": line.label, "colour": line.colour}
        entry["ink"] = ink(line.colour)
        entry |= {"sent": sent, "mean": float(np.mean(ends))}
        entry["bound"] = line.runs[0].strategy in BOUNDS
        entry["said"] = f"{sent:.1f} MB"
        entry["shown"] = f"{100 * entry['mean']:.1f}%"
        found.append(entry)
    senders = [entry for entry in found if entry["sent"]]
    if not senders:
        return None
    front = find_front(senders)
    for entry in found:
        entry["front"] = entry in front
    sent = [entry["sent"] for entry in senders]
    wide = max(sent) > 10 * min(sent)
    span = (min(sent) / 1.5, max(sent) * 1.5) if wide else (0.0, 1.15 * max(sent))
    axis = {"title": "megabytes sent, up and down", "grid": False, "format": "~r"}
    x = number("sent", span, **axis)
    x["scale"]["type"] = "log" if wide else "linear"
    means = [entry["mean"] for entry in found]
    room = 0.08 * (max(means) - min(means)) or 0.05
    domain = (min(means) - room, min(max(means) + room, 1.0))
    y = number("mean", domain, title="accuracy at the end", **PERCENT)
    height = 300
    _place_names(senders, span, domain, wide, LINE_OF_TEXT / (height - 50))
    told = tooltip_of(method="method", said="sent", shown="accuracy at the end")
    shown = set_off("true")
    place = {"x": x, "y": y, "opacity": shown}
    dot = {**place, "color": COLOUR, "tooltip": told}
    name = {**place, "y": {**y, "field": "place"}, "text": {"field": "method"}}
    name |= {"color": {**COLOUR, "field": "ink"}}
    still = [entry for entry in found if not entry["sent"]]
    across = {"y": y, "color": COLOUR, "opacity": shown}
    silent = {"x": {"value": "width"}, "y": y, "text": {"field": "said"}}
    for entry in still:
        entry["said"] = f"{entry['method']}, which sends nothing"
    edge = {**front[-1], "sent": span[1]}
    steps = {"interpolate": "step-after", "color": GREY, "opacity": 0.5}
    layers = [
        layer("line", {"x": x, "y": y}, [*front, edge], **steps),
        layer("rule", across, still, strokeDash=[2, 2]),
        layer("text", silent, still, align="right", dy=-6, fontSize=11),
        layer("point", dot, [e for e in senders if e["front"]], filled=True, size=130),
        layer(
            "point", dot, [e for e in senders if not e["front"]], size=70, strokeWidth=2
        ),
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
    senders: Sequence[Row],
    span: tuple[float, float],
    domain: tuple[float, float],
    wide: bool,
    gap: float,
) -> None:
    """Move the names of methods that sent much the same apart."""
    scale = np.log if wide else np.asarray
    low, high = domain
    reach = float(scale(span[1]) - scale(span[0]))
    columns: list[list[Row]] = []
    for entry in sorted(senders, key=lambda entry: float(entry["sent"])):
        near = (
            columns
            and scale(entry["sent"]) - scale(columns[-1][0]["sent"]) < 0.15 * reach
        )
        if near:
            columns[-1].append(entry)
        else:
            columns.append([entry])
    for column in columns:
        column.sort(key=lambda entry: float(entry["mean"]))
        heights = [(entry["mean"] - low) / (high - low) for entry in column]
        for entry, place in zip(column, spread_out(heights, gap), strict=True):
            entry["place"] = low + place * (high - low)
