"""What came of a run, in words and numbers."""

from __future__ import annotations

from typing import Any


def accuracies(result: Any) -> list[float]:
    """Return the mean accuracy over nodes, in %, of each round."""
    rounds = sorted(result.evaluate_metrics_clientapp.items())
    return [100 * metrics["accuracy"] for _, metrics in rounds]


def row(name: str, result: Any, drifts: list[int]) -> str:
    """Return a line of the table of methods."""
    found = accuracies(result)
    after = [found[drift - 1] for drift in drifts if drift <= len(found)]
    last = found[-10:]
    cells = [
        sum(after) / len(after) if after else float("nan"),
        found[-1],
        sum(last) / len(last),
        sum(found) / len(found),
    ]
    numbers = " | ".join(f"{cell:.1f}" for cell in cells)
    return f"| {name} | {len(set(result.clusters.values()))} | {numbers} |"


HEAD = """\
| strategy | clusters | after drift | final | last ten | mean |
| --- | ---: | ---: | ---: | ---: | ---: |"""
