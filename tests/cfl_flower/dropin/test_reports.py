"""What the mods report, of whatever types and over whatever a node lost."""

from typing import Any

import cfl_flower.strategies as plain
import numpy as np
import pytest
from flwr.app import Context
from flwr.clientapp import ClientApp

from cfl_flower.mods import embedding, label_histogram
from tests.cfl_flower.dropin.apps import make_app, start


def reporting(mod: Any) -> Any:
    """Return an app with a mod."""
    app = ClientApp(mods=[mod])
    app.train()(make_app())
    app.evaluate()(make_app())
    return app


@pytest.mark.parametrize(
    ("kind", "low"),
    [
        ("float16", 5.0),
        ("float16", 1000.0),
        ("float32", 2.0**24),
        ("float64", 1e8),
        ("int8", 100),
        ("uint8", 200),
        ("int32", 2**30),
        ("int64", 2**40),
    ],
)
def test_the_mean_of_many_rows_is_that_of_one(kind, low):
    def embed(arrays: Any, context: Context) -> Any:
        odd = int(context.node_config["partition-id"]) % 2
        return np.full((9000, 3), low * (1 + odd / 5)).astype(kind)

    app = reporting(embedding(embed))
    found = start(app, plain.Fielding, representation="embedding")
    assert list(found.clusters.values()) == [0, 1, 0, 1]
    exact = [np.full(3, low * share).astype(kind) for share in (1.0, 1.2)]
    np.testing.assert_allclose(found.state.centres, exact, rtol=1e-6)


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "int64"])
def test_label_counts_hold_in_small_types(kind):
    def labels(context: Context) -> Any:
        odd = int(context.node_config["partition-id"]) % 2
        return np.full(9000, odd * 100).astype(kind)

    found = start(reporting(label_histogram(labels, 101)), plain.Fielding)
    assert found.state.centres.max(axis=1).tolist() == [1.0, 1.0]
