"""What a device refuses, whoever wrote the message."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from cfl_flower.client.drift_report import DriftReport
from cfl_flower.client.node_config import LEAST_MEMBERS, SECURE_SUMS, NodeConfig
from cfl_flower.clustering.representations import label_histogram
from cfl_flower.communication.exact_sum import ExactSum
from cfl_flower.communication.identity import public_key
from cfl_flower.communication.task_records import TaskBatch
from cfl_flower.privacy.settings import NoPrivacy
from cfl_flower.secure.device import keep_to_list
from cfl_flower.secure.device_sums import DeviceSums
from cfl_flower.secure.groups import (
    GROUPS,
    REVEAL,
    SIGNED,
    Groups,
    Revealed,
    RevealRequest,
    from_text,
    to_text,
)
from cfl_flower.secure.masks import GroupMember
from cfl_flower.types import (
    LEFT_OUT,
    OUTCOMES,
    PASSES,
    START_RMS,
    Answer,
    Plan,
    Scalar,
    SumSpec,
    Task,
    Vector,
)

RUN = "a" * 32
SUMS = SumSpec((0,), by_samples=False, masked=True)
MODEL = np.ones(4, np.float32)
EVERYONE = list(range(6))


def batch_of(phase: str, round: int, plan: Plan, model: Vector) -> TaskBatch:
    return TaskBatch(phase, round, "{}", plan, {0: model}, {0: 1}, [])


class Site:
    """A device among others, whom the server asks in a round."""

    def __init__(self, folder: Path, others: int = 5, **node: Any) -> None:
        found = NodeConfig.of({"client-id": 0, "state-dir": str(folder), **node})
        own = found.secret(RUN)
        secrets = [own, *(bytes([place] * 32) for place in range(1, 1 + others))]
        self.secrets = sorted(secrets, key=public_key)
        self.place = self.secrets.index(own)
        self.fewer = [p for p in EVERYONE if p != (self.place + 1) % 6]
        """The places of all but one other."""
        self.node = found
        self.model = MODEL

    def sums(self, **privacy: Any) -> DeviceSums:
        return DeviceSums(self.node, {"run": RUN, "privacy": NoPrivacy(**privacy)})

    def task(self, salt: int = 1, count: int | None = None) -> Task:
        keys = [public_key(secret) for secret in self.secrets]
        if count is not None:
            others = [key for key in keys if key != keys[self.place]]
            keys = sorted([keys[self.place], *others[: count - 1]])
        groups = to_text(Groups(bytes([salt] * 32), [keys]))
        return Task(0, (0,), {GROUPS: groups})

    def refusal(self, sums: DeviceSums, round: int, task: Task, **plan: Any) -> str:
        """Return why the device does not train; empty if it does."""
        asked = Plan([task], [MODEL], reply=(4,), sum_spec=SUMS)
        batch = batch_of("train", round, replace(asked, **plan), self.model)
        problem = sums.refuse(batch, task)
        return "" if problem is None else problem[1]

    def trained(self, round: int = 1) -> DeviceSums:
        """Return the device, which has sent a masked result in a round."""
        sums = self.sums(secure_sums=True)
        assert not self.refusal(sums, round, self.task(salt=round))
        total = ExactSum.empty(4)
        total.add(MODEL, 1)
        sums.hide({(0, 0): total}, round, self.task(salt=round))
        return sums

    def ask(
        self, sums: DeviceSums, request: RevealRequest, round: int = 1, salt: int = 1
    ) -> Answer:
        task = Task(0, (), self.task(salt).config | {REVEAL: to_text(request)})
        return sums.open_sums(round, task)

    def others(self, salt: int) -> list[GroupMember]:
        groups = from_text(Groups, self.task(salt).config[GROUPS])
        return [GroupMember(secret, groups, 0) for secret in self.secrets]

    def reveal(
        self,
        sums: DeviceSums,
        senders: list[int],
        round: int = 1,
        salt: int = 1,
        forge: Callable[[list[bytes]], list[bytes]] = list,
    ) -> Answer:
        """Return the device's refusal to sign, or what it answers to all signatures."""
        answer = self.ask(sums, RevealRequest([senders]), round, salt)
        if answer.error is not None:
            return answer
        (own,) = from_text(list[bytes], answer.metrics[SIGNED])
        others = self.others(salt)
        signed = [others[sender].sign(senders) for sender in senders]
        assert own == signed[senders.index(self.place)]
        sealed = [
            b"" if p == self.place else others[p].share_out(bytes(16))[self.place]
            for p in senders
        ]
        return self.ask(
            sums, RevealRequest([senders], [sealed], [forge(signed)]), round, salt
        )


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_its_own_configuration_stands_above_the_run(tmp_path):
    strict = Site(tmp_path, **{SECURE_SUMS: True, LEAST_MEMBERS: 5})
    sums = strict.sums()
    assert sums.required
    for wanted in (sums, strict.sums(secure_sums=True)):
        assert "without masks" in strict.refusal(wanted, 1, Task(0))
        assert "without masks" in strict.refusal(
            wanted, 1, strict.task(), sum_spec=None
        )
    assert "fewer than" in strict.refusal(sums, 1, strict.task(count=4))
    assert not strict.refusal(sums, 1, strict.task(count=5))
    plain = Answer(0, [MODEL], 7)
    kept = sums.keep_in(plain, directions=False)
    assert kept.error == ("refused", "its result would leave without masks")
    assert not len(kept.arrays)
    assert sums.keep_in(plain, directions=True).error is not None
    asked = Site(tmp_path / "c").sums(secure_sums=True)
    assert asked.keep_in(plain, directions=True) is plain
    assert asked.keep_in(plain, directions=False).error is not None
    assert Site(tmp_path / "b").sums().keep_in(plain, directions=False) is plain


COUNTED = DriftReport(label_histogram(np.array([0, 1, 1, 3]), 10), 4)
REPORTED = COUNTED.to_metrics()
OTHERS = {
    "gradient": {"representation": bytes(4 * 896), "samples": 4},
    "as few numbers as labels": {"representation": bytes(4 * 10), "samples": 4},
    "one number": {"representation": bytes(4), "samples": 4},
    "text": {"representation": "0.25", "samples": 4},
    "other count": {**REPORTED, "samples": 5},
    "cluster": {"cluster": 1},
    "losses": {"losses": bytes(16), "counts": bytes(8)},
    "classes": {"classes": bytes(40)},
    "mistakes": {"right": 3},
    "length": {"update_lengths": bytes(4)},
}
"""What no owner lets leave, whatever it is called and however short it is."""


@pytest.mark.parametrize("phase", ["query", "train", "evaluate"])
@pytest.mark.parametrize("kind", OTHERS)
def test_of_its_data_a_strict_device_sends_what_is_on_its_list(kind, phase):
    tested: dict[str, Scalar] = {}
    if phase == "evaluate":
        tested = {"correct": 3, "validation_correct": 1, "validation_tested": 2}
    asked: dict[str, Scalar] = {OUTCOMES: b"x", START_RMS: 0.5, PASSES: 3}
    told = Answer(0, num_examples=4, loss=0.5, metrics={**tested, **asked})
    found = keep_to_list(phase, told, lambda: COUNTED)
    tested[OUTCOMES] = LEFT_OUT
    assert found == replace(told, metrics=tested)
    counted = replace(told, metrics={**tested, **REPORTED})
    assert keep_to_list(phase, counted, lambda: COUNTED) == counted
    other = replace(told, metrics={**tested, **asked, **OTHERS[kind]})
    found = keep_to_list(phase, other, lambda: COUNTED)
    if phase == "evaluate":
        # The test is as it was.
        assert (found.loss, found.num_examples) == (0.5, 4)
        assert found.metrics == tested
    else:
        assert "lets no" in found.error[1]
        assert not found.metrics


def test_a_salt_is_used_once(site):
    sums = site.sums(secure_sums=True)
    # Of a round that was asked for late, too.
    for salt, round in enumerate((7, 6, 8, 9), start=1):
        assert not site.refusal(sums, round, site.task(salt=salt))
        assert "this salt" in site.refusal(sums, round, site.task(salt=salt))
    assert "this salt" in site.refusal(sums, 10, site.task(salt=2))
    assert site.refusal(sums, 10, Task(0, (0,), {GROUPS: to_text(Groups(b"x", [[]]))}))
    # In a round it answers to one list of groups.
    assert "other groups" in site.refusal(sums, 9, site.task(salt=5, count=4))
    for late in (1, 7):
        assert "after round 9" in site.refusal(sums, late, site.task(salt=20 + late))


@limits(max_examples=20)
@given(st.lists(st.integers(1, 9), max_size=8))
def test_no_order_of_questions_leads_back_to_an_old_round(rounds):
    with TemporaryDirectory() as folder:
        site = Site(Path(folder))
        sums = site.sums(secure_sums=True)
        newest = 0
        for salt, round in enumerate(rounds, start=1):
            refused = site.refusal(sums, round, site.task(salt=salt))
            assert (f"after round {newest}" in refused) == (round < newest - 1)
            newest = max(newest, round)


@pytest.mark.parametrize(
    ("phase", "more", "why"),
    [
        ("query", {}, "training alone"),
        ("evaluate", {}, "training alone"),
        ("train", {"round": 3}, "several tasks or rounds"),
        ("train", {"twice": True}, "several tasks or rounds"),
        ("train", {"at": -1}, "for round -1"),
    ],
)
def test_masks_are_for_one_result_of_training(site, phase, more, why):
    task = site.task()
    task = replace(task, round=more.get("round"))
    tasks = [task, task] if "twice" in more else [task]
    plan = Plan(tasks, [MODEL], reply=(4,), sum_spec=SUMS)
    batch = batch_of(phase, more.get("at", 1), plan, MODEL)
    problem = site.sums(secure_sums=True).refuse(batch, task)
    assert why in problem[1]


def test_of_requests_at_once_one_is_answered(site, tmp_path):
    for round in range(1, 6):
        sums = site.trained(round)
        with ThreadPoolExecutor(2) as pool:
            answers = [
                pool.submit(site.reveal, sums, senders, round, round)
                for senders in (EVERYONE, site.fewer)
            ]
            errors = [answer.result().error for answer in answers]
        assert errors.count(None) == 1


def test_it_opens_one_sum_in_a_round_and_reads_the_shares_of_one_result(site):
    sums = site.trained()
    assert site.reveal(sums, EVERYONE).error is None
    # The same senders, and what they encrypted for another result.
    error = site.reveal(sums, EVERYONE).error
    assert error == ("refused", "it was asked for other shares with this salt before")
    error = site.reveal(sums, site.fewer).error
    assert error == ("refused", "it signed other senders in this round before")
    # Nor after the server died, and asked for the round once more.
    assert not site.refusal(sums, 1, site.task(salt=9))
    assert site.reveal(sums, site.fewer, salt=9).error == error


@pytest.mark.parametrize(
    ("senders", "why"),
    [
        (lambda own: [own], "too small"),
        (lambda own: sorted((own + step) % 6 for step in range(4)), "too small"),
        (lambda own: [p for p in range(6) if p != own], "own result is not in the sum"),
        (lambda own: [0, 1, 2, 3, 4, 5, 6], "not in their group"),
        (lambda own: [0, 1, 2, 3, 4, 4], "not in their group"),
        (lambda own: [-1, 0, 1, 2, 3, 4], "not in their group"),
        (lambda own: [5, 4, 3, 2, 1, 0], "not in their group"),
    ],
)
def test_it_opens_no_sum_of_others_or_of_few(site, senders, why):
    sums = site.trained()
    asked = senders(site.place)
    answer = site.ask(sums, RevealRequest([asked]))
    assert why in answer.error[1]
    assert not answer.metrics


def test_it_opens_the_sum_of_those_that_sent_and_of_no_round_without_its_result(site):
    untrained = site.sums(secure_sums=True)
    told = "it sent no result to these groups in this round"
    assert site.reveal(untrained, EVERYONE).error == ("refused", told)
    sums = site.trained(round=2)
    assert site.reveal(sums, EVERYONE, round=1, salt=2).error == ("refused", told)
    assert site.reveal(sums, EVERYONE, round=2, salt=1).error == ("refused", told)
    answer = site.reveal(sums, site.fewer, round=2, salt=2)
    assert answer.error is None
    (opened,) = from_text(list[Revealed], answer.metrics[REVEAL])
    assert sorted(len(share) for share in opened.shares) == [0, 16, 16, 16, 16]
    assert [len(seed) for seed in opened.seeds] == [32]


FORGED: dict[str, Callable[[Site, list[bytes]], list[bytes]]] = {
    "none": lambda _, signed: [b""] * len(signed),
    "two lack": lambda _, signed: [b"", b"", *signed[2:]],
    "one's twice": lambda _, signed: [signed[2], signed[3], *signed[2:]],
    "garbled": lambda _, signed: [bytes(64), b"short", *signed[2:]],
    "of another list": lambda site, _: [
        other.sign(site.fewer) for other in site.others(1)
    ],
}


@pytest.mark.parametrize("kind", FORGED)
def test_it_reveals_nothing_until_enough_have_signed_the_same_list(kind, site):
    sums = site.trained()
    forge = partial(FORGED[kind], site)
    error = site.reveal(sums, EVERYONE, forge=forge).error
    told = "too few of the senders have signed that they are the senders"
    assert error == ("refused", told)
    one_lost = site.reveal(sums, EVERYONE, forge=lambda signed: [b"", *signed[1:]])
    assert one_lost.error is None


@pytest.mark.parametrize("first", [5, 6])
def test_it_signs_one_list_of_senders_for_a_model(first, site):
    """Not in a later round either: the difference would be a single result."""
    lists = {5: site.fewer, 6: EVERYONE}
    sums = site.trained(1)
    assert site.reveal(sums, lists[first]).error is None
    sums = site.trained(2)
    error = site.reveal(sums, lists[11 - first], 2, 2).error
    assert error == ("refused", "it had this model before, in a sum of other senders")
    sums = site.trained(3)
    assert site.reveal(sums, lists[first], 3, 3).error is None, "the same ones again"
    site.model = np.nextafter(MODEL, np.float32(2))
    sums = site.trained(4)
    assert site.reveal(sums, lists[11 - first], 4, 4).error is None, "another model"
    site.model = MODEL
    sums = site.trained(5)
    assert site.reveal(sums, lists[11 - first], 5, 5).error == error


@pytest.mark.parametrize(
    "text", ["", "7", "[" * 200_000, "[[1]]", "[[[],[]]", '[["zz"],[]]', "null"]
)
def test_what_a_device_reveals_is_read_with_care(text):
    with pytest.raises(ValueError):
        from_text(list[Revealed], text)
