"""Known vulnerabilities of the versions in constraints.txt: `make audit`.

pip-audit asks PyPI for each. Exit code 0: none is known; 1: some are, and listed; 3: it
could not be found out for all, as without a network. pip-audit alone ends with 0 where
it could ask about none.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
OPTIONS = "--requirement constraints.txt --no-deps --disable-pip --format json"
AUDIT = [sys.executable, "-m", "pip_audit", *OPTIONS.split()]
CLEAN = 0
VULNERABLE = 1
UNKNOWN = 3


def judge(found: str, said: str) -> tuple[int, str]:
    """Return the exit code and the lines of what pip-audit found, as JSON, and said."""
    try:
        packages = json.loads(found)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = (said.strip().splitlines() or ["pip-audit said nothing"])[-1]
        return UNKNOWN, f"not audited: {last}"
    known = [each for each in packages if "vulns" in each]
    lines = [
        f"{each['name']} {each['version']}: {vuln['id']}, fixed in "
        f"{', '.join(vuln['fix_versions']) or 'no version yet'}"
        for each in known
        for vuln in each["vulns"]
    ]
    asked = f"{len(known)} of {len(packages)} packages"
    if lines:
        return VULNERABLE, "\n".join([*lines, f"asked about {asked}"])
    if len(known) < len(packages):
        return UNKNOWN, f"not audited: the advisory service answered for {asked}"
    return CLEAN, f"no known vulnerability in {asked}"


if __name__ == "__main__":
    done = subprocess.run(AUDIT, cwd=ROOT, capture_output=True, text=True, check=False)
    code, text = judge(done.stdout, done.stderr)
    print(text)
    sys.exit(code)
