import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict

from cfl_flower.client.resources import open_resources
from cfl_flower.client.task_runner import TaskRunner, unpack
from cfl_flower.clustering.representations import digest, label_histogram
from cfl_flower.communication.outstanding import PendingMessage
from cfl_flower.communication.records import unpack_answers
from cfl_flower.communication.task_records import TaskBatch, encode_models, pack_tasks
from cfl_flower.config.compose import compose_config
from cfl_flower.errors import ConfigError
from cfl_flower.models import build_model
from cfl_flower.run_config import RunConfig
from cfl_flower.types import Answer, Plan, Scalar, Task, Vector
from clients.base import ClusteredClient
from simulations.engines.inprocess import InProcessGrid

Composer = Callable[..., RunConfig]


@pytest.fixture
def compose(tmp_path: Path) -> Composer:
    def run_config(*overrides: str) -> RunConfig:
        small = ["strategy=fedavg", "clients=6", "participants=3"]
        return compose_config([*small, f"output_dir={tmp_path}", *overrides])

    return run_config


def start(config: RunConfig) -> Vector:
    return build_model(config.model, (1, 8, 8), 10, config.seed).to_vector()


def plan(config: RunConfig, *clients: int | str, **common: Scalar) -> Plan:
    return Plan([Task(client, (0,)) for client in clients], [start(config)], common)


def work(config: RunConfig, phase: str, work: Plan, round: int = 1) -> list[Answer]:
    """Send tasks as one message to one node and read its answers."""
    settings, encoded = json.dumps({**config.resolved, "run": ""}), encode_models(work)
    grid = InProcessGrid([{}])
    pending = PendingMessage(phase, round, work, work.tasks, 1000)
    content = pack_tasks(pending, settings, encoded)
    (reply,) = grid.send_and_receive([Message(content, 1000, phase)])
    assert not reply.has_error()
    return unpack_answers(reply.content)


def histogram(config: RunConfig, client: int, round: int) -> bytes:
    view = open_resources(json.dumps(config.resolved)).stream.view(client, round)
    return label_histogram(view.labels, 10).tobytes()


def test_a_node_of_a_simulation_says_how_many_there_are():
    grid = InProcessGrid([{"num-partitions": 9}])
    (node,) = grid.get_node_ids()
    content = RecordDict({"identity": ConfigRecord({})})
    (reply,) = grid.send_and_receive([Message(content, node, "query.identify")])
    assert reply.content["identity"]["nodes"] == 9


def test_equal_settings_share_resources_that_nobody_can_spoil(compose):
    config = compose("seed=0")
    one, other = (json.dumps(each.resolved) for each in (config, compose("seed=1")))
    resources = open_resources(one)
    assert open_resources(json.dumps(json.loads(one))) is resources
    assert open_resources(other) is not resources
    runner = TaskRunner(resources, TaskBatch("train", 1, one, Plan([]), {}, {}, set()))
    initial = runner.make_context(Task(0), resources).initial
    initial().fill(0)
    assert np.array_equal(initial(), start(config))


@pytest.mark.parametrize("returned", [None, ([], 3), [[], 3, {}]])
def test_what_a_method_returned_is_named_with_what_it_should(returned):
    told = r"returned .*; fit and answer return arrays, num_examples and metrics"
    with pytest.raises(TypeError, match=told):
        unpack(returned, ClusteredClient(cast(Any, None)))


def test_client_remembers_from_message_to_message_and_no_other_client_does(compose):
    config = compose("drift.rounds=[3]")
    reported = digest(np.frombuffer(histogram(config, 0, 2), np.float32))
    # Any change is tolerable to who remembers what the server holds.
    common = {"representation": True, "tolerance": 2.0}
    work(config, "evaluate", plan(config, 0, **common), round=1)
    again = plan(config, 0, 1, **common, held=reported)
    knowing, unknowing = work(config, "evaluate", again, round=2)
    assert "representation" not in knowing.metrics
    assert unknowing.metrics["representation"] == histogram(config, 1, 3)


def test_a_message_cannot_make_a_folder_where_the_process_stands(compose):
    config = compose()
    forged = json.dumps({**config.resolved, "run": "", "output_dir": "elsewhere"})
    with pytest.raises(ConfigError, match=r"output_dir=elsewhere .* an absolute path"):
        open_resources(forged)
