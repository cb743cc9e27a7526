"""What `privacy=` adds to a synchronous method's rounds, whatever the method.

A method declares all that its clients send (`Disclosure`); one that declares nothing is
refused. `PrivacyBudget` accounts for it, leaves out clients whose budget is spent, and,
with ``privacy=central``, shows the method noisy means alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cfl_flower.client.model_privacy import BASES
from cfl_flower.communication.partial_sums import bases_of
from cfl_flower.communication.results import Results
from cfl_flower.engine.stages.privacy_rules import Costs, check_guarantee
from cfl_flower.engine.stages.private_means import release_means
from cfl_flower.engine.stages.stage import Stage
from cfl_flower.environment.files import made_once
from cfl_flower.errors import BudgetSpentError
from cfl_flower.privacy.accounting import PrivacyLoss, epsilon_of
from cfl_flower.privacy.settings import LocalPrivacy
from cfl_flower.run_config import RunConfig
from cfl_flower.runs.asked import Asked
from cfl_flower.runs.record import ClientRow
from cfl_flower.seeding import generator, key
from cfl_flower.types import BoolArray, ClientId, Plan, client_order

NOISE_SECRET = ".noise-secret"
"""File of a run on real devices from which a server draws its noise."""


MEANS = "means"
"""The phase, in the notes of what was asked, in which noisy means were released."""


SENT_NOTHING = frozenset({"raised", "timeout", "refused", "identity"})
"""Reasons of failures that clients report themselves, in the place of an answer."""


class PrivacyBudget(Stage):
    """Accounts for all that leaves the clients, phase by phase."""

    phases = ("query", "train", "evaluate")
    shows_models = False
    # The account does not cover whether a test set is empty.
    asks_who_is_empty = False

    def begin(self) -> None:
        """Begin an account, or go on with that of a server that died."""
        config = self.config
        sent = type(self.context.method).discloses
        assert sent is not None
        assert isinstance(config.privacy, LocalPrivacy)
        self._privacy = config.privacy
        self._costs = Costs.of(config, sent)
        self._has_reports = sent.reports
        self._asked: Asked | None = None
        """Requests to real devices of a server that died."""
        if not self.context.fleet.simulated:
            self._asked = Asked(Path(config.output_dir), config.resume)
        self._asked_now: set[ClientId] = set()
        """Whom the queries or tests under way ask for a report."""
        self._answered: set[ClientId] = set()
        """Clients whose answers to this round's queries are accounted for."""
        self.participants.eligible.append(self.within_budget)

    @classmethod
    def applies(cls, config: RunConfig, simulated: bool = True) -> bool:
        """Return whether a run keeps account."""
        return config.privacy.on

    @classmethod
    def check(cls, config: RunConfig, method: type[Any]) -> None:
        """Refuse settings with which not all that leaves clients is covered."""
        check_guarantee(config, method)

    # Who is asked --------------------------------------------------------------------

    @property
    def _loss(self) -> PrivacyLoss:
        return self.context.state.privacy

    def can_lose(self, clients: Sequence[ClientId], cost: float) -> BoolArray:
        """Return which of n clients stay within the budget if they lose more, (n,)."""
        budget = self._privacy.epsilon_budget
        if budget is None:
            return np.ones(len(clients), bool)
        delta = self._privacy.delta
        after = [epsilon_of(self._loss.of(client) + cost, delta) for client in clients]
        return np.array(after, float) <= budget

    def within_budget(self) -> BoolArray:
        """Return which of n clients can be asked to take part, (n,)."""
        return self.can_lose(self.context.state.clients, self._costs.participation)

    def open(self) -> None:
        """Account for the queries of a server that died; end a run without budget."""
        self._count_forgotten("query", self._answered)
        self._answered = set()
        number = self.context.number
        if not self.within_budget().any():
            raise BudgetSpentError(
                f"round {number}: every client has spent privacy.epsilon_budget="
                f"{self._privacy.epsilon_budget:g}; the rounds before are saved; run "
                f"again with rounds={number - 1}, more noise "
                "(privacy.noise_multiplier) or a larger budget, in a new output_dir"
            )

    def plan(self, plan: Plan) -> Plan:
        """Return a plan that asks nobody for more than its budget allows."""
        phase = self.context.phase
        if phase == "query":
            return plan
        clients = [task.client for task in plan.tasks]
        if phase == "train":
            left = self.can_lose(clients, self._costs.training)
            tasks = [task for task, ok in zip(plan.tasks, left, strict=True) if ok]
            # Clients know of which models their answers are new versions.
            bases = {BASES: ",".join(map(str, bases_of(plan)))}
            return replace(plan, tasks=tasks, config={**plan.config, **bases})
        left = self.can_lose(clients, self._costs.report)
        silent = {"representation": ""}
        tasks = [
            task if ok else replace(task, config={**task.config, **silent})
            for task, ok in zip(plan.tasks, left, strict=True)
        ]
        return replace(plan, tasks=tasks)

    def send(self, plan: Plan) -> None:
        """Note on disk whom a plan asks for something with noise."""
        phase = self.context.phase
        asked: Collection[ClientId] = [
            task.client
            for task in plan.tasks
            if phase != "evaluate" or (plan.config | task.config).get("representation")
        ]
        if phase != "train":
            self._asked_now = set(self.context.fleet.reachable(asked))
            asked = self._asked_now
        if self._asked and (phase == "train" or self._has_reports):
            self._asked.note(phase, self.context.number, asked)

    # What they have sent -------------------------------------------------------------

    def receive(self, plan: Plan, results: Results) -> Results:
        """Account for what was sent; make noisy means if the noise is the server's."""
        phase = self.context.phase
        if phase == "train":
            self._count_training(self.context.sent)
            return self._release(self.context.sent, results)
        answered = self._count_reports(results)
        if phase == "evaluate":
            self._count_forgotten("evaluate", answered)
        else:
            self._answered |= answered
        return results

    def _before(self, phase: str) -> dict[str, set[ClientId]]:
        """Return what a server that died in this round had noted, by the keys."""
        asked = self._asked
        return asked.before(phase, self.context.number) if asked else {}

    def _lose(self, clients: Iterable[ClientId], cost: float) -> None:
        self._loss.add(sorted(clients, key=client_order), cost)

    def _count_training(self, plan: Plan) -> None:
        """Account for the models of a plan's tasks, whether they arrived or not.

        And for those of a server that died in this round: a device sends the same
        model again, but may be asked no more. Where the server adds the noise, what
        arrived is not known yet (`_release`).
        """
        clients = {task.client for task in plan.tasks}
        if self._privacy.mode == "local":
            clients |= self._before("train").get("", set())
        self._lose(clients, len(plan.reply) * self._costs.model)

    def _count_forgotten(self, phase: str, answered: Collection[ClientId]) -> None:
        """Account for reports that a server which died had asked for.

        A device that was ``answered`` since has sent its report again.
        """
        lost = self._before(phase).get("", set()).difference(answered)
        self._lose(lost, self._costs.report)

    def _count_reports(self, results: Results) -> set[ClientId]:
        """Account for the reports among answers to queries or tests.

        Of those who were asked, one whose answer was lost or refused counts, too: it
        may have left the device. One that says that it failed sent none. Returns the
        clients of whom it is known now whether they reported, or who were counted.
        """
        reported = {
            r.client for r in results if "representation" in r.metrics or r.arrays
        }
        failed = {f.client for f in results.failures if f.reason not in SENT_NOTHING}
        if self._has_reports:
            reported |= failed & self._asked_now
        self._lose(reported, self._costs.report)
        return reported.union(result.client for result in results)

    def _release(self, plan: Plan, results: Results) -> Results:
        """Return noisy means in the place of what participants sent, if it is central.

        The noise of a simulation follows from the seed. Who knows the seed could remove
        it: with real devices it follows from a secret in the run's folder.
        """
        privacy = self._privacy
        if privacy.mode != "central":
            return results
        number = self.context.number
        simulated = self.context.fleet.simulated
        # Made once before all noise.
        path = Path(self.config.output_dir) / NOISE_SECRET
        known = b"" if simulated else made_once(path)
        secret = np.frombuffer(known, np.uint32).tolist()
        drawn: list[str] = []

        def draw(purpose: str) -> np.random.Generator:
            drawn.append(purpose)
            if simulated:
                return generator(self.config.seed, purpose, number)
            return np.random.default_rng([*secret, key(purpose), number])

        means = release_means(results, plan, privacy, draw)
        if self._asked and drawn:
            # The noise, and so the means, are as before only if all purposes are.
            released = str(key("\n".join(sorted(drawn))))
            for other, clients in self._before(MEANS).items():
                if other != released:
                    self._lose(clients, len(plan.reply) * self._costs.model)
            who = {result.client for result in results}
            self._asked.note(MEANS, number, who, released)
        return means

    def close(self, rows: Sequence[ClientRow]) -> None:
        """Note every tested client's epsilon so far, the largest, and who is left."""
        delta = self._privacy.delta
        for row in rows:
            row.measures["epsilon"] = epsilon_of(self._loss.of(row.client), delta)
        measures = self.context.record.measures
        largest = max(self._loss.squares.values(), default=0.0)
        measures["epsilon"] = epsilon_of(largest, delta)
        if self._privacy.epsilon_budget is not None:
            measures["exhausted"] = int(np.count_nonzero(~self.within_budget()))
