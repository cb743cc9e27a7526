"""Errors that end a run, each with a one-line message and an exit code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

ERROR_MARK = "cfl-flower error: "
"""Starts the line that says why a run ended, on every way to the user."""

LONGEST = 200
"""Characters of a client's text that are shown."""


def printable(text: str) -> str:
    r"""Return a client's text as one short line that cannot forge another log line.

    Control characters, line ends and lone surrogates, which Flower cannot send on, are
    written as Python writes them in a string.

    Examples
    --------
    >>> printable("no memory\nclient 7 is well")
    'no memory\\nclient 7 is well'
    """
    # Cut first, so that little is escaped.
    shown = one_line(text[: LONGEST + 1])
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


def one_line(text: str) -> str:
    r"""Return a text with whatever steers a terminal as Python writes it in a string.

    Examples
    --------
    >>> one_line("a title \x1b]0;owned\x07")
    'a title \\x1b]0;owned\\x07'
    """
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode("ascii")
        for each in text
    )


class CflError(Exception):
    """An error that is shown to the user as one line."""

    exit_code = 1


class ConfigError(CflError):
    """Invalid input, found before any training: key, value, allowed values, remedy."""

    exit_code = 2


class NoConceptsError(ConfigError):
    """A method that needs to know true concepts, of data with a single one."""


class CheckpointError(CflError):
    """A checkpoint that is damaged, missing or of another run."""

    exit_code = 2


class SavedStateError(CflError):
    """What a client has saved is damaged, or of another network."""


class NoValidResultError(CflError):
    """A round without any valid result."""


class ClientFailedError(CflError):
    """A client without a valid result, in a run with `faults.strict`."""


class BudgetSpentError(CflError):
    """No client may report anything more: all have spent `privacy.epsilon_budget`."""


class WorkerLostError(CflError):
    """A simulation worker died or no longer answers."""


class RunFailedError(CflError):
    """A run that did not complete."""


class FailedRunsError(CflError):
    """Some of several runs failed; the others are complete."""


class RaisedInStrictRunError(Exception):
    """Takes a client's exception, its cause, out of the app of a run in process."""


class InterruptedRunError(CflError):
    """A run that the user stopped by Ctrl-C."""

    exit_code = 130


class DeviceFailedError(Exception):
    """What a device says, in the place of an exception with words of its own."""


class TaskTimeoutError(Exception):
    """A client's task ran longer than `system.task_timeout`."""


class InvalidResultError(ValueError):
    """A client's answer that must not enter the server's state.

    The text of a client reaches logs and files through this error only, which makes it
    `printable`: the reason, one of `types.Failure`, and the detail, the value found and
    the value expected.
    """

    def __init__(self, reason: str, detail: str) -> None:
        self.reason = printable(reason)
        self.detail = printable(detail)
        super().__init__(self.detail)


def named(error: Exception) -> str:
    """Return the first line of an error, after the name of its class."""
    return f"{type(error).__name__}: {error}".splitlines()[0]


@contextmanager
def refused(
    fault: str,
    remedy: str,
    kind: type[Exception] = Exception,
    reason: Callable[[Exception], str] = named,
) -> Iterator[None]:
    """Turn what others' code raises into a `ConfigError`: fault, reason and remedy."""
    try:
        yield
    except (ConfigError, TaskTimeoutError):
        raise
    except kind as error:
        raise ConfigError(f"{fault} ({reason(error)}); {remedy}") from error


FETCH = "fetch it again, or fix it if it is your own"
"""Remedy for a damaged file."""


def intact(
    what: object, remedy: str = FETCH, action: str = "read"
) -> AbstractContextManager[None]:
    """Turn whatever a damaged file makes a reader raise into one `ConfigError`.

    Readers of json, csv, npz, pickles and images raise anything on forged ones.
    """
    return refused(f"{what} cannot be {action}", remedy, reason=reason_of)


def reason_of(error: Exception) -> str:
    """Return what was wrong with a file, as one line."""
    text = str(error).strip()
    if isinstance(error, KeyError):
        text = f"it lacks {text}"
    elif isinstance(error, TypeError | AttributeError | IndexError):
        text = f"not the expected structure: {text}"
    # It may quote the file.
    return printable(text.splitlines()[0]) if text else type(error).__name__
