"""What is done to every round whatever its method, in one order."""

from __future__ import annotations

from cfl_flower.engine.stages.privacy_budget import PrivacyBudget
from cfl_flower.engine.stages.robust_means import RobustMeans
from cfl_flower.engine.stages.secure_sums import GroupMeans, SecureSums, SumBounds
from cfl_flower.engine.stages.stage import (
    AbsentClients,
    ParticipantLosses,
    ReportBudget,
    Stage,
)

STAGES: tuple[type[Stage], ...] = (
    # Absent clients are asked nothing, whatever the method planned.
    AbsentClients,
    # A client that caused too many re-clusterings is not heard for a while.
    ReportBudget,
    # A method that wants single results gets its group's mean.
    GroupMeans,
    # Devices shorten what nobody sees singly.
    SumBounds,
    # Admits participants, adds noise to the mean, and notes each client's loss of
    # privacy.
    PrivacyBudget,
    # The groups; their sums are opened.
    SecureSums,
    ParticipantLosses,
    # The most that one participant counts for.
    RobustMeans,
)
"""All stages, in the order of plans; results pass them in reverse."""
