"""A method's tasks as Flower's plain messages.

A ClientApp that trains and tests what it receives answers them as it answers FedAvg.
A client is a node, and its id the node's. What a method asks beyond that is in a record
of its own, `mods.ASK`, which an app without the mod does not look at.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy.strategy_utils import sample_nodes

from cfl_flower.communication.grid import PatientGrid
from cfl_flower.communication.partial_sums import add_result
from cfl_flower.communication.results import Results
from cfl_flower.dropin.layout import Layout, middle
from cfl_flower.dropin.replies import COLD_STARTS, Reader, chooses
from cfl_flower.dropin.terms import Terms
from cfl_flower.errors import InvalidResultError
from cfl_flower.mods import ASK, FIRST, NEAR, NEAR_LAMBDA
from cfl_flower.seeding import generator
from cfl_flower.types import REPORT, ClientId, Failure, Plan, Result, Task, Vector

log = logging.getLogger(__name__)


class Carrier:
    """Brings tasks to plain ClientApps. Stands where the engine has its `Fleet`."""

    simulated = False
    """Nodes come, go, and fail, as devices do."""
    remedy = "fix the app, and start again (`resume`, if checkpoint= was set)"

    def __init__(
        self,
        grid: Grid,
        terms: Terms,
        arrays: ArrayRecord,
        configs: dict[str, ConfigRecord],
    ) -> None:
        self.grid = PatientGrid(grid)
        self.terms = terms
        self.configs = configs
        """What is sent with each task, by its verb."""
        self.layout = Layout.of(arrays)
        self.initial, self.others = self.layout.read(arrays)
        self.clients: list[ClientId] = []
        """The nodes that are there."""
        self.reader = Reader(terms, self.layout, self.initial)
        self.disputes: dict[ClientId, str] = {}
        self.failures: list[Failure] = []
        """Those of the round."""
        self._sent: dict[ClientId, tuple[Plan, Task]] = {}

    # What the engine asks of a fleet -------------------------------------------------

    def discover(self) -> None:
        """Find the nodes, and wait until there are enough, as FedAvg does."""
        terms = self.terms
        least = max(terms.min_available_nodes, terms.min_train_nodes, 1)
        _, nodes = sample_nodes(cast(Grid, self.grid), least, 0)
        self.clients = [*sorted(nodes)]

    def host(self, client: ClientId) -> ClientId | None:
        """Return the node of a client, None if it is not there."""
        return client if client in self.clients else None

    def fail(self, client: ClientId, phase: str, error: InvalidResultError) -> Failure:
        """Return the failure of a node, and log it in one line."""
        log.warning("node %s, %s: %s: %s", client, phase, error.reason, error.detail)
        failure = Failure(client, phase, error.reason, error.detail)
        self.failures.append(failure)
        return failure

    # Messages ------------------------------------------------------------------------

    def messages(self, phase: str, server_round: int, plan: Plan) -> list[Message]:
        """Turn a plan into the messages to each node that has to be asked."""
        self._round = server_round
        self._sent = {t.client: (plan, t) for t in plan.tasks if self.host(t.client)}
        tasks = [task for _, task in self._sent.values()]
        asked = plan.config.keys()
        if phase == "evaluate":
            return self._tests(plan, tasks)
        if phase == "train":
            return [each for task in tasks for each in self._to_train(plan, task)]
        if asked & COLD_STARTS:
            cold = {"cold-start": True}
            return [self._message("train", self.initial, t, extra=cold) for t in tasks]
        if "choose" in asked:
            return [self._to_choose(plan, task, trains=False) for task in tasks]
        if REPORT in asked:
            new = [task for task in tasks if task.client not in self.reader.silent]
            return [self._to_report(plan, task, self.initial, False) for task in new]
        return []

    def _to_train(self, plan: Plan, task: Task) -> list[Message]:
        """Return the message to a node that trains, or one for each of two models."""
        if chooses(plan, task):
            return [self._to_choose(plan, task, trains=True)]
        first, *others = [plan.models[number] for number in task.models]
        if not others:
            return [self._message("train", first, task)]
        # StoCFL's: its cluster's model, near the global one, and that one itself.
        strength = self.terms.settings.regularisation
        near = {NEAR_LAMBDA: strength} if strength else {}
        message = self._message("train", others[0], task, extra=near)
        if near:
            message.content[NEAR] = self.layout.write(first, self.others)
        return [message, self._message("train", first, task, group="1")]

    def _to_choose(self, plan: Plan, task: Task, trains: bool) -> Message:
        """Return the message to a node that tests models, and may train the best."""
        first, *others = [plan.models[number] for number in task.models]
        question = {
            **task.config,
            "models": len(task.models),
            "train": trains,
            "round": self._round,
            "weight": self.terms.weighted_by_key,
            "delta": getattr(self.terms.settings, "delta", 0.0),
        }
        message = self._message("train", first, task, question)
        for number, model in enumerate(others, start=1):
            arrays = self.layout.write(model, self.others)
            message.content[f"{ASK}.{number}"] = arrays
        return message

    def _tests(self, plan: Plan, tasks: list[Task]) -> list[Message]:
        """Return the messages to the nodes that test, and to those that may report."""
        terms = self.terms
        count = max(int(len(tasks) * terms.fraction_evaluate), terms.min_evaluate_nodes)
        order = generator(terms.seed, "tested", self._round).permutation(len(tasks))
        tested = set(order[:count].tolist())
        reporting = self.reader.reporting if REPORT in plan.config else set[ClientId]()
        found = []
        for place, task in enumerate(tasks):
            tests = place in tested
            model = plan.models[task.models[0]] if tests else None
            if task.client in reporting:
                found.append(self._to_report(plan, task, model, tests))
                if not tests:
                    self._sent[task.client] = plan, replace(task, models=())
            elif tests:
                found.append(self._message("evaluate", model, task))
        asked = [message.metadata.dst_node_id for message in found]
        self._sent = {client: self._sent[client] for client in asked}
        return found

    def _to_report(
        self, plan: Plan, task: Task, model: Vector | None, tests: bool
    ) -> Message:
        """Return a request to report, beside a test if there is one.

        An app without the mod tests its initial arrays, or trains them if nobody tests.
        """
        terms = self.terms
        distance = terms.settings.distance
        question = {**plan.config, **task.config, "distance": distance, "test": tests}
        verb = "evaluate" if terms.fraction_evaluate else "train"
        message = self._message(verb, model, task, question)
        if task.client in self.reader.lost:
            message.content[FIRST] = self.layout.write(self.initial, self.others)
            self.reader.lost.remove(task.client)
        return message

    def _message(
        self,
        verb: str,
        model: Vector | None,
        task: Task,
        question: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
        group: str = "0",
    ) -> Message:
        arrays = ArrayRecord()
        if model is not None:
            arrays = self.layout.write(model, self.others)
        config: Any = {**self.configs[verb], "server-round": self._round}
        content = RecordDict({self.terms.arrayrecord_key: arrays})
        content[self.terms.configrecord_key] = ConfigRecord({**config, **(extra or {})})
        if question is not None:
            content[ASK] = ConfigRecord(dict(question))
        return Message(content, int(task.client), verb, group_id=group)

    # Replies -------------------------------------------------------------------------

    def forget_unasked(self) -> int:
        """Forget the tasks that an override did not send; return how many it did."""
        asked = self.grid.last_asked
        self._sent = {c: each for c, each in self._sent.items() if int(c) in asked}
        return len(self._sent)

    def collect(self, replies: Iterable[Message], phase: str) -> Results:
        """Turn replies into results and failures, trusting nothing."""
        results = Results()
        reader = self.reader
        reader.begin()
        found = {(e.metadata.src_node_id, e.metadata.group_id): e for e in replies}
        for client, (plan, task) in self._sent.items():
            groups = map(str, range(max(1, len(plan.reply))))
            own = [found.get((int(client), group)) for group in groups]
            try:
                result = reader.read(phase, plan, task, own)
                if plan.sum_spec is not None:
                    result = add_result(results.sums, task, result, plan.sum_spec)
                results.append(result)
            except InvalidResultError as error:
                failure = self.fail(client, phase, error)
                # Nothing of a result that is refused counts.
                reader.drop(client)
                # A node that cannot test goes on training, as with FedAvg.
                if phase != "evaluate":
                    results.failures.append(failure)
                elif alone := report_alone(client, own[0]):
                    results.append(alone)
        if reader.counters:
            self.others = middle([*reader.counters.values()])
        for client, odd in reader.leave_out_odd_metrics():
            detail = f"{sorted(odd)} are not finite, or others or longer than most"
            self.fail(client, phase, InvalidResultError("metrics", detail))
        reader.limit_weights()
        results.sort_by_client()
        return results


def report_alone(client: ClientId, reply: Message | None) -> Result | None:
    """Return what a node reports whose test is refused, if it does."""
    if reply is None or not reply.has_content():
        return None
    said: Any = reply.content.config_records.get(ASK, {})
    return Result(client, 0, metrics=dict(said)) if REPORT in said else None
