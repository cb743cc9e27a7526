"""What pages say of the project in numbers, each from where it is declared.

    python -m tests.docs.facts

rewrites what is between ``<!--=NAME-->`` and ``<!--/-->`` on every page. A name can
have words behind it, such as ``<!--=rank fedavg-->``. Markdown takes a line
that begins with a comment for HTML: a fact within a sentence must not begin one.
"""

import re
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import NamedTuple

import yaml

from cfl_flower.analysis.leads import say_lead
from cfl_flower.building import locate
from cfl_flower.config.composition import compose_plain
from cfl_flower.config.options import list_options
from cfl_flower.engine.asynchronous import AsynchronousStrategy
from cfl_flower.engine.declarations import Disclosure
from cfl_flower.environment.plugins import CONF
from simulations.track import ROWS
from simulations.tracking.rows import TrackRow, load_protocol, read_rows
from tests.docs.scoreboard import PAPERS, RESULTS, lines, of_papers
from tests.docs.track import ALL_TRAIN, KINDS, lead_of, situations

ROOT = CONF.parent

PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "simulations/deploy/*.md")
    for path in ROOT.glob(pattern)
    if path.name != "CHANGELOG.md"
)

FACT = re.compile(r"(<!--=([\w ]+)-->)(.*?)(<!--/-->)", re.DOTALL)

WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")

CLUSTERED = (
    *("fielding", "flexcfl", "ifca", "feddrift", "fedccfa", "stocfl", "feroma"),
    *("fedgroup", "fesem", "cfl", "auxo", "flux", "pacfl", "ccfl", "fedsoft", "static"),
)
"""Methods with clusters or mixtures of clusters. static, the start of fielding, is
nobody's publication."""

CONDITIONS: Mapping[str, tuple[str, ...]] = {
    "fielding": ("strategy/privacy=client",),
    "stocfl": ("strategy.refresh=never", "strategy.omega=parallel"),
    "feddrift": ("strategy.form=eager",),
    "static": ("strategy/privacy=client",),
}
"""The settings that a method needs with ``privacy=``. Secure sums have no part in
``strategy/privacy``."""

WHY = {
    "flux": "clients report moments of features",
    "feroma": "clients report moments of features",
    "pacfl": "clients report principal vectors of samples",
    "fedpac": "clients send more than models",
    "fedfm": "clients send more than models",
}
"""Why a method with rounds declares nothing."""


class Support(NamedTuple):
    """What of privacy a method goes with."""

    local: bool
    central: bool
    sums: bool
    why: str = ""


@cache
def support_of(method: str) -> Support:
    """Return what a method's declaration allows."""
    file = yaml.safe_load((CONF / "strategy" / f"{method}.yaml").read_text())
    if "_target_" not in file:
        file = compose_plain([f"strategy={method}"]).settings["strategy"]
    cls = locate(file["_target_"])
    sent: Disclosure | None = cls.discloses
    if sent is None:
        rounds = not issubclass(cls, AsynchronousStrategy)
        return Support(False, False, False, WHY[method] if rounds else "no rounds")
    noisy = not sent.uncovered
    why = f"the server {sent.singly}" if sent.singly else ""
    if sent.in_sums:
        why += f"; with secure sums clients send {sent.in_sums}"
    if sent.uncovered:
        why = f"no noise covers {sent.uncovered}{why and f'; {why}'}"
    sums = not sent.singly or bool(sent.in_sums)
    return Support(noisy, noisy and not sent.singly, sums, why)


def supporting(option: str, methods: tuple[str, ...] = ()) -> list[str]:
    """Return the methods that support an option, of all or of some."""
    return [
        each
        for each in methods or list_options("strategy")
        if getattr(support_of(each), option)
    ]


def support_table() -> str:
    """Return the table of methods by what they support, those with clusters first."""
    lines = [
        "",
        "",
        "| method | clusters | `local` | `central` | secure sums | needs, or why not |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    methods = list_options("strategy")
    for method in sorted(methods, key=lambda each: (each not in CLUSTERED, each)):
        found = support_of(method)
        marks = ["yes" if each else "-" for each in found[:3]]
        needs = " ".join(f"`{each}`" for each in CONDITIONS.get(method, ()))
        clusters = "yes" if method in CLUSTERED else "-"
        cells = [f"[{method}](../methods/{method}.md)", clusters, *marks]
        last = "; ".join(filter(None, (needs, found.why)))
        lines.append(f"| {' | '.join(cells)} | {last} |")
    return "\n".join([*lines, "", ""])


@cache
def rows() -> dict[str, TrackRow]:
    """Return the track's rows."""
    return read_rows(ROWS, load_protocol())


@cache
def track_map(untrained: bool, kinds: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the lines of a map of the track by stream."""
    table = situations(rows(), load_protocol(), untrained, kinds)
    found = (dict(zip(table.headings, line, strict=True)) for line in table.lines)
    return {line["stream"].strip("`"): line for line in found}


def gain(column: str, stream: str, *when: str) -> str:
    """Return what clusters add: in all tests, or at the ``end``.

    With ``untrained`` clients, or where ``all`` train in every round.
    """
    kinds = ALL_TRAIN if "all" in when else KINDS
    lines = track_map("untrained" in when, kinds)
    mean, _, end = lines[stream][column].partition(": ")[2].partition("; at the end ")
    return end if "end" in when else mean


def word(number: int) -> str:
    """Return a small number as a word."""
    return WORDS[number] if number < len(WORDS) else str(number)


@cache
def states() -> Counter[str]:
    """Return how many tables and figures are in each state."""
    return Counter(line.state for line in lines(of_papers()))


def whole() -> int:
    """Return how many tables of accuracies are reproduced in full."""
    shares = [table for table in of_papers().values() if table.is_share]
    return sum(table.state == "reproduced" for table in shares)


FACTS: dict[str, Callable[..., str]] = {
    "methods": lambda: str(len(list_options("strategy"))),
    "systems": lambda: word(len(PAPERS)),
    "others": lambda: str(len(list_options("strategy")) - len(PAPERS)),
    "drifts": lambda: str(len(list_options("drift")) - 1),
    "clustered": lambda: str(len(CLUSTERED) - 1),
    "results": lambda: str(sum(states()[each] for each in RESULTS)),
    "state": lambda *words: str(states()[" ".join(words)]),
    "whole": lambda: word(whole()),
    "supporting": lambda option: str(len(supporting(option))),
    "clusters": lambda option: str(len(supporting(option, CLUSTERED[:-1]))),
    "private clusters": lambda: " and ".join(supporting("central", CLUSTERED[:-1])),
    "local only": lambda: str(
        len(set(supporting("local")) - set(supporting("central")))
    ),
    "support table": support_table,
    "streams": lambda: word(len(load_protocol().streams)),
    "lead": lambda a, b, *of: say_lead(lead_of(rows()[a], rows()[b], *of)),
    "take": lambda stream: track_map(False, KINDS)[stream]["take"],
    "gain": lambda *words: gain("a method's add", *words),
    "bound": lambda *words: gain("the true ones add", *words),
}
"""By name. ``no result`` counts as a state."""


def fact(name: str) -> str:
    """Return what a page must say."""
    if name in FACTS:
        return FACTS[name]()
    first, *words = name.split()
    return FACTS[first](*words)


def updated(text: str) -> str:
    """Return a page with its facts as they are."""
    return FACT.sub(lambda found: found[1] + fact(found[2]) + found[4], text)


def main() -> None:
    """Rewrite the pages that are out of date."""
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        if updated(text) != text:
            path.write_text(updated(text), encoding="utf-8")
            sys.stdout.write(f"{path.relative_to(ROOT)} is up to date now\n")


if __name__ == "__main__":
    main()
