"""A method's tasks as Flower's plain messages, and the replies to them as results.

A ClientApp that trains and tests what it receives answers them as it answers FedAvg.
A client is a node, and its id the node's. What a method asks beyond that is in a record
of its own, `mods.ASK`, which an app without the mod does not look at.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg

from cfl_flower.client.drift_report import DriftReport, ReportRequest
from cfl_flower.client.requests import EvaluateRequest
from cfl_flower.clustering.representations import label_histogram
from cfl_flower.clustering.similarity import nearest_group, sketch
from cfl_flower.communication.identity import last_sentence
from cfl_flower.communication.results import Results
from cfl_flower.dropin.layout import Layout, Others, middle
from cfl_flower.errors import InvalidResultError
from cfl_flower.mods import ASK
from cfl_flower.seeding import generator
from cfl_flower.types import ClientId, Failure, Plan, Result, Scalar, Task, Vector

log = logging.getLogger(__name__)

Reseeded: TypeAlias = Callable[[int], ArrayRecord]
"""Returns the app's initial arrays with another seed."""

Concepts: TypeAlias = Callable[[int], Mapping[int, int]]
"""Returns the cluster of each node in a round."""

QUESTIONS = {"pretrain", "choose", "representation"}
"""What a method asks nodes before a round."""


@dataclass
class Carrier:
    """Brings tasks to plain ClientApps. Stands where the engine has its `Fleet`."""

    network: Grid
    terms: FedAvg
    """What a user says of messages: names of records, and who is tested."""
    layout: Layout
    initial: Vector
    timeout: float
    train_config: ConfigRecord
    evaluate_config: ConfigRecord
    seed: int = 0
    classes: int = 0
    """Labels that a mod counts; 0 if it has not said yet."""
    settings: Any = None
    """The method's, of which some are its clients'."""
    reseeded: Reseeded | None = None
    concepts: Concepts | None = None
    others: Others = field(default_factory=dict)
    clients: list[ClientId] = field(default_factory=list)
    """The nodes that are there."""
    replied: list[tuple[ClientId, RecordDict]] = field(default_factory=list)
    """The valid replies of the phase, for the means of metrics."""
    failures: list[Failure] = field(default_factory=list)
    """Those of the round."""
    reporting: set[ClientId] = field(default_factory=set)
    """The nodes that have a mod."""
    silent: set[ClientId] = field(default_factory=set)
    """The nodes that have none, as their answers show."""

    # What the engine asks of a fleet -------------------------------------------------

    simulated = False
    """Nodes come, go, and fail, as devices do."""
    summing_nodes = 0
    remedy = "fix the app, and start again (`resume`, if checkpoint= was set)"

    def __post_init__(self) -> None:
        self.disputes: dict[ClientId, str] = {}
        self._sent: dict[ClientId, tuple[Plan, Task]] = {}
        self._early: dict[int, Message] = {}
        self._trained_others: list[Others] = []

    @property
    def grid(self) -> Carrier:
        """The grid, which the carrier is, too."""
        return self

    def meanwhile(self, work: Callable[[], None]) -> None:
        """Do some work now: there are no files to write."""
        work()

    def finish(self) -> None:
        """Do nothing: nothing was left for later."""

    def send_and_receive(
        self, messages: list[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        """Send messages and return the replies within Flower's timeout."""
        if not messages:
            return []
        return self.network.send_and_receive(messages, timeout=self.timeout)

    def discover(self) -> None:
        """Find the nodes, and wait until there are enough, as FedAvg does."""
        terms = self.terms
        least = max(terms.min_available_nodes, terms.min_train_nodes, 1)
        while len(nodes := list(self.network.get_node_ids())) < least:
            log.info("%d nodes are connected, of at least %d", len(nodes), least)
            time.sleep(1)
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

    @property
    def chosen(self) -> bool:
        """Whether nodes that were asked last say which model they trained."""
        return any(chooses(task) for _, task in self._sent.values())

    # Messages ------------------------------------------------------------------------

    def messages(self, phase: str, server_round: int, plan: Plan) -> list[Message]:
        """Turn a plan into a message to each node that has to be asked."""
        self._sent = {t.client: (plan, t) for t in plan.tasks if self.host(t.client)}
        tasks = [task for _, task in self._sent.values()]
        if phase == "train":
            return [self._to_train(server_round, plan, task) for task in tasks]
        if phase == "evaluate":
            return self._tests(server_round, plan, tasks)
        asked = plan.config
        if self._is_cold_start(plan):
            start = replace(plan, models=[self.initial])
            extra = {"cold-start": True}
            cold = [replace(task, models=(0,)) for task in tasks]
            return [self._to_train(server_round, start, t, extra) for t in cold]
        if "choose" in asked:
            return [self._to_train(server_round, plan, task, {}) for task in tasks]
        if ReportRequest.from_config(asked):
            new = [task for task in tasks if task.client not in self._early]
            return [self._question(server_round, plan, task) for task in new]
        return []

    def _is_cold_start(self, plan: Plan) -> bool:
        """Return whether nodes train from the initial model, and compare updates."""
        return bool({"pretrain", "directions"} & plan.config.keys())

    def _to_train(
        self,
        server_round: int,
        plan: Plan,
        task: Task,
        extra: dict[str, Any] | None = None,
    ) -> Message:
        """Return the message to a node that trains, or, with ``extra``, is asked."""
        config = {**self.train_config, "server-round": server_round, **(extra or {})}
        first, *others = [plan.models[number] for number in task.models]
        question = None
        if chooses(task):
            question = {
                **task.config,
                "models": len(task.models),
                "train": extra is None,
                "round": server_round,
                "arrays": self.terms.arrayrecord_key,
                "weight": self.terms.weighted_by_key,
                "delta": getattr(self.settings, "delta", 0.0),
            }
        message = self._message("train", first, config, task, question)
        for number, model in enumerate(others, start=1):
            arrays = self.layout.write(model, self.others)
            message.content[f"{ASK}.{number}"] = arrays
        return message

    def _tests(self, number: int, plan: Plan, tasks: list[Task]) -> list[Message]:
        """Return the messages to the nodes that test, and to those that may report."""
        terms = self.terms
        asked = ReportRequest.from_config(plan.config) is not None
        count = max(int(len(tasks) * terms.fraction_evaluate), terms.min_evaluate_nodes)
        count = min(count, len(tasks)) if EvaluateRequest.of(plan.config).test else 0
        rng = generator(self.seed, "tested", number)
        tested = set(rng.permutation(len(tasks))[:count].tolist())
        found = []
        sent = {}
        for place, task in enumerate(tasks):
            reports = asked and task.client in self.reporting
            if not (place in tested or reports):
                continue
            sent[task.client] = (plan, task)
            config = {**self.evaluate_config, "server-round": number}
            model = plan.models[task.models[0]] if place in tested else None
            question = {**plan.config, **task.config, "test": place in tested}
            asks = question if reports else None
            found.append(self._message("evaluate", model, config, task, asks))
        self._sent = sent
        return found

    def _question(self, server_round: int, plan: Plan, task: Task) -> Message:
        """Return a request to report. An app without the mod takes it for a test."""
        config = {**self.evaluate_config, "server-round": server_round}
        question = {**plan.config, **task.config, "test": False}
        phase = "evaluate" if self.terms.fraction_evaluate else "train"
        return self._message(phase, self.initial, config, task, question)

    def _message(
        self,
        phase: str,
        model: Vector | None,
        config: dict[str, Any],
        task: Task,
        question: dict[str, Any] | None = None,
    ) -> Message:
        arrays = ArrayRecord()
        if model is not None:
            arrays = self.layout.write(model, self.others)
        content = RecordDict({self.terms.arrayrecord_key: arrays})
        content[self.terms.configrecord_key] = ConfigRecord(config)
        if question is not None:
            content[ASK] = ConfigRecord(question)
        return Message(content, int(task.client), phase)

    # Replies -------------------------------------------------------------------------

    def collect(self, phase: str, replies: Iterable[Message]) -> Results:
        """Turn replies into results and failures, trusting nothing."""
        results = Results()
        self.replied = []
        by_node = {reply.metadata.src_node_id: reply for reply in replies}
        if phase == "query":
            by_node = self._early | by_node
            self._early = {}
        self._trained_others = []
        for client, (plan, task) in self._sent.items():
            reply = by_node.get(int(client))
            try:
                results.append(self._read(phase, plan, task, reply))
            except InvalidResultError as error:
                failure = self.fail(client, phase, error)
                # Who cannot test goes on training: FedAvg does not end there, either.
                if phase != "evaluate":
                    results.failures.append(failure)
        if self._trained_others:
            self.others = middle(self._trained_others)
        self._leave_out_odd_metrics(phase)
        results.sort_by_client()
        return results

    def _leave_out_odd_metrics(self, phase: str) -> None:
        """Leave out metrics of other names or lengths than most nodes send.

        Flower's means of metrics need those of all nodes to be alike.
        """
        forms = [metric_form(content) for _, content in self.replied]
        usual = max(forms, key=forms.count, default=frozenset())
        pairs = list(zip(forms, self.replied, strict=True))
        self.replied = [replied for form, replied in pairs if form == usual]
        for form, (client, _) in pairs:
            if form == usual:
                continue
            names = sorted({name for name, _ in form ^ usual})
            detail = f"{names} are other ones, or longer, than most nodes send"
            self.fail(client, phase, InvalidResultError("metrics", detail))

    def _read(
        self, phase: str, plan: Plan, task: Task, reply: Message | None
    ) -> Result:
        """Return what a node's reply says, or raise `InvalidResultError`."""
        client = task.client
        if phase == "query" and not QUESTIONS & plan.config.keys():
            # How many samples there are, nodes say when they have trained.
            return Result(client, 1)
        if reply is None:
            raise InvalidResultError("node", "it has left, or did not answer in time")
        if reply.has_error():
            raise InvalidResultError("node", last_sentence(reply))
        content = reply.content
        if phase == "query" and ReportRequest.from_config(plan.config):
            return Result(client, 1, metrics=self._first_report(client, content))
        if phase == "query" and not self._is_cold_start(plan):
            return Result(client, 1, metrics=self._choice(client, content))
        if phase == "evaluate":
            metrics: dict[str, Any] = dict(content.config_records.get(ASK, {}))
            if not content.metric_records:
                return Result(client, 0, metrics=metrics)
            count = self.samples(content)
            self.replied.append((client, content))
            return Result(client, count, metrics=metrics)
        return self._trained(phase, plan, task, content)

    def _trained(
        self, phase: str, plan: Plan, task: Task, content: RecordDict
    ) -> Result:
        count = self.samples(content)
        records = list(content.array_records.values())
        if len(records) != 1:
            detail = f"{len(records)} ArrayRecords in the reply instead of one"
            raise InvalidResultError("shape", detail)
        model, rest = self.layout.read(records[0])
        if phase == "train":
            self._trained_others.append(rest)
            self.replied.append((task.client, content))
            choice = self._choice(task.client, content) if chooses(task) else {}
            return Result(task.client, count, [model], metrics=choice)
        update = model - self.initial
        if size := getattr(self.settings, "sketch", 0):
            update = sketch(update, size, self.seed)
        if "pretrain" in plan.config:
            return Result(task.client, count, [update])
        chosen = nearest_group(update, [plan.models[k] for k in task.models])
        return Result(task.client, count, metrics={"cluster": chosen})

    def samples(self, content: RecordDict) -> int:
        """Return the weight of a reply."""
        records = list(content.metric_records.values())
        key = self.terms.weighted_by_key
        value: Any = records[0].get(key) if len(records) == 1 else None
        if not isinstance(value, int | float) or not 0 < value < float("inf"):
            detail = f"metrics: {key}={value!r}, which has to be a number above 0"
            raise InvalidResultError("num-examples", detail)
        weight: Any = value
        return weight  # type: ignore[no-any-return]  # A float can be one, too.

    # Reports -------------------------------------------------------------------------

    def find_classes(self) -> int:
        """Ask all nodes to report, keep their answers, and return how many labels.

        A method has to know it before its first round.
        """
        self.discover()
        tasks = [Task(client) for client in self.clients]
        plan = Plan(tasks, [], ReportRequest("label_histogram").to_config())
        replies = self.send_and_receive(self.messages("query", 1, plan))
        self._early = {reply.metadata.src_node_id: reply for reply in replies}
        contents = [
            each.content for each in self._early.values() if not each.has_error()
        ]
        reports: list[Any] = [c.config_records.get(ASK, {}) for c in contents]
        sent = [each.get("representation") for each in reports]
        lengths = [len(each) // 4 for each in sent if isinstance(each, bytes)]
        # What most say: one that lies must not make all others wrong. Without any
        # report all nodes are alike, with whatever number of labels.
        self.classes = max(lengths, key=lengths.count, default=2)
        return self.classes

    def _first_report(self, client: ClientId, content: RecordDict) -> dict[str, Scalar]:
        """Return a node's first report: without the mod, that it has no labels."""
        nothing = label_histogram(np.zeros(0, np.int64), self.classes)
        without = DriftReport(nothing, 0).to_metrics()
        return self._said(client, content, without, "label_histogram(...)")

    def _choice(self, client: ClientId, content: RecordDict) -> dict[str, Scalar]:
        """Return which model a node chose: without the mod, the first."""
        return self._said(client, content, {"cluster": 0}, "choose_by_loss(evaluate)")

    def _said(
        self, client: ClientId, content: RecordDict, without: Any, mod: str
    ) -> dict[str, Any]:
        """Return what a node's mod says, or what one without it is taken to say."""
        if ASK in content.config_records:
            self.reporting.add(client)
            return dict(content.config_records[ASK])
        if client not in self.silent:
            words = "node %s has no mod %s, and counts as one that reports nothing"
            log.warning(f"{words}: see cfl_flower.mods", client, mod)
            self.silent.add(client)
        return dict(without)


def chooses(task: Task) -> bool:
    """Return whether a node says which model it trained."""
    return len(task.models) > 1 or bool(task.config)


def metric_form(content: RecordDict) -> frozenset[tuple[str, int]]:
    """Return the names of a reply's metrics with their lengths, -1 for a number."""
    return frozenset(
        (name, len(value) if isinstance(value, list) else -1)
        for record in content.metric_records.values()
        for name, value in record.items()
    )
