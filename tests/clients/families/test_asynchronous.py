"""Devices in charge of when they upload, with folders of their own."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest

from cfl_flower.client.requests import UploadRequest
from cfl_flower.client.upload_policy import TRIGGER, UploadPolicy, touched
from cfl_flower.engine.uploads_state import AsynchronousSettings
from cfl_flower.errors import ConfigError
from cfl_flower.learning.optimizer import LocalTraining
from clients.families.asynchronous import AsynchronousClient
from tests.cfl_flower.client.test_node_config import (
    HIGH,
    LOW,
    SITES,
    Sites,
    add_samples,
)
from tests.conftest import Run, Runner

HOLD = ["strategy.policy.poll=0.02", "system.task_timeout=5"]


@pytest.fixture
def sites(tmp_path: Path) -> Sites:
    add_samples(tmp_path / "public" / "high", "all", HIGH)
    add_samples(tmp_path / "public" / "low", "all", LOW)
    return Sites(tmp_path)


@contextmanager
def every_moment(action: object) -> Iterator[None]:
    """Do something again and again while the body runs."""
    stop = Event()

    def loop() -> None:
        while not stop.wait(0.05):
            action()  # type: ignore[operator]

    thread = Thread(target=loop)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def run_sites(run_small: Runner, root: Path, sites: Sites, *overrides: str) -> Run:
    public = f"strategy.public_dir={root / 'public'}"
    return run_small(*SITES, "strategy=ccfl", public, *HOLD, *overrides, grid=sites)


def test_without_a_policy_devices_upload_at_once(run_small, tmp_path, sites):
    run = run_sites(run_small, tmp_path, sites)
    assert {row["client"] for row in run.clients} == {"site-a", "site-b", "site-c"}
    # Two public sets, so two clusters: high labels, then low ones.
    last = {row["client"]: row["cluster"] for row in run.clients if row["round"] == 4}
    assert last["site-c"] == 0
    assert set(last.values()) <= {0, 1}
    assert all(row["before"] > 0 for row in run.clients)


def test_device_waits_no_longer_than_it_wants(run_small, tmp_path, sites):
    began = time.monotonic()
    # Held for longer than a task may take, which is no fault.
    wait = ["strategy.policy.wait=0.4", "strategy.policy.samples=999", "rounds=2"]
    run = run_sites(run_small, tmp_path, sites, *wait, "system.task_timeout=0.35")
    assert time.monotonic() - began > 1.2
    assert [row["failures"] for row in run.rounds] == [[], []]


def test_upload_that_failed_is_not_held_again(make_context, tmp_path, monkeypatch):
    context = make_context(1)
    policy = UploadPolicy(samples=999, wait=60, poll=0.02)
    settings = AsynchronousSettings(local=LocalTraining(epochs=1), policy=policy)
    context.settings, context.folder = settings, tmp_path
    context.look = lambda: context.stream
    client, start = AsynchronousClient(context), context.initial()

    def seconds(stamp: int) -> float:
        began = time.monotonic()
        client.fit([start], {"stamp": stamp, "cycle": stamp})
        return time.monotonic() - began

    # The first at once; its training fails, so that it is nothing to be compared with.
    with monkeypatch.context() as broken, pytest.raises(RuntimeError):
        broken.setattr(client, "train_from", _fail)
        seconds(0)
    assert seconds(0) < 30
    # Asked again from the same model: the answer was lost.
    assert seconds(0) < 30
    # From another one it holds, as long as it wants or until the trigger is touched.
    context.settings = replace(settings, policy=replace(policy, wait=0.5))
    assert seconds(4) >= 0.5
    context.settings = settings
    with every_moment((tmp_path / TRIGGER).touch):
        assert seconds(7) < 30


def _fail(*_: object, **__: object) -> None:
    raise RuntimeError


def test_upload_is_due_as_computed_by_hand(tmp_path):
    before = np.array([30, 10])
    policy = UploadPolicy(samples=5)
    assert policy.holds
    assert not policy.due(before, np.array([32, 12]), 1e9)
    assert policy.due(before, np.array([32, 13]), 0)
    assert policy.due(before, np.array([30, 5]), 0)
    # From (.75, .25) to (.5, .5): 0.5.
    assert UploadPolicy(drift=0.5).due(before, np.array([20, 20]), 0)
    assert not UploadPolicy(drift=0.51).due(before, np.array([20, 20]), 0)
    # The same shares are no drift, however many samples there are.
    for times in (0.5, 2, 10):
        assert not UploadPolicy(drift=1e-6).due(before, times * before, 0)
        assert UploadPolicy(drift=0.5).due(before, times * np.array([20, 20]), 0)
        assert not UploadPolicy(drift=0.51).due(before, times * np.array([20, 20]), 0)
    assert not UploadPolicy().holds
    held = [UploadPolicy(), UploadPolicy(wait=9, drift=1), UploadPolicy(samples=1)]
    assert [each.longest for each in held] == [0, 9, np.inf]
    assert touched(tmp_path) == 0


def test_server_needs_public_sets_of_its_own(run_small, tmp_path, sites):
    with pytest.raises(ConfigError, match=r"public_dir=null is not allowed"):
        run_small(*SITES, "strategy=ccfl", grid=sites)


def test_what_is_received_and_what_is_trained_are_tested(make_context):
    context = make_context(1)
    context.settings = AsynchronousSettings(local=LocalTraining(epochs=1))
    request = UploadRequest(stamp=0, cycle=1, tested=True)
    start = context.initial()
    client = AsynchronousClient(context)
    (trained,), _, metrics = client.fit([start], request.to_config())
    view = context.stream.view(2, 1)
    for name, model in (("after", start), ("before", trained)):
        loss, correct = context.evaluator.evaluate(model, view)
        assert metrics[f"{name}_loss"] == pytest.approx(loss)
        assert metrics[f"{name}_correct"] == correct
        assert metrics[f"{name}_tested"] == len(view.test_indices)
    assert metrics["before_loss"] < metrics["after_loss"]
