"""Which settings of other groups a method can be used with."""

from __future__ import annotations

from typing import Any

from cfl_flower.building import locate
from cfl_flower.engine.stages import STAGES
from cfl_flower.errors import NoConceptsError
from cfl_flower.learning.aggregation import Average
from cfl_flower.learning.by_name import check_parts
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.run_config import RunConfig
from cfl_flower.settings import located, require


def check_method(method: type[Any], config: RunConfig) -> None:
    """Raise `ConfigError` for settings that a method, or a stage, does not go with."""
    check_supported(method, config)
    check_groups(config)
    check_training(config)
    for stage in STAGES:
        if stage.applies(config):
            stage.check(config, method)
    if not (method.supports.one_concept or config.timeline.has_concepts):
        names = config.names
        raise NoConceptsError(
            f"strategy={names['strategy']} is not allowed; use it where there are "
            f"several true concepts: with partition={names['partition']} and drift="
            f"{names['drift']} there is one, and the oracle would be fedavg"
        )


def check_supported(method: type[Any], config: RunConfig) -> None:
    """Refuse server optimisers and selections that a method does not go with."""
    optimizer = config.server_optimizer
    selection = config.selection
    supports = method.supports
    name = f"strategy={config.names['strategy']}"
    # The loss is reported by a client that trains the one model it receives.
    reports_loss = getattr(locate(config.strategy.client), "reports_loss", False)
    own_step = not supports.server_optimizer
    ok = not own_step or type(optimizer) is Average
    why = f"average with {name}, whose server has its own step or none"
    config.require_option(ok, "server_optimizer", why)
    ok = reports_loss or not optimizer.by_loss
    why = f"another one with {name}, whose clients do not report the loss of one "
    config.require_option(ok, "server_optimizer", f"{why}received model")
    ok = supports.centres or not selection.by_distance
    why = f"random or oort with {name}, which has no representations"
    config.require_option(ok, "selection", why)
    ok = supports.selection or not selection.learns
    config.require_option(ok, "selection", f"random with {name}, which selects nobody")
    why = method.published.incomplete
    unlabelled = config.strategy.unlabelled
    require(not (why and unlabelled), "strategy.unlabelled", "true", f"false: {why}")
    own: Any = getattr(config.strategy, "privacy", None)
    ok = config.privacy.on or not getattr(own, "whole_client", False)
    allowed = "another one, or with privacy=central or local, which keep account"
    require(ok, "strategy/privacy", getattr(own, "name", ""), allowed)


def check_groups(config: RunConfig) -> None:
    """Refuse faults of clients that are not there, and measures not of these data."""
    attackers = config.faults.attackers
    ok = all(each < config.clients for each in attackers)
    allowed = f"numbers below clients={config.clients}"
    require(ok, "faults.attackers", attackers, allowed)
    best = config.system.checkpoint_best
    measured = {"accuracy", "accuracy_mean", "loss", *config.metrics}
    measured -= {"per_class", "forgetting"}
    if config.partition.validation:
        measured.add("validation_accuracy")
    allowed = f"{', '.join(sorted(measured))}, or what metrics or validation add"
    require(best in {None, *measured}, "system.checkpoint_best", best, allowed)
    dataset: Any = config.dataset
    lacks = config.privacy.on and getattr(dataset, "lacks_sums", False)
    allowed = (
        f"false with privacy={config.names['privacy']}, whose account does not cover "
        "sums of inputs; in a simulation also pooled"
    )
    require(not lacks, "dataset.standardise", "clients", allowed)
    sums = config.privacy.on or config.privacy.secure_sums
    allowed = "false with privacy or secure_sums: the sums of each client would leave"
    require(not (config.system.diagnose and sums), "system.diagnose", True, allowed)
    classes = config.dataset.classes
    ok = "auc" not in config.metrics or classes == 2
    has = f"dataset={config.names['dataset']} has {classes}"
    allowed = f"others than auc, which is of two labels: {has}"
    require(ok, "metrics", f"[{','.join(config.metrics)}]", allowed)


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
