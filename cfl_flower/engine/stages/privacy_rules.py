"""What `privacy=` costs a client, and requires of methods and other settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cfl_flower.engine.declarations import Disclosure
from cfl_flower.engine.stages.stage import check_hidden
from cfl_flower.models import model_of
from cfl_flower.privacy.accounting import epsilon_of, require_accountant
from cfl_flower.privacy.settings import LocalPrivacy
from cfl_flower.run_config import RunConfig
from cfl_flower.settings import require


@dataclass(frozen=True)
class Costs:
    """What a client loses by what it sends, as 1 / z^2."""

    model: float
    report: float
    training: float
    """Loss by the answer to a training."""
    participation: float
    """Loss by taking part, which may include a report."""

    @classmethod
    def of(cls, config: RunConfig, sent: Disclosure) -> Costs:
        """Return the costs of a run whose clients send something."""
        privacy = config.privacy
        assert isinstance(privacy, LocalPrivacy)
        own: Any = getattr(config.strategy, "privacy", None)
        noise = getattr(own, "noise_multiplier", privacy.report_noise)
        model = privacy.noise_multiplier**-2
        report = noise**-2
        training = sent.models * model
        return cls(model, report, training, training + sent.reports * report)


def check_guarantee(config: RunConfig, method: type[Any]) -> None:
    """Refuse settings with which not all that leaves clients is covered."""
    sent = method.discloses
    check_disclosed(config, sent)
    check_hidden(config, f"privacy={config.privacy.mode}")
    check_covered(config)
    config.strategy.check_privacy()
    require_accountant(config.privacy.mode)
    assert sent is not None
    privacy = config.privacy
    assert isinstance(privacy, LocalPrivacy)
    budget = privacy.epsilon_budget
    least = epsilon_of(Costs.of(config, sent).participation, privacy.delta)
    ok = budget is None or least <= budget
    allowed = f"at least {least:.3g}, the epsilon of taking part once, or more noise"
    require(ok, "privacy.epsilon_budget", budget, allowed)


def check_disclosed(config: RunConfig, sent: Disclosure | None) -> None:
    """Refuse a method whose clients send what `privacy=` does not cover."""
    mode = config.privacy.mode
    method = f"strategy={config.names['strategy']}"
    if sent is None:
        why = f"none with {method}, whose clients send what is not accounted for: its"
        require(False, "privacy", mode, f"{why} class has no `discloses`")
        return
    uncovered = sent.uncovered or (sent.in_sums if config.privacy.secure_sums else "")
    why = f"whose clients send {uncovered}, which no noise covers"
    require(not uncovered, "privacy", mode, f"none with {method}, {why}")
    ok = mode != "central" or not sent.singly
    allowed = f"local or none with {method}, whose server {sent.singly}"
    require(ok, "privacy", mode, allowed)


def check_covered(config: RunConfig) -> None:
    """Refuse other settings with which `privacy=` would have no guarantee."""
    mode = config.privacy.mode
    strategy = config.strategy
    ok = mode != "central" or strategy.weighting == "plain"
    allowed = "plain with privacy=central, where each participant counts alike"
    require(ok, "strategy.weighting", strategy.weighting, allowed)
    bounded = mode == "central" or config.privacy.secure_sums
    ok = strategy.robust == "none" or not bounded
    why = "whose privacy.clip bounds every update already"
    allowed = f"none with privacy={mode}, {why}"
    require(ok, "strategy.robust", strategy.robust, allowed)
    averaged = ", ".join(sorted(model_of(config).observed.statistics)[:3])
    lacks = f"one without running statistics ({averaged})"
    why = f"with privacy={mode}, which covers no more than parameters"
    config.require_option(not averaged, "model", f"{lacks} {why}")
