"""Which settings of other groups a method can be used with."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from cfl_flower.building import locate
from cfl_flower.engine.stages import STAGES
from cfl_flower.engine.stages.stage import Rule
from cfl_flower.errors import NoConceptsError
from cfl_flower.learning.by_name import check_parts
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.run_config import RunConfig
from cfl_flower.settings import located, require


def check_method(method: type[Any], config: RunConfig) -> None:
    """Raise `ConfigError` for settings that a method, or a stage, does not go with."""
    for rule in chain(method_rules(method, config), group_rules(config)):
        require(*rule)
    check_training(config)
    applied = [stage for stage in STAGES if stage.applies(config)]
    for rule in chain.from_iterable(each.rules(config, method) for each in applied):
        require(*rule)
    if not (method.supports.one_concept or config.timeline.has_concepts):
        names = config.names
        raise NoConceptsError(
            f"strategy={names['strategy']} is not allowed; use it where there are "
            f"several true concepts: with partition={names['partition']} and drift="
            f"{names['drift']} there is one, and the oracle would be fedavg"
        )


def method_rules(method: type[Any], config: RunConfig) -> Iterator[Rule]:
    """Yield what a method requires of the server optimiser and the selection."""
    optimizer = config.server_optimizer
    selection = config.selection
    supports = method.supports
    name = f"strategy={config.names['strategy']}"
    # The loss is reported by a client that trains the one model it receives.
    reports_loss = getattr(locate(config.strategy.client), "reports_loss", False)
    own_step = not supports.server_optimizer
    ok = not (own_step and (optimizer.remembers or optimizer.by_loss))
    why = f"average with {name}, whose server has its own step or none"
    yield Rule.of(config, "server_optimizer", ok, why)
    ok = reports_loss or not optimizer.by_loss
    why = f"another one with {name}, whose clients do not report the loss of one "
    yield Rule.of(config, "server_optimizer", ok, f"{why}received model")
    ok = supports.centres or not selection.by_distance
    why = f"random or oort with {name}, which has no representations"
    yield Rule.of(config, "selection", ok, why)
    ok = supports.selection or not selection.learns
    yield Rule.of(config, "selection", ok, f"random with {name}, which selects nobody")
    own: Any = getattr(config.strategy, "privacy", None)
    yield Rule(
        config.privacy.on or not getattr(own, "whole_client", False),
        "strategy/privacy",
        getattr(own, "name", ""),
        "another one, or with privacy=central or local, which keep account",
    )


def group_rules(config: RunConfig) -> Iterator[Rule]:
    """Yield what faults require of the number of clients, and measures of the data."""
    attackers = config.faults.attackers
    yield Rule(
        all(each < config.clients for each in attackers),
        "faults.attackers",
        attackers,
        f"numbers below clients={config.clients}",
    )
    best = config.system.checkpoint_best
    measured = {"accuracy", "accuracy_mean", "loss", *config.metrics}
    measured -= {"per_class", "forgetting"}
    if config.partition.validation:
        measured.add("validation_accuracy")
    allowed = f"{', '.join(sorted(measured))}, or what metrics or validation add"
    yield Rule(best in {None, *measured}, "system.checkpoint_best", best, allowed)
    dataset: Any = config.dataset
    lacks = config.privacy.on and getattr(dataset, "lacks_sums", False)
    allowed = (
        f"false with privacy={config.names['privacy']}, whose account does not cover "
        "sums of inputs; in a simulation also pooled"
    )
    yield Rule(not lacks, "dataset.standardise", "clients", allowed)
    classes = config.dataset.classes
    yield Rule(
        "auc" not in config.metrics or classes == 2,
        "metrics",
        f"[{','.join(config.metrics)}]",
        f"others than auc, which is of two labels: dataset={config.names['dataset']} "
        f"has {classes}",
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
