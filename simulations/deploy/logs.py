"""What a SuperLink or a device says, as plain lines or as JSON, a line for each.

Flower's log has colours wherever it goes, and each process of an app writes its own. So
all of them write to a process of this module, which needs nothing but Python.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
from datetime import UTC, datetime

LOG = "CFL_FLOWER_LOG"
"""Environment variable: one of `FORMS`."""

FORMS = ("auto", "text", "json")
"""Auto is Flower's own lines on a terminal, else JSON: a program reads those."""

COLOURS = re.compile(r"\x1b\[[\d;]*m")

LEVEL = re.compile(r"(?:[\dT:.-]+Z )?(DEBUG|INFO|WARNING|ERROR|CRITICAL)\b[ :]+(.*)")
"""The level of a line of Flower's, or of what serves its pages, and its message."""


def rewritten(line: str, form: str) -> str:
    r"""Return a line without colours, as JSON unless ``form`` is text.

    Examples
    --------
    >>> rewritten("\x1b[93mWARNING \x1b[0m:   site-c is late", "text")
    'WARNING :   site-c is late'
    """
    text = COLOURS.sub("", line).strip("\r\n")
    if form == "text" or not text:
        return text
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    found = LEVEL.fullmatch(text)
    level, message = found.groups() if found else (None, text)
    event = {"time": now, "level": level, "message": message}
    return json.dumps(event, ensure_ascii=False)


def begin() -> None:
    """Let another process rewrite what this one, and those that it starts, say."""
    form = os.environ.get(LOG, "auto")
    if form == "auto" and sys.stdout.isatty():
        return
    command = [sys.executable, "-P", __file__, form]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE).stdin
    assert writer is not None
    os.dup2(writer.fileno(), 1)
    os.dup2(writer.fileno(), 2)
    writer.close()


def main() -> None:
    """Rewrite lines until nobody writes any more."""
    # Whoever writes is stopped, and may still say something.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    lines = io.TextIOWrapper(sys.stdin.buffer, "utf-8", "replace")
    for line in lines:
        if text := rewritten(line, sys.argv[1]):
            print(text, flush=True)


if __name__ == "__main__":
    main()
