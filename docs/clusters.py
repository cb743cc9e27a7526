"""Draw what clusters add: `python docs/clusters.py` writes docs/images/clusters.svg.

Three situations of Fashion-MNIST (conf/experiment/clusters), with 10, 40 and 200
samples a client. With seed 0 every reference runs: one model, everyone alone, and the
true clusters. The best without clusters and the best with them run with further seeds.
Prints the numbers of docs/choosing.md. Each is of a run, which a command repeats:

    cfl-flower run experiment=clusters/all_labels partition.samples=10 seed=0 \
      strategy=oracle strategy.fine_tuning=5

Runs are kept in the folder that is given (runs/clusters), and are not repeated.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import cfl_flower as cfl
from cfl_flower.analysis.leads import find_lead
from simulations.reporting.charts import COLOURS, Chart, layer

PICTURE = Path(__file__).with_name("images") / "clusters.svg"
SITUATIONS = {
    "all_labels": "groups call all ten labels by other names",
    "two_labels": "groups swap two of ten labels",
    "labels": "groups hold other labels, which mean the same",
}
SAMPLES = (10, 40, 200)
SEEDS = (0, 1, 2)
LONG = ("strategy.fine_tuning=20", "strategy.fine_tuning_rate=0.1")
ONE: dict[str, tuple[str, ...]] = {
    "fedavg": ("strategy=fedavg",),
    "fedavg_ls": ("strategy=fedavg_ls",),
    "fedavg_ft": ("strategy=fedavg_ft",),
    "fedavg_ft20": ("strategy=fedavg", *LONG),
    "local": ("strategy=local",),
}
"""Without clusters. fedavg_ft takes 5 epochs at a rate of 0.01; the next 20 at 0.1."""
TRUE: dict[str, tuple[str, ...]] = {
    "oracle": ("strategy=oracle",),
    "oracle_ls": ("strategy=oracle", "strategy.label_shares=true"),
    "oracle_ft": ("strategy=oracle", "strategy.fine_tuning=5"),
    "oracle_ft20": ("strategy=oracle", *LONG),
}
AFTER = 30
SETTLED = 60
"""The second round on the new data, and the last one."""


def run_cell(
    folder: Path, situation: str, name: str, samples: int, seed: int
) -> cfl.Run:
    """Return a run of the map; one that is finished is not repeated."""
    place = folder / situation / name / f"n{samples}-s{seed}"
    if not (place / "summary.json").exists():
        cfl.run(
            f"experiment=clusters/{situation}",
            *(ONE | TRUE)[name],
            quiet=True,
            partition__samples=samples,
            seed=seed,
            workers=1,
            output_dir=str(place),
            resume=True,
        )
    return cfl.load(place)


def at(run: cfl.Run, server_round: int) -> float:
    """Return the accuracy of a round, in percent."""
    found = dict(zip(run.rounds["round"], run.rounds["accuracy"], strict=True))
    return 100 * float(found[server_round])


def compare(folder: Path, situation: str, samples: int, when: int) -> dict[str, Any]:
    """Return what the true clusters add to the best without them, in a round."""
    best = []
    for kind in (ONE, TRUE):
        first = {name: run_cell(folder, situation, name, samples, 0) for name in kind}
        found = {name: at(run, when) for name, run in first.items()}
        best.append(max(found, key=lambda name: found[name]))
        shown = ", ".join(f"{name} {each:.1f}" for name, each in found.items())
        print(f"{situation}, {samples} samples, round {when}, seed 0: {shown}")
    pairs = [
        [at(run_cell(folder, situation, name, samples, seed), when) for name in best]
        for seed in (SEEDS if when == SETTLED else SEEDS[:1])
    ]
    lead = find_lead((true, one) for one, true in pairs)
    assert lead is not None
    half = lead.half_width
    one, true = (fmean(column) for column in zip(*pairs, strict=True))
    words = f"{lead.mean:+.1f}" if half is None else f"{lead.mean:+.1f} ± {half:.1f}"
    print(f"  {best[0]} {one:.1f}, {best[1]} {true:.1f}: {words}", flush=True)
    return {
        "situation": SITUATIONS[situation],
        "samples": f"{samples} samples",
        "gain": lead.mean,
        "words": words,
        "one": f"without: {one:.1f}, {best[0]}",
        "true": f"with: {true:.1f}, {best[1]}",
    }


def draw(rows: Sequence[Mapping[str, Any]], picture: Path) -> None:
    """Draw the gains as a map, a row for each situation."""
    axis = {"title": None, "labelLimit": 0, "labelFontSize": 13, "domain": False}
    axis = {**axis, "ticks": False, "labelPadding": 8}
    across = {**axis, "orient": "top", "labelAngle": 0}
    x = {"field": "samples", "type": "ordinal", "sort": None, "axis": across}
    y = {"field": "situation", "type": "ordinal", "sort": None, "axis": axis}
    scale = {"domain": [0, 20], "range": ["#f2f2f2", COLOURS[0]], "clamp": True}
    colour = {"field": "gain", "type": "quantitative", "scale": scale, "legend": None}
    dark = {
        "condition": {"test": "datum.gain > 12", "value": "white"},
        "value": "black",
    }
    place = {"x": x, "y": y, "color": dark}
    layers = [
        layer("rect", {"x": x, "y": y, "color": colour}, stroke="white", strokeWidth=3),
        layer("text", {**place, "text": {"field": "words"}}, fontSize=18, dy=-14),
        layer("text", {**place, "text": {"field": "one"}}, fontSize=11, dy=10),
        layer("text", {**place, "text": {"field": "true"}}, fontSize=11, dy=26),
    ]
    chart = Chart(rows, layers, 320, width=760)
    picture.write_text(chart.svg, encoding="utf-8")


def main(folder: Path, picture: Path = PICTURE) -> None:
    """Run what is lacking, print the numbers, and draw those of the last round."""
    cells = [(situation, samples) for situation in SITUATIONS for samples in SAMPLES]
    draw([compare(folder, *cell, SETTLED) for cell in cells], picture)
    for cell in cells:
        compare(folder, *cell, AFTER)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:] or ["runs/clusters"]))
