"""What `make audit` makes of pip-audit's answer."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.audit import CLEAN, UNKNOWN, VULNERABLE, judge

SOUND = {"name": "a", "version": "1", "vulns": []}
SKIPPED = {"name": "b", "skip_reason": "not found on PyPI"}
BAD = {
    "name": "c",
    "version": "2",
    "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}],
}


@pytest.mark.parametrize(
    ("packages", "code", "said"),
    [
        ([SOUND], CLEAN, "no known vulnerability in 1 of 1 packages"),
        ([SOUND, SKIPPED], UNKNOWN, "not audited: .* for 1 of 2 packages"),
        ([SKIPPED, BAD], VULNERABLE, "c 2: CVE-1, fixed in 3\nasked about 1 of 2"),
    ],
)
def test_what_could_not_be_asked_is_not_clean(
    packages: list[Any], code: int, said: str
) -> None:
    found, text = judge(json.dumps({"dependencies": packages, "fixes": []}), "")
    assert found == code
    assert re.match(said, text)


@pytest.mark.parametrize("answer", ["", "[]", "{}", "<html>"])
def test_a_service_out_of_reach_is_one_line(answer: str) -> None:
    said = "WARNING: x\nERROR: could not connect to pypi.org\n"
    assert judge(answer, said) == (UNKNOWN, f"not audited: {said.splitlines()[-1]}")
