"""What `privacy=` adds to a synchronous method's rounds, whatever the method.

A method declares all that its clients send (`Disclosure`); one that declares nothing is
refused. `PrivacyBudget` accounts for it, leaves out clients whose budget is spent, and,
with ``privacy=central``, shows the method noisy means alone.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cfl_flower.client.model_privacy import BASES
from cfl_flower.communication.results import Results
from cfl_flower.engine.context import RoundContext
from cfl_flower.engine.declarations import Disclosure
from cfl_flower.engine.delivery import Delivery
from cfl_flower.engine.stages.private_means import release_means
from cfl_flower.engine.stages.stage import Stage
from cfl_flower.environment.files import write_atomically
from cfl_flower.errors import BudgetSpentError
from cfl_flower.privacy.accounting import PrivacyLoss, epsilon_of
from cfl_flower.privacy.settings import LocalPrivacy
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.asked import Asked
from cfl_flower.runs.record import ClientRow, RoundRecord
from cfl_flower.seeding import generator, key
from cfl_flower.state import ClusteredState
from cfl_flower.types import BoolArray, ClientId, Plan, client_order

NOISE_SECRET = ".noise-secret"
"""File of a run on real devices from which a server draws its noise."""


MEANS = "means"
"""The phase, in the notes of what was asked, in which noisy means were released."""


SENT_NOTHING = frozenset({"raised", "timeout", "refused", "identity"})
"""Reasons of failures that clients report themselves, in the place of an answer."""


class PrivacyGuard:
    """Accounts for what clients send, and holds back what must not be seen."""

    def __init__(self, config: RunConfig, sent: Disclosure) -> None:
        privacy = config.privacy
        assert isinstance(privacy, LocalPrivacy)
        self._privacy = privacy
        self._seed = config.seed
        self._folder = config.output_dir
        own: Any = getattr(config.strategy, "privacy", None)
        noise = getattr(own, "noise_multiplier", privacy.report_noise)
        self.model = privacy.noise_multiplier**-2
        self.report = noise**-2
        """What a client loses by one model, and by one report, as 1 / z^2."""
        self.training = sent.models * self.model
        self.participation = self.training + sent.reports * self.report
        """What it may lose by taking part: it may be asked for a report, too."""
        self._has_reports = sent.reports
        self.asked: Asked | None = None
        """Of real devices: what a server that died had asked for."""
        self.asked_now: set[ClientId] = set()
        """Whom the queries or tests under way ask for a report."""

    def can_lose(
        self, loss: PrivacyLoss, clients: Sequence[ClientId], cost: float
    ) -> BoolArray:
        """Return which of n clients stay within the budget if they lose more, (n,)."""
        budget = self._privacy.epsilon_budget
        delta = self._privacy.delta
        if budget is None:
            return np.ones(len(clients), bool)
        after = [epsilon_of(loss.of(client) + cost, delta) for client in clients]
        return np.array(after, float) <= budget

    def within_budget(self, state: ClusteredState) -> BoolArray:
        """Return which of n clients can be asked to take part, (n,)."""
        return self.can_lose(state.privacy, state.clients, self.participation)

    def require_budget(self, server_round: int, state: ClusteredState) -> None:
        """Raise `BudgetSpentError`, which ends the run, if no client is left."""
        if not self.within_budget(state).any():
            raise BudgetSpentError(
                f"round {server_round}: every client has spent privacy.epsilon_budget="
                f"{self._privacy.epsilon_budget:g}; the rounds before are saved; run "
                f"again with rounds={server_round - 1}, more noise "
                "(privacy.noise_multiplier) or a larger budget, in a new output_dir"
            )

    def plan_training(self, plan: Plan, loss: PrivacyLoss) -> Plan:
        """Return a plan without those who cannot afford it.

        It names to clients of which models their answers are new versions.
        """
        clients = [task.client for task in plan.tasks]
        left = self.can_lose(loss, clients, self.training)
        tasks = [task for task, ok in zip(plan.tasks, left, strict=True) if ok]
        config = {**plan.config, BASES: ",".join(map(str, bases_of(plan)))}
        return replace(plan, tasks=tasks, config=config)

    def plan_tests(self, plan: Plan, loss: PrivacyLoss) -> Plan:
        """Return a plan that asks those for no report who cannot afford one."""
        clients = [task.client for task in plan.tasks]
        left = self.can_lose(loss, clients, self.report)
        silent = {"representation": ""}
        tasks = [
            task if ok else replace(task, config={**task.config, **silent})
            for task, ok in zip(plan.tasks, left, strict=True)
        ]
        return replace(plan, tasks=tasks)

    def will_ask(
        self, phase: str, server_round: int, clients: Iterable[ClientId]
    ) -> None:
        """Note whom a round is about to ask for something with noise."""
        if self.asked and (phase == "train" or self._has_reports):
            self.asked.note(phase, server_round, clients)

    def _before(self, phase: str, server_round: int) -> dict[str, set[ClientId]]:
        """Return what a server that died had noted, by the keys."""
        return self.asked.before(phase, server_round) if self.asked else {}

    def count_training(self, plan: Plan, loss: PrivacyLoss, server_round: int) -> None:
        """Account for the models of a plan's tasks, whether they arrived or not.

        And for those of a server that died in this round: a device sends the same
        model again, but may be asked no more. Where the server adds the noise, what
        arrived is not known yet (`release`).
        """
        clients = {task.client for task in plan.tasks}
        if self._privacy.mode == "local":
            clients |= self._before("train", server_round).get("", set())
        loss.add(sorted(clients, key=client_order), len(plan.reply) * self.model)

    def count_forgotten(
        self,
        phase: str,
        server_round: int,
        answered: Collection[ClientId],
        loss: PrivacyLoss,
    ) -> None:
        """Account for reports that a server which died had asked for.

        A device that was ``answered`` since has sent its report again.
        """
        lost = self._before(phase, server_round).get("", set()).difference(answered)
        loss.add(sorted(lost, key=client_order), self.report)

    def count_reports(
        self, results: Results, loss: PrivacyLoss, asked: Collection[ClientId]
    ) -> set[ClientId]:
        """Account for the reports among answers to queries or tests.

        Of those who were ``asked``, one whose answer was lost or refused counts, too:
        it may have left the device. One that says that it failed sent none. Returns the
        clients of whom it is known now whether they reported, or who were counted.
        """
        reported = {
            r.client for r in results if "representation" in r.metrics or r.arrays
        }
        failed = {f.client for f in results.failures if f.reason not in SENT_NOTHING}
        if self._has_reports:
            reported |= failed.intersection(asked)
        loss.add(sorted(reported, key=client_order), self.report)
        return reported.union(result.client for result in results)

    def release(
        self,
        record: RoundRecord,
        plan: Plan,
        results: Results,
        loss: PrivacyLoss,
        simulated: bool,
    ) -> Results:
        """Return noisy means in the place of what participants sent, if it is central.

        The noise of a simulation follows from the seed. Who knows the seed could remove
        it: with real devices it follows from a secret in the run's folder.
        """
        if self._privacy.mode != "central":
            return results
        secret = [] if simulated else self._secret()
        drawn: list[str] = []

        def draw(purpose: str) -> np.random.Generator:
            drawn.append(purpose)
            if simulated:
                return generator(self._seed, purpose, record.round)
            return np.random.default_rng([*secret, key(purpose), record.round])

        privacy = self._privacy
        means = release_means(
            results, plan, bases_of(plan), privacy.clip, privacy.scale, draw
        )
        if self.asked and drawn:
            # The noise, and so the means, are as before only if all purposes are.
            released = str(key("\n".join(sorted(drawn))))
            for other, clients in self._before(MEANS, record.round).items():
                if other != released:
                    loss.add(clients, len(plan.reply) * self.model)
            clients = {result.client for result in results}
            self.asked.note(MEANS, record.round, clients, released)
        return means

    def _secret(self) -> list[int]:
        """Return 256 bits that nobody else knows, made once before all noise."""
        path = Path(self._folder) / NOISE_SECRET
        if not path.exists():
            write_atomically(path, os.urandom(32), mode=0o600)
        secret: list[int] = np.frombuffer(path.read_bytes(), np.uint32).tolist()
        return secret

    def note(
        self, record: RoundRecord, rows: Sequence[ClientRow], state: ClusteredState
    ) -> None:
        """Note every tested client's epsilon so far, the largest, and who is left."""
        loss = state.privacy
        delta = self._privacy.delta
        for row in rows:
            row.measures["epsilon"] = epsilon_of(loss.of(row.client), delta)
        largest = max(loss.squares.values(), default=0.0)
        record.measures["epsilon"] = epsilon_of(largest, delta)
        if self._privacy.epsilon_budget is not None:
            record.measures["exhausted"] = int(
                np.count_nonzero(~self.within_budget(state))
            )


class PrivacyBudget(Stage):
    """Accounts for all that leaves the clients, phase by phase."""

    def __init__(self, guard: PrivacyGuard) -> None:
        self._guard = guard
        self._answered: set[ClientId] = set()

    def open(self, context: RoundContext) -> None:
        """Account for the queries of a server that died; end a run without budget."""
        loss = context.state.privacy
        self._guard.count_forgotten("query", context.number, self._answered, loss)
        self._answered = set()
        self._guard.require_budget(context.number, context.state)

    def plan(self, context: RoundContext, plan: Plan) -> Plan:
        """Return a plan that asks nobody for more than its budget allows."""
        loss = context.state.privacy
        if context.phase == "train":
            return self._guard.plan_training(plan, loss)
        if context.phase == "evaluate":
            return self._guard.plan_tests(plan, loss)
        return plan

    def receive(self, context: RoundContext, plan: Plan, results: Results) -> Results:
        """Account for what was sent; make noisy means if the noise is the server's."""
        guard = self._guard
        loss = context.state.privacy
        sent = context.sent
        if context.phase == "train":
            guard.count_training(sent, loss, context.number)
            simulated = context.fleet.simulated
            return guard.release(context.record, sent, results, loss, simulated)
        answered = guard.count_reports(results, loss, guard.asked_now)
        if context.phase == "evaluate":
            guard.count_forgotten("evaluate", context.number, answered, loss)
        else:
            self._answered |= answered
        return results

    def close(self, context: RoundContext, rows: Sequence[ClientRow]) -> None:
        """Note what every client has lost."""
        self._guard.note(context.record, rows, context.state)


class AskedClients(Stage):
    """Notes whom a round asks for something with noise, before the messages leave."""

    def __init__(self, guard: PrivacyGuard, delivery: Delivery) -> None:
        self._guard = guard
        self._delivery = delivery

    def plan(self, context: RoundContext, plan: Plan) -> Plan:
        """Note the clients of a plan."""
        asked = [task.client for task in plan.tasks]
        if context.phase == "evaluate":
            asked = [
                task.client
                for task in plan.tasks
                if {**plan.config, **task.config}.get("representation")
            ]
        if context.phase != "train":
            self._guard.asked_now = self._delivery.reached(asked)
            asked = list(self._guard.asked_now)
        self._guard.will_ask(context.phase, context.number, asked)
        return plan


def bases_of(plan: Plan) -> tuple[int, ...]:
    """Return of which of its task's models each array of a reply is a new version."""
    spec = plan.sum_spec
    return tuple(range(len(plan.reply))) if spec is None else spec.bases
