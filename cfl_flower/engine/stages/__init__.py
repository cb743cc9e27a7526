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
    # Who is not there is asked nothing, whatever the method planned.
    AbsentClients,
    # Who had all clients clustered anew too often is not heard for a while.
    ReportBudget,
    # A method that wants single results gets its group's mean.
    GroupMeans,
    # Devices shorten what nobody sees singly.
    SumBounds,
    # Who may take part; the mean gets its noise, and every client's loss is noted.
    PrivacyBudget,
    # The groups; their sums are opened.
    SecureSums,
    ParticipantLosses,
    # The most that one participant counts for.
    RobustMeans,
)
"""In the order of plans, which is the reverse of that of results."""
