"""Which clients receive the models that they choose by, and which bytes count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cfl_flower.types import Result
from strategies.families.downloads import FetchedModels, KeptModels
from strategies.flexcfl import FlexCFLState

MODELS = [np.zeros(5, np.float32), np.ones(5, np.float32)]
SIZE = 2 * 5 * 4


@pytest.fixture
def state() -> FlexCFLState:
    """Return four clients, of which the last two have not received the models."""
    nobody: Any = np.zeros(4, np.int64)
    holding = np.array([True, True, False, False])
    return FlexCFLState([0, 1, 2, 3], nobody, MODELS, nobody, MODELS, holding)


def test_models_that_change_are_sent_to_all_and_charged_to_those_that_chose(
    state: FlexCFLState,
) -> None:
    download = FetchedModels(MODELS)
    assert download.receivers(state).all()
    results = [Result(0, 1, report=1), Result(1, 1), Result(3, 1, report=0)]
    assert download.account(state, np.array([0, 1, 3]), results) == 2 * SIZE
    assert download.config == {}


def test_models_that_never_change_are_sent_once_and_charged_once(
    state: FlexCFLState,
) -> None:
    download = KeptModels(MODELS)
    assert download.receivers(state).tolist() == [False, False, True, True]
    # Client 1 lost the models, and client 3 did not answer.
    results = [Result(0, 1), Result(1, 1, metrics={"lost": True}), Result(2, 1)]
    assert download.account(state, np.array([0, 1, 2]), results) == 2 * SIZE
    assert download.receivers(state).tolist() == [False, True, False, True]


def test_kept_models_are_named_by_their_content() -> None:
    name = KeptModels(MODELS).config["directions"]
    assert name == KeptModels([model.copy() for model in MODELS]).config["directions"]
    assert name != KeptModels(MODELS[::-1]).config["directions"]
