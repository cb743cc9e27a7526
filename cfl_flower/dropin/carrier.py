"""A method's tasks as Flower's plain messages, and the replies to them as results.

A ClientApp that trains and tests what it receives answers them as it answers FedAvg.
A client is a node, and its id the node's. What a method asks beyond that is in a record
of its own, `mods.ASK`, which an app without the mod does not look at.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy.strategy_utils import sample_nodes

from cfl_flower.client.drift_report import DriftReport, ReportRequest
from cfl_flower.clustering.similarity import nearest_group, normalise, sketch
from cfl_flower.communication.grid import PatientGrid
from cfl_flower.communication.identity import last_sentence
from cfl_flower.communication.partial_sums import add_result
from cfl_flower.communication.results import Results
from cfl_flower.dropin.layout import Layout, Others, middle
from cfl_flower.dropin.terms import Terms
from cfl_flower.errors import InvalidResultError
from cfl_flower.mods import ASK, FIRST, NEAR, NEAR_LAMBDA
from cfl_flower.privacy.clipping import capped_counts
from cfl_flower.seeding import generator
from cfl_flower.types import REPORT, ClientId, Failure, Plan, Result, Task, Vector

log = logging.getLogger(__name__)

COLD_STARTS = {"pretrain", "directions", "represent"}
"""Questions that a node answers by training from the initial arrays: FlexCFL's first
groups, and the choice of one; StoCFL's directions."""

MODS = {REPORT: "label_histogram or embedding", "choose": "choose_by_loss"}
"""The mods that answer a method's question before a round, by the question."""

HINTS = {
    "No evaluate function": "add @app.evaluate(), or give fraction_evaluate=0",
    "ins.parameters'": "an app of a client_fn has the mod numpy_client, as the last",
}
"""What helps against the errors of some apps, by words that Flower has for them."""


class Carrier:
    """Brings tasks to plain ClientApps. Stands where the engine has its `Fleet`."""

    simulated = False
    """Nodes come, go, and fail, as devices do."""
    summing_nodes = 0
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
        self.disputes: dict[ClientId, str] = {}
        self.width = 2
        """The numbers in what a mod reports of data."""
        self.replied: list[tuple[ClientId, RecordDict]] = []
        """The valid replies of the phase, for the means of metrics."""
        self.failures: list[Failure] = []
        """Those of the round."""
        self.reporting: set[ClientId] = set()
        """The nodes that have a mod."""
        self._counters: dict[ClientId, Others] = {}
        self._silent: set[ClientId] = set()
        self._lost: set[ClientId] = set()
        """The nodes that have lost the app's initial arrays, and get them again."""
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
            new = [task for task in tasks if task.client not in self._silent]
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
        near = {NEAR_LAMBDA: self.terms.settings.regularisation}
        message = self._message("train", others[0], task, extra=near)
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
        reporting = self.reporting if REPORT in plan.config else set[ClientId]()
        found = []
        for place, task in enumerate(tasks):
            tests = place in tested
            model = plan.models[task.models[0]] if tests else None
            if task.client in reporting:
                found.append(self._to_report(plan, task, model, tests))
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
        if task.client in self._lost:
            message.content[FIRST] = self.layout.write(self.initial, self.others)
            self._lost.remove(task.client)
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
        self.replied = []
        self._counters = {}
        found = {(e.metadata.src_node_id, e.metadata.group_id): e for e in replies}
        for client, (plan, task) in self._sent.items():
            groups = map(str, range(max(1, len(plan.reply))))
            own = [found.get((int(client), group)) for group in groups]
            try:
                result = self._read(phase, plan, task, own)
                if plan.sum_spec is not None:
                    result = add_result(results.sums, task, result, plan.sum_spec)
                results.append(result)
            except InvalidResultError as error:
                failure = self.fail(client, phase, error)
                # Nothing of a result that is refused counts.
                self._counters.pop(client, None)
                self.replied = [each for each in self.replied if each[0] != client]
                # A node that cannot test goes on training, as with FedAvg.
                if phase != "evaluate":
                    results.failures.append(failure)
        if self._counters:
            self.others = middle([*self._counters.values()])
        self._leave_out_odd_metrics(phase)
        self._limit_weights()
        results.sort_by_client()
        return results

    def _leave_out_odd_metrics(self, phase: str) -> None:
        """Leave out metrics that not two thirds of nodes send, of a length and finite.

        Flower's means need all to be alike: a node that lacks one is left out of all.
        """
        forms = [metric_form(content) for _, content in self.replied]
        sent = Counter(chain.from_iterable(forms))
        usual = {each for each, count in sent.items() if 3 * count >= 2 * len(forms)}
        for form, replied in zip(forms, [*self.replied], strict=True):
            client, content = replied
            odd = {name for name, _ in form ^ usual}
            for record in content.metric_records.values():
                for name in record.keys() - {name for name, _ in usual}:
                    odd.add(name)
                    del record[name]
            if not form >= usual:
                self.replied.remove(replied)
            if odd:
                detail = f"{sorted(odd)} are not finite, or others or longer than most"
                self.fail(client, phase, InvalidResultError("metrics", detail))

    def _limit_weights(self) -> None:
        """Limit what weighs the nodes' metrics, as what weighs their models is."""
        key = self.terms.weighted_by_key
        records = [next(iter(each.metric_records.values())) for _, each in self.replied]
        told = np.array([[record[key]] for record in records], float)
        most = capped_counts(told, self.terms.settings.weight_cap) if records else told
        for record, (limit,) in zip(records, most.tolist(), strict=True):
            record[key] = min(record[key], type(record[key])(limit) or limit)

    def _read(
        self, phase: str, plan: Plan, task: Task, replies: list[Message | None]
    ) -> Result:
        """Return what a node's replies say, or raise `InvalidResultError`."""
        client = task.client
        asked = plan.config.keys()
        if phase == "evaluate":
            return self._tested(client, content_of(replies[0]))
        if phase == "train" or asked & COLD_STARTS:
            contents = [content_of(reply) for reply in replies]
            return self._trained(phase, plan, task, contents)
        question = next((each for each in MODS if each in asked), None)
        if question is None:
            # Nodes report their number of samples when they have trained.
            return Result(client, 1)
        silent = client in self._silent
        content = RecordDict() if silent else content_of(replies[0])
        return Result(client, 1, metrics=self._said(client, content, question))

    def _tested(self, client: ClientId, content: RecordDict) -> Result:
        """Return a test, or a report without one."""
        metrics: dict[str, Any] = dict(content.config_records.get(ASK, {}))
        if metrics.pop(FIRST, False):
            self._lost.add(client)
        if not content.metric_records:
            return Result(client, 0, metrics=metrics)
        count = self._samples(content)
        self.replied.append((client, content))
        return Result(client, count, metrics=metrics)

    def _trained(
        self, phase: str, plan: Plan, task: Task, contents: list[RecordDict]
    ) -> Result:
        """Return the trained models, or what a cold start says."""
        count = self._samples(contents[0])
        models = []
        for content in contents:
            records = list(content.array_records.values())
            if len(records) != 1:
                detail = f"{len(records)} ArrayRecords in the reply instead of one"
                raise InvalidResultError("shape", detail)
            model, counters = self.layout.read(records[0])
            models.append(model)
        if phase == "query":
            return self._cold_start(plan, task, count, models[0])
        self._counters[task.client] = counters
        self.replied.append((task.client, contents[0]))
        choice = {}
        if chooses(plan, task):
            choice = self._said(task.client, contents[0], "choose")
        return Result(task.client, count, models, metrics=choice)

    def _cold_start(self, plan: Plan, task: Task, count: int, model: Vector) -> Result:
        """Return the update from the initial arrays, or the group that it chooses."""
        settings = self.terms.settings
        update = model - self.initial
        if settings.sketch:
            update = sketch(update, settings.sketch, self.terms.seed)
        if "pretrain" in plan.config:
            return Result(task.client, count, [update])
        if "represent" in plan.config:
            # StoCFL's psi is what training goes down by: the gradient, of one step.
            return Result(task.client, count, [normalise(-update)])
        chosen = nearest_group(update, [plan.models[k] for k in task.models])
        return Result(task.client, count, metrics={"cluster": chosen})

    def _samples(self, content: RecordDict) -> Any:
        """Return the weight of a reply, which may be a float."""
        records = list(content.metric_records.values())
        key = self.terms.weighted_by_key
        value = records[0].get(key) if len(records) == 1 else None
        if not isinstance(value, int | float) or not 0 < value < float("inf"):
            wanted = "which has to be a number above 0, in the only MetricRecord"
            detail = f"metrics: {key}={value!r}, {wanted}"
            raise InvalidResultError("num-examples", detail)
        return value

    # What mods say -------------------------------------------------------------------

    def find_width(self, timeout: float) -> int:
        """Ask all nodes to report, and return how many numbers they say.

        A method has to know it before its first round. ``timeout`` is in seconds.
        """
        self.discover()
        tasks = [Task(client) for client in self.clients]
        kind = self.terms.settings.representation.name
        plan = Plan(tasks, [], ReportRequest(kind).to_config())
        messages = self.messages("query", 1, plan)
        replies = self.grid.send_and_receive(messages, timeout=timeout)
        results = self.collect(replies, "query")
        reports = [r.metrics.get(REPORT) for r in results if r.client in self.reporting]
        lengths = [len(each) // 4 for each in reports if isinstance(each, bytes)]
        # Take what most nodes say, so that one liar cannot make all others wrong. If
        # none reports, all nodes are alike, whatever the number.
        self.width = max(lengths, key=lengths.count, default=self.width)
        return self.width

    def _said(self, client: ClientId, content: RecordDict, question: str) -> Any:
        """Return what a node's mod says.

        A node without the mod counts as one without samples, or that chooses model 0.
        """
        if ASK in content.config_records:
            self.reporting.add(client)
            return dict(content.config_records[ASK])
        if client not in self._silent:
            words = "node %s has no mod %s where it belongs, and reports nothing"
            log.warning(f"{words}: see cfl_flower.mods", client, MODS[question])
            self._silent.add(client)
        if question == "choose":
            return {"cluster": 0}
        share = self.terms.settings.representation.has_labels / self.width
        return DriftReport(np.full(self.width, share, np.float32), 0).to_metrics()


def chooses(plan: Plan, task: Task) -> bool:
    """Return whether a node says which model it trained."""
    return len(task.models) > max(1, len(plan.reply)) or bool(task.config)


def content_of(reply: Message | None) -> RecordDict:
    """Return what a node replied, or raise `InvalidResultError`."""
    if reply is None:
        detail = "it has left or was late, or an override dropped its reply"
        raise InvalidResultError("node", detail)
    if not reply.has_error():
        return reply.content
    said = last_sentence(reply)
    hints = [f": {hint}" for words, hint in HINTS.items() if words in said]
    raise InvalidResultError("node", "".join([said, *hints]))


def metric_form(content: RecordDict) -> frozenset[tuple[str, int]]:
    """Return the names of a reply's finite metrics and lengths, -1 for a number."""
    return frozenset(
        (name, len(value) if isinstance(value, list) else -1)
        for record in content.metric_records.values()
        for name, value in record.items()
        if np.isfinite(np.array(value, float)).all()
    )
