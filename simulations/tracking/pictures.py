"""The picture of the track's page: ranks."""

from __future__ import annotations

from collections.abc import Mapping

from cfl_flower.analysis.leads import indistinct
from simulations.reporting.charts import GREY, Chart, layer, number

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
