"""How plans reach the clients, and what comes back."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np
from flwr.app import Message

from cfl_flower.communication.partial_sums import add_result
from cfl_flower.communication.portions import portions
from cfl_flower.communication.results import LIMB_BYTES, Results, payload_bytes
from cfl_flower.communication.validation import is_bounded
from cfl_flower.engine.context import RoundContext
from cfl_flower.environment.machine import return_free_memory
from cfl_flower.errors import InvalidResultError, NoValidResultError
from cfl_flower.privacy.clipping import FAR, FEWEST
from cfl_flower.types import CHANGED, REPORT, Plan, Result

Reader: TypeAlias = Callable[[Result], Result]
"""Returns a result with its report, or raises `InvalidResultError`."""


def reported_length(phase: str, result: Result) -> float | None:
    """Return the L1 length of what a client reports about its data; None if nothing.

    It is 1 for every distribution. What is not finite is nothing here: who reads it
    refuses it.
    """
    data = result.metrics.get(REPORT)
    vector = result.arrays[0] if phase == "query" and result.arrays else None
    if isinstance(data, bytes) and len(data) % 4 == 0:
        vector = np.frombuffer(data, np.float32)
    if vector is None:
        return None
    length = float(np.abs(vector.astype(np.float64)).sum())
    return length if math.isfinite(length) else None


def reports_news(result: Result) -> bool:
    """Return whether a test says that the client's data are others."""
    return REPORT in result.metrics or result.metrics.get(CHANGED) is True


def without_report(result: Result) -> Result:
    """Return the result of a test without what it says about the client's data."""
    metrics = {k: v for k, v in result.metrics.items() if k not in (REPORT, CHANGED)}
    return replace(result, metrics=metrics)


class Delivery:
    """Sends the plans of a round, large ones in portions, and reads the replies."""

    def __init__(self, context: RoundContext) -> None:
        self._context = context
        self._now = Plan([])
        """The portion that was sent last."""
        self._later: list[Plan] = []

    def send(self, phase: str, plan: Plan) -> list[Message]:
        """Return the messages of a plan's first portion; the others wait.

        A plan for real devices is divided only if its results are added up, because
        each portion waits for the slowest device of the one before.
        """
        context = self._context
        fleet = context.fleet
        tests = phase == "evaluate"
        parts = [plan]
        if fleet.simulated or (plan.sum_spec and not tests):
            adders = len(fleet.nodes) if fleet.simulated and not tests else 0
            parts = portions(plan, adders, context.shares_memory, by_model=tests)
        self._now, *self._later = parts
        return fleet.messages(phase, context.number, self._now)

    def receive(self, phase: str, replies: Iterable[Message]) -> Results:
        """Return the results of all portions; failures and traffic are noted.

        Those of training are read by the method before any stage sees them.
        """
        results = self._take_in(phase, self._now, replies)
        while self._later:
            # Models of a portion that was sent are let go: they will be replaced.
            self._now = self._later.pop(0)
            more = self.query(self._context.number, self._now, phase)
            results.add(more)
            return_free_memory()
        self._now = Plan([])
        results.sort_by_client()
        return results

    def _take_in(self, phase: str, plan: Plan, replies: Iterable[Message]) -> Results:
        results = self._context.fleet.collect(replies, phase)
        self.note_traffic(phase, plan, results)
        if phase == "train":
            results[:] = self.read(phase, results)
        else:
            results[:] = self.without_far_reports(phase, results)
        return results

    def without_far_reports(self, phase: str, results: Results) -> list[Result]:
        """Return results without reports that are far longer than other clients'.

        A query's answer is refused as a whole; a test counts without its report.
        """
        state = self._context.state
        lengths = {result.client: reported_length(phase, result) for result in results}
        known = [length for length in lengths.values() if length is not None]
        # A minority that reports again does not change what is typical.
        if len(known) >= max(FEWEST, len(state.clients) // 2 + 1):
            state.typical_report = float(np.median(known))

        def check(result: Result) -> Result:
            length = lengths[result.client] or 0.0
            typical = state.typical_report
            if length > FAR * typical > 0:
                median = f"where {typical:.3g} is the median of clients"
                detail = f"of length {length:.3g}, {median}"
                raise InvalidResultError("representation", detail)
            return result

        near = self.read(phase, results, check)
        if phase != "evaluate":
            return near
        told = {result.client for result in near}
        return [r if r.client in told else without_report(r) for r in results]

    def exchange(self, messages: list[Message]) -> Iterable[Message]:
        """Send messages and return the replies to them."""
        timeout = self._context.config.system.message_timeout
        return self._context.fleet.grid.send_and_receive(messages, timeout=timeout)

    def query(self, server_round: int, plan: Plan, phase: str = "query") -> Results:
        """Send a plan, and return the answers; those to questions are not read yet."""
        messages = self._context.fleet.messages(phase, server_round, plan)
        return self._take_in(phase, plan, self.exchange(messages))

    def read(
        self, phase: str, results: Iterable[Result], read: Reader | None = None
    ) -> list[Result]:
        """Return results as read; leave out, and count, those that are refused."""
        context = self._context
        read = read or partial(context.method.read_result, phase)
        valid = []
        for result in results:
            try:
                own = read(result)
                if not isinstance(own, Result):
                    raise TypeError(f"read_result returned {own!r:.60}, not a Result")
                valid.append(own)
            except InvalidResultError as error:
                failure = context.fleet.fail(result.client, phase, error)
                context.record.failures.append(failure)
        return valid

    def add_up(self, plan: Plan, results: Results) -> Results:
        """Add up results that came one by one, though the plan has a `SumSpec`."""
        tasks = {task.client: task for task in plan.tasks}
        spec = plan.sum_spec
        assert spec is not None

        def add(result: Result) -> Result:
            return add_result(results.sums, tasks[result.client], result, spec)

        # Stages above find sums, as they planned.
        self._context.sent = replace(self._context.sent, sum_spec=spec)
        return results.with_results(self.read("train", results, add))

    def note_traffic(self, phase: str, plan: Plan, results: Results) -> None:
        """Note failures, bytes, computing and time, as if each client were a device.

        Models that are sent only to be tested are our measurement, and no traffic.
        """
        context = self._context
        record = context.record
        record.failures.extend(results.failures)
        masked = plan.sum_spec is not None and plan.sum_spec.masked
        reply = (LIMB_BYTES if masked else 4) * sum(plan.reply)
        up = {r.client: reply + payload_bytes([], r.metrics) for r in results}
        down = dict.fromkeys((task.client for task in plan.tasks), 0)
        if phase != "evaluate":
            for task in plan.tasks:
                models = [plan.models[index] for index in task.models]
                down[task.client] = payload_bytes(models, task.config)
        record.bytes_up += sum(up.values())
        record.bytes_down += sum(down.values())
        record.note_epochs(results)
        if context.fleet.simulated:
            context.clock.note(results, {c: n + down[c] for c, n in up.items()})

    def require_any(self, valid: Sequence[object], phase: str) -> None:
        """Raise `NoValidResultError`, which ends the run, if nothing is valid."""
        if valid:
            return
        record = self._context.record
        failures = [f for f in record.failures if f.phase == phase]
        reasons = [f"client {f.client}: {f.reason}: {f.detail}" for f in failures]
        remedy = self._context.fleet.remedy
        huge = bool(failures) and all(f.reason == "non-finite" for f in failures)
        if huge or not all(map(is_bounded, self._context.state.models)):
            remedy = (
                "what they received is not finite itself, or huge: training diverged, "
                "or one client sent that. Take smaller learning rates "
                "(strategy.local.learning_rate, or the server's own), or "
                "strategy.robust=clip, in a new output_dir"
            )
        raise NoValidResultError(
            f"round {record.round}: none of {len(failures)} clients gave a valid "
            f"{phase} result; {(reasons or ['nobody has samples'])[0]}; {remedy}"
        )
