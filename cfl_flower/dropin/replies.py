"""What nodes reply to a method's tasks, as its results; nothing of it is trusted."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
from flwr.app import Message, RecordDict

from cfl_flower.client.drift_report import DriftReport
from cfl_flower.clustering.similarity import nearest_group, normalise, sketch
from cfl_flower.communication.identity import last_sentence
from cfl_flower.dropin.layout import Layout, Others
from cfl_flower.dropin.terms import Terms
from cfl_flower.errors import InvalidResultError
from cfl_flower.mods import ASK, FAILED, FIRST
from cfl_flower.privacy.clipping import capped_counts
from cfl_flower.types import REPORT, ClientId, Plan, Result, Task, Vector

log = logging.getLogger(__name__)

COLD_STARTS = {"pretrain", "directions", "represent"}
"""Questions that a node answers by training from the initial arrays: FlexCFL's first
groups, and the choice of one; StoCFL's directions."""

MODS = {REPORT: "label_histogram or embedding", "choose": "choose_by_loss"}
"""The mods that answer a method's question before a round, by the question."""

PLAIN_NUMBERS = "return Python's float and int, not NumPy's numbers"

HINTS = {
    "No evaluate function": "add @app.evaluate(), or give fraction_evaluate=0",
    "Not all values are of valid type": PLAIN_NUMBERS,
    "did not return a tuple": PLAIN_NUMBERS,
    "ins.parameters'": "an app of a client_fn has the mod numpy_client, as the last",
}
"""What helps against the errors of some apps, by words that Flower has for them."""


@dataclass
class Reader:
    """Reads the replies of one phase after the other."""

    terms: Terms
    layout: Layout
    initial: Vector
    width: int = 2
    """The numbers in what a mod reports of data."""
    reporting: set[ClientId] = field(default_factory=set)
    """The nodes that have a mod."""
    silent: set[ClientId] = field(default_factory=set)
    """The nodes that lack the mod."""
    lost: set[ClientId] = field(default_factory=set)
    """The nodes that have lost the app's initial arrays."""
    replied: list[tuple[ClientId, RecordDict]] = field(default_factory=list)
    """The valid replies of the phase, for the means of metrics."""
    counters: dict[ClientId, Others] = field(default_factory=dict)
    """The arrays of the phase that are no floats."""

    def begin(self) -> None:
        """Forget the last phase's replies."""
        self.replied = []
        self.counters = {}

    def drop(self, client: ClientId) -> None:
        """Forget what a node replied whose result is refused."""
        self.counters.pop(client, None)
        self.replied = [each for each in self.replied if each[0] != client]

    def read(
        self, phase: str, plan: Plan, task: Task, replies: list[Message | None]
    ) -> Result:
        """Return what a node's replies say, or raise `InvalidResultError`."""
        client = task.client
        asked = plan.config.keys()
        if phase == "evaluate":
            return self._tested(task, content_of(replies[0]))
        if phase == "train" or asked & COLD_STARTS:
            contents = [content_of(reply) for reply in replies]
            return self._trained(phase, plan, task, contents)
        question = next((each for each in MODS if each in asked), None)
        if question is None:
            # Nodes report their number of samples when they have trained.
            return Result(client, 1)
        content = RecordDict() if client in self.silent else content_of(replies[0])
        return Result(client, 1, metrics=self._said(client, content, question))

    def _tested(self, task: Task, content: RecordDict) -> Result:
        """Return a test, or a report where no test was asked for."""
        client = task.client
        metrics: dict[str, Any] = dict(content.config_records.get(ASK, {}))
        if metrics.pop(FIRST, False):
            self.lost.add(client)
        if failed := metrics.pop(FAILED, None):
            raise InvalidResultError("node", hinted(str(failed)[:200]))
        if not (task.models or content.metric_records):
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
        self.counters[task.client] = counters
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

    def _said(self, client: ClientId, content: RecordDict, question: str) -> Any:
        """Return what a node's mod says.

        A node without the mod counts as one without samples, or that chooses model 0.
        """
        if ASK in content.config_records:
            self.reporting.add(client)
            return dict(content.config_records[ASK])
        if client not in self.silent:
            words = "node %s has no mod %s where it belongs, and reports nothing"
            log.warning(f"{words}: see cfl_flower.mods", client, MODS[question])
            self.silent.add(client)
        if question == "choose":
            return {"cluster": 0}
        share = self.terms.settings.representation.has_labels / self.width
        return DriftReport(np.full(self.width, share, np.float32), 0).to_metrics()

    def learn_width(self, results: Iterable[Result]) -> None:
        """Know from now on how many numbers the mods report.

        What most say, so that one liar cannot make all others wrong. If none reports,
        all nodes are alike, whatever the number.
        """
        own = [each for each in results if each.client in self.reporting]
        reports = [each.metrics.get(REPORT) for each in own]
        lengths = [len(each) // 4 for each in reports if isinstance(each, bytes)]
        self.width = max(lengths, key=lengths.count, default=self.width)

    def leave_out_odd_metrics(self) -> Iterator[tuple[ClientId, set[str]]]:
        """Leave out metrics that not two thirds of nodes send, of a length and finite.

        Yields who sent or lacks them, and their names. Flower's means need all to be
        alike: a node that lacks one is left out of all.
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
                yield client, odd

    def limit_weights(self) -> None:
        """Limit what weighs the nodes' metrics, as what weighs their models is."""
        key = self.terms.weighted_by_key
        records = [next(iter(each.metric_records.values())) for _, each in self.replied]
        told = np.array([[record[key]] for record in records], float)
        most = capped_counts(told, self.terms.settings.weight_cap) if records else told
        for record, (limit,) in zip(records, most.tolist(), strict=True):
            record[key] = min(record[key], type(record[key])(limit) or limit)


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
    raise InvalidResultError("node", hinted(last_sentence(reply)))


def hinted(said: str) -> str:
    """Return what a node says of its error, with what helps."""
    return said + "".join(f": {HINTS[words]}" for words in HINTS if words in said)


def metric_form(content: RecordDict) -> frozenset[tuple[str, int]]:
    """Return the names of a reply's finite metrics and lengths, -1 for a number."""
    return frozenset(
        (name, len(value) if isinstance(value, list) else -1)
        for record in content.metric_records.values()
        for name, value in record.items()
        if np.isfinite(np.array(value, float)).all()
    )
