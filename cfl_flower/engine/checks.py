"""Which settings of other groups a method can be used with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from cfl_flower.building import locate
from cfl_flower.engine.declarations import Disclosure, Method
from cfl_flower.engine.stages.privacy_budget import PrivacyGuard
from cfl_flower.engine.uploads_state import AsynchronousState
from cfl_flower.errors import NoConceptsError
from cfl_flower.learning.by_name import check_parts
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.learning.testing import COUNTED
from cfl_flower.models import build_model
from cfl_flower.privacy.accounting import epsilon_of, require_accountant
from cfl_flower.privacy.settings import LocalPrivacy
from cfl_flower.run_config import RunConfig
from cfl_flower.settings import located, require


class Rule(NamedTuple):
    """What must hold of a setting, and what is said where it does not."""

    holds: bool
    field: str
    value: object
    allowed: str


def check_method(method: type[Method], config: RunConfig) -> None:
    """Raise `ConfigError` for settings that a method, or privacy, does not go with."""
    _require(method_rules(method, config))
    _require(fault_rules(config))
    check_training(config)
    if config.privacy.on:
        _require(disclosure_rules(config, method.discloses))
        _require(privacy_rules(config))
        config.strategy.check_privacy()
        require_accountant(config.privacy.mode)
        _require(budget_rules(config, method.discloses))
    _require(restart_rules(config))
    _require(measure_rules(config))
    if config.privacy.secure_sums:
        _require(secure_sums_rules(config, method.discloses))
        config.strategy.check_secure_sums()
    if not (method.supports.one_concept or config.timeline.has_concepts):
        names = config.names
        raise NoConceptsError(
            f"strategy={names['strategy']} is not allowed; use it where there are "
            f"several true concepts: with partition={names['partition']} and drift="
            f"{names['drift']} there is one, and the oracle would be fedavg"
        )


def _require(rules: Iterator[Rule]) -> None:
    for rule in rules:
        require(rule.holds, rule.field, rule.value, rule.allowed)


def method_rules(method: type[Method], config: RunConfig) -> Iterator[Rule]:
    """Yield what a method requires of the server optimiser and the selection."""
    names = config.names
    optimizer = config.server_optimizer
    selection = config.selection
    supports = method.supports
    name = f"strategy={names['strategy']}"
    yield Rule(
        supports.server_optimizer or not (optimizer.remembers or optimizer.by_loss),
        "server_optimizer",
        names["server_optimizer"],
        f"average with {name}, whose server has its own step or none",
    )
    client = locate(config.strategy.client)
    yield Rule(
        # The loss is reported by a client that trains the one model it receives.
        getattr(client, "reports_loss", False) or not optimizer.by_loss,
        "server_optimizer",
        names["server_optimizer"],
        f"another one with {name}, whose clients do not report the loss of one "
        "received model",
    )
    yield Rule(
        supports.centres or not selection.by_distance,
        "selection",
        names["selection"],
        f"random or oort with {name}, which has no representations",
    )
    yield Rule(
        supports.selection or not config.devices.come_and_go,
        "devices.joins or devices.leaves",
        name,
        "a method that selects participants",
    )
    yield Rule(
        supports.selection or not selection.learns,
        "selection",
        names["selection"],
        f"random with {name}, which selects nobody",
    )
    yield from robust_rules(method, config)
    own: Any = getattr(config.strategy, "privacy", None)
    yield Rule(
        config.privacy.on or not getattr(own, "whole_client", False),
        "strategy/privacy",
        getattr(own, "name", ""),
        "another one, or with privacy=central or local, which keep account",
    )


def robust_rules(method: type[Method], config: RunConfig) -> Iterator[Rule]:
    """Yield what `strategy.robust` requires: single models that are only averaged."""
    rule = config.strategy.robust
    privacy = config.privacy
    name = f"strategy={config.names['strategy']}"
    sent = method.discloses
    refused = {
        f"{name}, which takes in models one by one": issubclass(
            method.State, AsynchronousState
        ),
        f"{name}, which compares single participants' models": sent is not None
        and sent.singly,
        "privacy.secure_sums, which hides single models: nobody can compare them": (
            privacy.secure_sums
        ),
    }
    for why, applies in refused.items():
        ok = rule in ("none", "clip") or not applies
        yield Rule(ok, "strategy.robust", rule, f"none or clip with {why}")
    bounded = privacy.mode == "central" or (
        privacy.mode == "local" and privacy.secure_sums
    )
    yield Rule(
        rule == "none" or not bounded,
        "strategy.robust",
        rule,
        f"none with privacy={privacy.mode}, whose privacy.clip bounds every update "
        "already",
    )


def fault_rules(config: RunConfig) -> Iterator[Rule]:
    """Yield what `faults` requires of the number of clients."""
    attackers = config.faults.attackers
    yield Rule(
        all(each < config.clients for each in attackers),
        "faults.attackers",
        attackers,
        f"numbers below clients={config.clients}",
    )


def check_training(config: RunConfig) -> None:
    """Raise `ConfigError` for local training that does not fit the data or rounds."""
    dataset = config.dataset
    scaling = getattr(dataset, "normalise", None)
    scaled = scaling is not None or getattr(dataset, "standardise", False)
    for name, training in vars(config.strategy).items():
        if isinstance(training, LocalTraining):
            with located(f"strategy.{name}"):
                training.rates(config.rounds)
                if training.augment:
                    check_parts(training.augment, dataset.shape, scaled)
                ok = name == "local" or not training.changes
                allowed = "null, and no warmup: the server trains before all rounds"
                require(ok, "strategy.schedule", training.schedule, allowed)


def restart_rules(config: RunConfig) -> Iterator[Rule]:
    """Yield what a run that hides something requires of its checkpoints.

    A server that dies goes back to its checkpoint, account and all. Devices know what
    they sent in the last rounds, and answer earlier ones anew.
    """
    every = config.system.checkpoint_every
    yield Rule(
        every == 1 or not (config.privacy.on or config.privacy.secure_sums),
        "system.checkpoint_every",
        every,
        "1 with privacy, so that a restart repeats no round that was sent",
    )


def measure_rules(config: RunConfig) -> Iterator[Rule]:
    """Yield what measures of tests require of the data, and of privacy."""
    metrics = config.metrics
    shown = f"[{','.join(metrics)}]"
    classes = config.dataset.classes
    yield Rule(
        "auc" not in metrics or classes == 2,
        "metrics",
        shown,
        f"others than auc, which is of two labels: dataset={config.names['dataset']} "
        f"has {classes}",
    )
    hidden = config.privacy.on or config.privacy.secure_sums
    yield Rule(
        not (hidden and set(COUNTED).intersection(metrics)),
        "metrics",
        shown,
        "worst_tenth and forgetting alone with privacy, which hides how many samples "
        "of each label a client has; the others are of counts by label",
    )


def disclosure_rules(config: RunConfig, sent: Disclosure | None) -> Iterator[Rule]:
    """Yield what `privacy=` requires of what a method's clients send."""
    mode = config.privacy.mode
    method = f"strategy={config.names['strategy']}"
    if sent is None:
        why = f"none with {method}, whose clients send what is not accounted for: its"
        yield Rule(False, "privacy", mode, f"{why} class has no `discloses`")
        return
    uncovered = sent.uncovered or (sent.in_sums if config.privacy.secure_sums else "")
    yield Rule(
        not uncovered,
        "privacy",
        mode,
        f"none with {method}, whose clients send {uncovered}, which no noise covers",
    )
    yield Rule(
        mode != "central" or not sent.singly,
        "privacy",
        mode,
        f"local or none with {method}, which compares single participants' models",
    )


def privacy_rules(config: RunConfig) -> Iterator[Rule]:
    """Yield what `privacy=` requires of other settings, so that it has a guarantee."""
    mode = config.privacy.mode
    names = config.names
    yield Rule(
        mode != "central" or config.strategy.weighting == "plain",
        "strategy.weighting",
        config.strategy.weighting,
        "plain with privacy=central, where each participant counts alike",
    )
    yield Rule(
        not config.selection.learns,
        "selection",
        names["selection"],
        f"random or nearest with privacy={mode}, which covers no losses",
    )
    yield Rule(
        not config.server_optimizer.by_loss,
        "server_optimizer",
        names["server_optimizer"],
        f"another one with privacy={mode}, which covers no losses",
    )
    dataset = config.dataset
    model = build_model(config.model, dataset.shape, dataset.classes, config.seed)
    averaged = ", ".join(sorted(model.observed.statistics)[:3])
    yield Rule(
        not averaged,
        "model",
        names["model"],
        f"one without running statistics ({averaged}) with privacy={mode}, which "
        "covers no more than parameters",
    )


def budget_rules(config: RunConfig, sent: Disclosure | None) -> Iterator[Rule]:
    """Yield that a budget lasts for one round."""
    privacy = config.privacy
    assert isinstance(privacy, LocalPrivacy)
    assert sent is not None
    least = epsilon_of(PrivacyGuard(config, sent).participation, privacy.delta)
    budget = privacy.epsilon_budget
    yield Rule(
        budget is None or least <= budget,
        "privacy.epsilon_budget",
        budget,
        f"at least {least:.3g}, the epsilon of taking part once, or more noise",
    )


def secure_sums_rules(config: RunConfig, sent: Disclosure | None) -> Iterator[Rule]:
    """Yield what `privacy.secure_sums` requires: that nobody needs single results."""
    names = config.names
    yield Rule(
        sent is not None,
        "privacy.secure_sums",
        "true",
        f"false with strategy={names['strategy']}, which does not say (`discloses`) "
        "that each cluster's sum is enough for its server",
    )
    yield Rule(
        not (sent is not None and sent.singly and not sent.in_sums),
        "privacy.secure_sums",
        "true",
        f"false with strategy={names['strategy']}, whose server needs more than each "
        "cluster's sum",
    )
    yield Rule(
        not config.server_optimizer.by_loss,
        "server_optimizer",
        names["server_optimizer"],
        "another one with privacy.secure_sums, which hides single models",
    )
    yield Rule(
        not config.selection.learns,
        "selection",
        names["selection"],
        "random or nearest with privacy.secure_sums, which hides no losses",
    )
    least = config.privacy.least_members
    yield Rule(
        config.participants >= least,
        "privacy.least_members",
        least,
        f"at most participants={config.participants}",
    )
