"""A client's surroundings on digits, without a server."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cfl_flower.client.context import ClientContext, ClientState
from cfl_flower.client.evaluation import Evaluator
from cfl_flower.data.datasets.digits import Digits
from cfl_flower.data.worlds.changes import Regroup
from cfl_flower.data.worlds.label_skew import LabelGroups
from cfl_flower.data.worlds.stream import Stream
from cfl_flower.engine.method import StrategySettings
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.models import FlatModel, Mclr, Mlp, build_model

MakeContext = Callable[..., ClientContext]
PARTS = Mlp(hidden=6)
"""A network with an extractor."""
INITIAL_PARTS = build_model(PARTS, (1, 8, 8), 10, 0).to_vector()


@pytest.fixture(scope="session")
def stream() -> Stream:
    """Six clients in three label groups, others from round 3 on."""
    return Stream(Digits(), LabelGroups(groups=3), Regroup([3]), 6, seed=0, rounds=9)


@pytest.fixture
def make_context(stream: Stream, tmp_path: Path) -> MakeContext:
    """Return what surrounds client 2 in a round."""

    def make(round: int, folder: str = "state") -> ClientContext:
        model = FlatModel(Mclr().build((1, 8, 8), 10))
        initial = build_model(Mclr(), (1, 8, 8), 10, 0).to_vector()
        return ClientContext(
            2,
            round,
            0,
            stream,
            model,
            Evaluator(model, {}),
            StrategySettings(local=LocalTraining(epochs=1)),
            ClientState(tmp_path / folder, 2),
            initial.copy,
        )

    return make


@pytest.fixture
def equip(make_context: MakeContext) -> Callable[..., Any]:
    """Return a client of a kind in a round, on a network with an extractor."""

    def make(kind: Any, round: int, settings: Any) -> Any:
        model = FlatModel(PARTS.build((1, 8, 8), 10))
        own = {"model": model, "evaluator": Evaluator(model, {}), "settings": settings}
        return kind(replace(make_context(round), initial=INITIAL_PARTS.copy, **own))

    return make
