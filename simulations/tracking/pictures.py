"""The pictures of the track's page: ranks, and what a score costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from cfl_flower.analysis.ranks import indistinct
from simulations.reporting.charts import GREY, Chart, layer, number
from simulations.tracking.rows import TrackRow

COLOURS = ("#332288", GREY)
"""Of what stands out, and of the others."""


def rank_chart(ranks: Mapping[str, float], difference: float) -> Chart:
    """Draw average ranks on a line; a bar joins methods that do not differ."""
    span = (0.8, 1.15 * max(ranks.values()))
    points = [
        {"method": name, "rank": round(rank, 3), "row": place}
        for place, (name, rank) in enumerate(ranks.items())
    ]
    rows = {point["method"]: point["row"] for point in points}
    bars = [
        {"rank": ranks[first], "end": ranks[last], "row": rows[first], "to": rows[last]}
        for first, last in indistinct(ranks, difference)
    ]
    x = number("rank", span, title="average rank: 1 is the best on every stream")
    y = number(
        "row",
        (-0.7, len(points) - 0.3),
        labels=False,
        ticks=False,
        title=None,
        grid=False,
    )
    y["scale"]["reverse"] = True
    label = {"field": "method", "type": "nominal"}
    joined = {"x": x, "y": y, "y2": {"field": "to"}}
    drawn = [
        layer("rule", joined, bars, color=COLOURS[1], strokeWidth=3),
        layer("point", {"x": x, "y": y}, color=COLOURS[0], filled=True, size=60),
        layer("text", {"x": x, "y": y, "text": label}, align="left", dx=9),
    ]
    return Chart(points, drawn, 18 * len(points) + 60)


def cost_chart(rows: Mapping[str, TrackRow], streams: Sequence[str]) -> Chart:
    """Draw the mean score over streams against the megabytes sent in a run.

    What nothing beats at less cost is on the front. A name that would cover another one
    is left out.
    """
    points: list[dict[str, Any]] = []
    for name, row in rows.items():
        if row.first_seed:
            continue
        results = [row.streams[each] for each in streams if each in row.streams]
        if len(results) < len(streams):
            continue
        sent = fmean(fmean(each.megabytes) for each in results)
        score = 100 * fmean(each.mean for each in results)
        points.append({"method": name, "sent": round(sent, 3), "score": score})
    for point in points:
        better = (
            other
            for other in points
            if other["score"] > point["score"] and other["sent"] <= point["sent"]
        )
        point["front"] = next(better, None) is None
    most = max(point["sent"] for point in points)
    scores = [point["score"] for point in points]
    low = min(scores) - 2
    high = max(scores) + 2
    # A line of text has a 25th of the picture's height, a name a sixth of its width.
    named = with_room(points, most / 6, (high - low) / 25)
    x = number("sent", (0, 1.15 * most), title="MB sent in a run, up and down")
    y = number("score", (low, high), title="mean score, in %")
    label = {"field": "method", "type": "nominal"}
    colour = {
        "field": "front",
        "type": "nominal",
        "scale": {"domain": [True, False], "range": list(COLOURS)},
        "legend": None,
    }
    places = {"x": x, "y": y, "color": colour}
    drawn = [
        layer("point", places, filled=True, size=60),
        layer("text", {**places, "text": label}, named, align="left", dx=8),
    ]
    return Chart(points, drawn, 360)


def with_room(
    points: list[dict[str, Any]], width: float, height: float
) -> list[dict[str, Any]]:
    """Return the points whose names do not cover each other, those of the front first.

    ``width`` is that of a name in MB, ``height`` in points of the score.
    """
    named: list[dict[str, Any]] = []
    for point in sorted(points, key=lambda each: (not each["front"], -each["score"])):
        covered = (
            abs(point["score"] - other["score"]) < height
            and abs(point["sent"] - other["sent"]) < width
            for other in named
        )
        if not any(covered):
            named.append(point)
    return named
