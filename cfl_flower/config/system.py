"""How a run is executed."""

from __future__ import annotations

from cfl_flower.settings import Count, NonNegative, settings


@settings("system")
class System:
    """Execution of a run, without effect on its numbers."""

    task_timeout: NonNegative = 120.0
    """Seconds that one client's task may take; 0 for no limit."""
    message_timeout: NonNegative = 3600.0
    """Seconds after which a node without an answer is given up."""
    evaluate_every: Count = 1
    """Rounds between tests of all clients (the last round is always tested)."""
    checkpoint_every: Count = 1
    """Rounds between checkpoints."""
