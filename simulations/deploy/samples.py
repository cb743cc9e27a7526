"""Put some of scikit-learn's digits into a folder, as a device's samples for a trial.

    python -m simulations.deploy.samples data/site-a --labels 0 1 2 3 4

Called again, with other labels, it is how new data arrive: a file more. `--instead`
removes what was there.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from simulations.shell.terminal import Parser, command, count


def put(folder: Path, labels: Sequence[int], most: int, instead: bool = False) -> Path:
    """Write a file of digits, 1 x 8 x 8, that no earlier call wrote; return it."""
    folder.mkdir(parents=True, exist_ok=True)
    old = sorted(folder.glob("digits-*.npz"))
    digits = load_digits()
    number = int(old[-1].stem[-4:]) + 1 if old else 0
    found = np.flatnonzero(np.isin(digits.target, labels))
    # Other samples than before, as long as there are some.
    rows = np.roll(found, -number * most)[:most]
    x = (digits.images[rows] * 255 / 16).astype(np.uint8)[:, None]
    path = folder / f"digits-{number:04d}.npz"
    np.savez(path, x=x, y=digits.target[rows])
    for earlier in old if instead else ():
        earlier.unlink()
    return path


@command
def main(arguments: Sequence[str]) -> None:
    """Run the command and return the exit code."""
    parser = Parser("deploy.samples", __doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--labels", type=int, nargs="+", required=True)
    parser.add_argument("--most", type=count, default=200, help="samples")
    parser.add_argument("--instead", action="store_true", help="of what was there")
    asked = parser.parse_args(arguments)
    print(put(asked.folder, asked.labels, asked.most, asked.instead))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
