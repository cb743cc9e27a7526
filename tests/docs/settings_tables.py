"""The settings tables of the documentation.

    python -m tests.docs.settings_tables

rewrites each table between ``<!-- settings -->`` (a method's own settings) or
``<!-- settings: local -->`` (a group that many methods share) and
``<!-- end of settings -->``. A page stays as it is if one of its settings has no
docstring.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cfl_flower.client.upload_policy import UploadPolicy
from cfl_flower.config.reference import Setting, option_settings, setting_of
from cfl_flower.environment.plugins import CONF
from cfl_flower.learning.optimizer import LocalTraining
from cfl_flower.models import Adapted
from cfl_flower.models.adapters import Lora
from cfl_flower.privacy.settings import CentralPrivacy
from cfl_flower.state import StrategySettings
from strategies.families.choosing import ShiftTest

PAGES = CONF.parent / "docs" / "methods"

SHARED: dict[str, Any] = {
    "strategy": StrategySettings,
    "local": LocalTraining,
    "policy": UploadPolicy,
    "shift": ShiftTest,
}
"""Settings that many methods have, described once in the README."""
OTHERS: dict[str, Any] = {"privacy": CentralPrivacy, "model": Adapted, "lora": Lora}
"""Groups outside of methods, and the pages of other folders that describe them."""
HOW_TO = PAGES.parent / "how-to"
OTHER_PAGES = (HOW_TO / "privacy.md", HOW_TO / "adapters.md")

TABLE = re.compile(
    r"(<!-- settings(?:: (\w+))? -->\n).*?(<!-- end of settings -->)", re.DOTALL
)
HEADER = "| setting | default | allowed | meaning |\n| --- | --- | --- | --- |\n"


def method_settings(method: str) -> list[Setting]:
    """Return a method's settings in ``conf/strategy``, but for shared ones as usual."""
    shared = {row[:2] for group in SHARED for row in group_settings(group)}
    rows = option_settings("strategy", method)
    # Training before all rounds has the settings of training in them.
    known = ((row.key.replace("pretraining.", "local."), row.default) for row in rows)
    return [row for row, each in zip(rows, known, strict=True) if each not in shared]


def group_settings(group: str) -> list[Setting]:
    """Return the settings of a shared group with the defaults of its class."""
    cls = (SHARED | OTHERS)[group]
    prefix = "" if group == "strategy" else f"{group}."
    known = cls.__pydantic_fields__
    names = set(known).difference(SHARED, ("client", "network", "lora"))
    defaults = {n: known[n].get_default(call_default_factory=True) for n in known}
    return [setting_of(cls, n, defaults[n], prefix) for n in known if n in names]


def write_table(rows: Iterable[Setting]) -> str:
    """Write settings as a Markdown table, or a sentence if there are none."""
    lines = [[cell.replace("|", r"\|") for cell in row] for row in rows]
    if not lines:
        return (
            "Only the [settings of every method](README.md#settings-of-every-method).\n"
        )
    return HEADER + "".join(f"| `{key}` | {' | '.join(r)} |\n" for key, *r in lines)


def updated_page(path: Path) -> str:
    """Return a page with its tables as they should be."""

    def replaced(match: re.Match[str]) -> str:
        opening, group, closing = match.groups()
        rows = group_settings(group) if group else method_settings(path.stem)
        if not all(row.meaning for row in rows):
            return match.group()
        return f"{opening}\n{write_table(rows)}\n{closing}"

    return TABLE.sub(replaced, path.read_text(encoding="utf-8"))


def main() -> None:
    """Rewrite the pages that are out of date."""
    for path in [*sorted(PAGES.glob("*.md")), *OTHER_PAGES]:
        text = updated_page(path)
        if text != path.read_text(encoding="utf-8"):
            path.write_text(text, encoding="utf-8")
            sys.stdout.write(f"{path.relative_to(CONF.parent)} is up to date now\n")


if __name__ == "__main__":
    main()
