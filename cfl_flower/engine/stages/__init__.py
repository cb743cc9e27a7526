"""What is done to every round whatever its method, in one order."""

from __future__ import annotations

from pathlib import Path

from cfl_flower.engine.context import RoundContext
from cfl_flower.engine.delivery import Delivery
from cfl_flower.engine.participants import Participants
from cfl_flower.engine.stages.privacy_budget import (
    AskedClients,
    PrivacyBudget,
    PrivacyGuard,
)
from cfl_flower.engine.stages.report_budget import ReportBudget
from cfl_flower.engine.stages.robust_means import RobustMeans
from cfl_flower.engine.stages.secure_sums import SecureSums
from cfl_flower.engine.stages.stage import (
    AbsentClients,
    GroupMeans,
    ParticipantLosses,
    Stage,
)
from cfl_flower.engine.stages.sum_bounds import SumBounds
from cfl_flower.errors import ConfigError
from cfl_flower.runs.asked import Asked


def make_stages(
    context: RoundContext, participants: Participants, delivery: Delivery
) -> list[Stage]:
    """Return the stages of a run: plans pass them downwards, results upwards."""
    config = context.config
    sums = config.privacy.secure_sums
    guard = None
    if config.privacy.on:
        sent = type(context.method).discloses
        if sent is None:
            raise ConfigError("privacy= needs a method that says what its clients send")
        guard = PrivacyGuard(config, sent)
        participants.eligible.append(lambda: guard.within_budget(context.state))
        if not context.fleet.simulated:
            guard.asked = Asked(Path(config.output_dir), config.resume)
    absent = None
    if config.devices.come_and_go and context.fleet.simulated:
        presence = config.devices.open_presence(config.clients, config.seed)
        absent = AbsentClients(presence)
        participants.eligible.append(lambda: absent.among(context))
    return [
        # Who is not there is asked nothing, whatever the method planned.
        *([absent] if absent else []),
        # Who had all clients clustered anew too often is not heard for a while.
        ReportBudget(),
        # A method that wants single results gets its group's mean.
        *([GroupMeans()] if sums else []),
        # Devices shorten what nobody sees singly.
        *([SumBounds()] if sums and config.strategy.robust != "none" else []),
        # Who may take part; the mean gets its noise, and every client's loss is noted.
        *([PrivacyBudget(guard)] if guard else []),
        # The groups; their sums are opened.
        *([SecureSums(config, delivery)] if sums else []),
        # Those who are asked are noted before the message leaves.
        *([AskedClients(guard, delivery)] if guard else []),
        ParticipantLosses(),
        # The most that one participant counts for.
        RobustMeans(delivery),
    ]
