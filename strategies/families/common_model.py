"""Asynchronous methods with one model for all, FedAsync and FedBuff."""

from __future__ import annotations

from dataclasses import replace

from cfl_flower.engine.asynchronous import AsynchronousStrategy
from cfl_flower.types import Plan


class CommonModelStrategy(AsynchronousStrategy):
    """One model, which is what counts: it is tested, whatever clients hold."""

    def plan_evaluate(self, server_round: int, test: bool) -> Plan:
        """Let every simulated client test the newest model."""
        plan = super().plan_evaluate(server_round, test)
        tasks = [replace(task, models=(0,)) for task in plan.tasks]
        return replace(plan, tasks=tasks, models=self.state.models[: len(tasks)])
