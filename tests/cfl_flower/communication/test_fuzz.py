"""Mutated replies, of every strategy that reads more in them than models."""

import dataclasses
import logging
from collections.abc import Iterable
from contextlib import suppress

import numpy as np
import pytest
import yaml
from flwr.app import Message, RecordDict

from cfl_flower.building import locate
from cfl_flower.communication.grid import UNDECODABLE
from cfl_flower.communication.validation import LARGEST, LARGEST_COUNT, is_bounded
from cfl_flower.config.composition import compose_plain
from cfl_flower.engine.method import ClusteredStrategy
from cfl_flower.environment.plugins import CONF
from cfl_flower.types import Result
from simulations.engines.inprocess import InProcessGrid
from tests.conftest import SYSTEMS, sample
from tests.contract.test_strategies import NEEDS, STRATEGIES
from tests.fuzzing import Mutator

pytestmark = pytest.mark.slow


def reads_reports(name: str) -> bool:
    """Return whether a method reads more than models, in a run of devices."""
    # Not composed: that takes all of them ten seconds whenever tests are collected.
    given = yaml.safe_load((CONF / f"strategy/{name}.yaml").read_text())
    kind = locate(given.get("_target_", "strategies.fedavg.FedAvg"))
    return kind.read_result is not ClusteredStrategy.read_result and name != "oracle"


ALL = [str(getattr(each, "values", [each])[0]) for each in STRATEGIES]
NAMES = [*filter(reads_reports, ALL), "fedavg"]
MASKED = ["strategy=fedavg", "privacy.secure_sums=true", "participants=12"]

HOSTILE = range(0, 12, 2)
"""Devices that send what they should not."""


def numbers(value: object) -> list[np.ndarray]:
    """Return all arrays of numbers in a report, however deep."""
    if isinstance(value, np.ndarray):
        return [value] if value.dtype.kind in "fiu" else []
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, each.name) for each in dataclasses.fields(value)]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [found for each in value for found in numbers(each)]
    return []


def assert_sound(result: Result) -> None:
    assert all(a.dtype == np.float32 and is_bounded(a) for a in result.arrays)
    assert type(result.num_examples) is int
    assert 0 <= result.num_examples <= LARGEST_COUNT
    scalars = [result.loss, *result.metrics.values()]
    assert all(
        abs(each) <= LARGEST for each in scalars if isinstance(each, int | float)
    )
    assert all(np.isfinite(each).all() for each in numbers(result.report))


class ForgingGrid(InProcessGrid):
    """Twelve devices, of which half send what they should not."""

    def __init__(self, seed: int) -> None:
        super().__init__({"client-id": client} for client in range(12))
        self.mutator = Mutator(seed)
        self.forged = 0

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        found = super().pull_messages(message_ids)
        for reply in found:
            client = self.node_configs[reply.metadata.src_node_id]["client-id"]
            asked = reply.metadata.message_type != "query.identify"
            if client in HOSTILE and asked and not reply.has_error():
                reply.content = self.forge(reply.content)
        return found

    def forge(self, content: RecordDict) -> RecordDict:
        for _ in range(20):
            with suppress(*UNDECODABLE):
                changed = self.mutator.records(content)
                self.forged += 1
                return changed
        return content


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "name", sample([*NAMES, "masked"], [*SYSTEMS, "fedavg", "masked"])
)
def test_forged_replies_harm_nothing(name, run_small, monkeypatch, caplog):
    monkeypatch.setattr("cfl_flower.communication.nodes.JOIN_TIMEOUT", 0.1)
    monkeypatch.setattr("cfl_flower.communication.nodes.IDENTIFY_TIMEOUT", 0.1)
    caplog.set_level(logging.CRITICAL, "cfl_flower")
    strategy = f"strategy={name}"
    options = MASKED if name == "masked" else [strategy, *NEEDS.get(strategy, [])]
    kind = locate(compose_plain(options[:1]).settings["strategy"]["_target_"])
    read = kind.read_result

    def checked(self: ClusteredStrategy, phase: str, result: Result) -> Result:
        found: Result = read(self, phase, result)
        assert_sound(found)
        return found

    monkeypatch.setattr(kind, "read_result", checked)
    grid = ForgingGrid(len(name))
    small = ["rounds=8", "drift.rounds=[2,4,6]", "system.task_timeout=5"]
    run = run_small(*options, *small, grid=grid)
    assert len(run.rounds) == 8
    assert all(map(is_bounded, run.state.models))
    assert grid.forged > 40
    failed = {failure["client"] for failure in run.failures}
    assert failed & {*HOSTILE}
    assert name == "masked" or failed <= {*HOSTILE}
