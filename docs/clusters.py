"""Draw what clusters add: `python docs/clusters.py` writes docs/images/clusters.svg.

Three situations of Fashion-MNIST (conf/experiment/clusters), with 10, 40 and 200
samples a client. With seed 0 every reference runs: one model, everyone alone, and the
true clusters. The best without clusters and the best with them run with further seeds.
Then, for these and further situations, what clusters that a method finds add. Prints
the numbers of docs/choosing.md. Each is of a run, which a command repeats:

    cfl-flower run experiment=clusters/all_labels partition.samples=10 seed=0 \
      strategy=oracle strategy.fine_tuning=5

Runs are kept in the folder that is given (runs/clusters), and are not repeated.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import cfl_flower as cfl
from cfl_flower.analysis.leads import Lead, find_lead
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
METHODS = ("flexcfl", "ifca", "feddrift")
FOUND: dict[str, tuple[str, ...]] = {
    name + end: (f"strategy={name}", *more)
    for name in METHODS
    for end, more in (("", ()), ("_ft", ("strategy.fine_tuning=5",)))
}
"""Clusters that a method finds."""
OTHERS = {
    "two_groups": (
        *("experiment=clusters/all_labels", "partition=shifted"),
        *("partition.shifts=[0,5]", "drift=none", "clusters=2"),
    ),
    "whole": (
        *("experiment=clusters/two_labels", "partition=dirichlet"),
        "partition.tests=whole",
    ),
}
"""Two groups that call all labels by other names; groups that swap two labels, hold
labels unevenly and are tested on all of them."""
START = ("drift.rounds=[1]",)
"""Groups that differ from the first round on."""
AFTER = 30
SETTLED = 60
"""The second round on the new data, and the last one."""


class Cell(NamedTuple):
    """A situation, and what else sets it."""

    situation: str
    samples: int
    more: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Its folder."""
        return self.situation + "-start" * (self.more == START)


def run_cell(folder: Path, cell: Cell, name: str, seed: int) -> cfl.Run:
    """Return a run of the map; one that is finished is not repeated."""
    place = folder / cell.place / name / f"n{cell.samples}-s{seed}"
    if not (place / "summary.json").exists():
        cfl.run(
            *OTHERS.get(cell.situation, [f"experiment=clusters/{cell.situation}"]),
            *(ONE | TRUE | FOUND)[name],
            *cell.more,
            quiet=True,
            partition__samples=cell.samples,
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


def best_of(folder: Path, cell: Cell, kind: Iterable[str], when: int) -> str:
    """Return which is the best of a kind in a round, with seed 0."""
    found = {name: at(run_cell(folder, cell, name, 0), when) for name in kind}
    shown = ", ".join(f"{name} {each:.1f}" for name, each in found.items())
    where = f"{cell.place}, {cell.samples} samples, round {when}, seed 0"
    print(f"{where}: {shown}", flush=True)
    return max(found, key=lambda name: found[name])


def gain(
    folder: Path, cell: Cell, one: str, other: str, when: int
) -> tuple[Lead, str, list[float]]:
    """Return what one adds to the other, in words, too, and the mean of both."""
    pairs = [
        [at(run_cell(folder, cell, name, seed), when) for name in (one, other)]
        for seed in (SEEDS if when == SETTLED else SEEDS[:1])
    ]
    lead = find_lead((second, first) for first, second in pairs)
    assert lead is not None
    half = lead.half_width
    words = f"{lead.mean:+.1f}" if half is None else f"{lead.mean:+.1f} ± {half:.1f}"
    return lead, words, [fmean(column) for column in zip(*pairs, strict=True)]


def compare(folder: Path, situation: str, samples: int, when: int) -> dict[str, Any]:
    """Return what the true clusters add to the best without them, in a round."""
    cell = Cell(situation, samples)
    best = [best_of(folder, cell, kind, when) for kind in (ONE, TRUE)]
    lead, words, (one, true) = gain(folder, cell, *best, when)
    print(f"  {best[0]} {one:.1f}, {best[1]} {true:.1f}: {words}", flush=True)
    return {
        "situation": SITUATIONS[situation],
        "samples": f"{samples} samples",
        "gain": lead.mean,
        "words": words,
        "one": f"without: {one:.1f}, {best[0]}",
        "true": f"with: {true:.1f}, {best[1]}",
    }


def find(folder: Path, cell: Cell) -> str:
    """Return a line of the table of what clusters that a method finds add."""
    one, true = (best_of(folder, cell, kind, SETTLED) for kind in (ONE, TRUE))
    own = [best_of(folder, cell, (name, f"{name}_ft"), SETTLED) for name in METHODS]
    words = [gain(folder, cell, one, other, SETTLED)[1] for other in (true, *own)]
    _, _, (score, _) = gain(folder, cell, one, true, SETTLED)
    from_start = "yes" if cell.more or cell.situation == "two_groups" else "no"
    cells = [f"`{cell.situation}`", from_start, str(cell.samples), f"{one} {score:.1f}"]
    return f"| {' | '.join([*cells, *words])} |"


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
    contradict = [cell for cell in cells if cell[0] != "labels"]
    asked = [Cell(*cell, more) for more in (START, ()) for cell in contradict]
    asked += [Cell("two_groups", samples) for samples in (10, 30, 40, 200)]
    asked += [Cell("whole", samples) for samples in (40, 200)]
    lines = [find(folder, cell) for cell in asked]
    print("\n".join(lines))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:] or ["runs/clusters"]))
