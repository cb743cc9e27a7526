"""What can end a run, each with one line that says what to do."""

from __future__ import annotations


class CflError(Exception):
    """A problem that is told to the user in one line."""

    exit_code = 1


class ConfigError(CflError):
    """Bad input, found before any training: what, which value, allowed, remedy."""

    exit_code = 2


class CheckpointError(CflError):
    """A checkpoint that is torn, foreign or missing."""

    exit_code = 2


class NoValidResultError(CflError):
    """A round in which no client gave a valid result."""


class WorkerLostError(CflError):
    """A simulation worker died or no longer answers."""


class RunFailedError(CflError):
    """A run that did not complete."""


class FailedRunsError(CflError):
    """Some of several runs failed; the others are done."""


class TaskTimeoutError(Exception):
    """A client's task ran longer than `system.task_timeout`."""


class InvalidResultError(ValueError):
    """A client's answer that must not enter the server's state.

    Parameters
    ----------
    reason : str
        One of the reasons of `types.Failure`.
    detail : str
        What was found and what was expected.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail
