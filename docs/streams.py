"""Draw how real streams drift: `python docs/streams.py` writes docs/images/streams.svg.

A boosted model of each stream's first period is tested on all periods, beside a model
of each period itself. All are trained on training samples and tested on test samples.
Prints the numbers of docs/how-to/streams.md, too.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from cfl_flower.config.compose import compose_config
from simulations.reporting.charts import COLOURS, Chart, layer, number

STREAMS = ("us_accidents", "flights", "employment")
PICTURE = Path(__file__).with_name("images") / "streams.svg"
FIRST = "model of the first period"
OWN = "model of the same period"


def drift_of(name: str) -> list[dict[str, object]]:
    """Return a row for each period and model, with the model's AUC."""
    train, test = compose_config([f"experiment={name}"]).dataset.load("")
    periods = np.unique(train.times)
    models = {}
    rows: list[dict[str, object]] = []
    for place, period in enumerate(periods):
        ours = train.times == period
        own = HistGradientBoostingClassifier(random_state=0)
        models[period] = own.fit(train.x[ours].numpy(), train.labels[ours])
        tested = test.times == period
        y = test.labels[tested]
        both = np.concatenate([train.labels[ours], y])
        print(name, period, len(both), f"positive {both.mean():.1%}", end="")
        for kind, model in ((FIRST, models[periods[0]]), (OWN, own)):
            found = model.predict_proba(test.x[tested].numpy())[:, 1]
            auc = roc_auc_score(y, found)
            balanced = balanced_accuracy_score(y, found > 0.5)
            print(f"  {kind}: AUC {auc:.3f}, balanced {balanced:.3f}", end="")
            when = place / (len(periods) - 1)
            rows.append({"stream": name, "model": kind, "time": when, "auc": auc})
        print()
    return rows


def main(picture: Path = PICTURE) -> None:
    """Measure all streams and draw them."""
    rows = [row for name in STREAMS for row in drift_of(name)]
    axis = {"title": "first period to last", "grid": False, "labels": False}
    names = {"field": "stream", "scale": {"domain": STREAMS, "range": COLOURS[:3]}}
    dashes = {"field": "model", "scale": {"domain": [FIRST, OWN]}}
    legend = {"title": None, "orient": "bottom", "labelLimit": 0}
    stroke = {"symbolType": "stroke", "symbolSize": 400, "symbolStrokeWidth": 2}
    marks = {
        "x": number("time", (0, 1), **axis),
        "y": number("auc", (0.4, 1), title="AUC"),
        "color": {**names, "legend": legend},
        "strokeDash": {**dashes, "legend": {**legend, **stroke}},
    }
    points = {key: of for key, of in marks.items() if key != "strokeDash"}
    layers = [layer("line", marks), layer("point", points, filled=True)]
    picture.write_text(Chart(rows, layers, 360).svg, encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
