"""What can end a run, each with one line that says what to do."""

from __future__ import annotations

LONGEST = 200
"""Characters of a client's text that a person gets to see."""


def printable(text: str) -> str:
    r"""Return what a client says as one short line that no log mistakes for another.

    Control characters, line ends and lone surrogates, which Flower cannot send on, are
    written as Python writes them in a string.

    Examples
    --------
    >>> printable("no memory\nclient 7 is well")
    'no memory\\nclient 7 is well'
    """
    # Cut first: what is escaped is never much.
    shown = "".join(map(_escape, text[: LONGEST + 1]))
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


def _escape(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")


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

    All that a client says about itself comes to logs and files through here, so here
    it becomes `printable`.

    Parameters
    ----------
    reason : str
        One of the reasons of `types.Failure`; a client may give any other.
    detail : str
        What was found and what was expected.
    """

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = printable(reason)
        self.detail = printable(detail)
        super().__init__(self.detail)
