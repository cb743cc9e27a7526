"""Answers of a served model for new rows of a table.

    python -m simulations.predict served/cluster-0 new.csv
    python -m simulations.predict served/cluster-0 new.parquet > answers.csv

MODEL is the folder of one cluster that `simulations.export` made; nothing else is read.
Its card says what becomes of a row. FILE has the columns that the model was trained on,
in any order, as .csv or .parquet; others are left out. A row's answer is the class with
the largest probability. Exit codes as `simulations.run`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch

from cfl_flower.errors import intact, one_line
from cfl_flower.learning.testing import BLOCK
from cfl_flower.settings import require
from cfl_flower.types import FloatArray, IntArray, Vector
from simulations.rows import read_rows, to_inputs
from simulations.served import CARD, DIRECTORY, REMEDY, load_network, read_json
from simulations.shell.terminal import Parser, command


@torch.no_grad()
def predict(network: torch.nn.Module, inputs: Vector) -> tuple[IntArray, FloatArray]:
    """Return the label of each of n inputs, and its probability, shapes (n,)."""
    blocks = torch.split(torch.from_numpy(inputs), BLOCK)
    logits = torch.cat([network(block) for block in blocks])
    shares, labels = logits.softmax(1).max(1)
    return labels.numpy(), shares.double().numpy()


@command
def main(arguments: Sequence[str]) -> None:
    """Print the answers and return the exit code."""
    parser = Parser("predict", __doc__)
    parser.add_argument("model", type=Path, metavar="MODEL")
    parser.add_argument("file", type=Path, metavar="FILE")
    asked = parser.parse_args(arguments)
    allowed = "the folder of a cluster that export made, such as served/cluster-0"
    ok = asked.model.is_dir() and not (asked.model / DIRECTORY).exists()
    require(ok, "MODEL", asked.model, allowed)
    card = read_json(asked.model / CARD)
    with intact(asked.model / CARD, REMEDY):
        inputs, notes = to_inputs(card, read_rows(card, asked.file))
        labels, shares = predict(load_network(asked.model, card), inputs)
        answers = pd.DataFrame({"row": range(1, len(labels) + 1)})
        answers["answer"] = [one_line(card["classes"][each]) for each in labels]
        answers["probability"] = shares.round(4)
        if card["fine_tuning"] or card["label_shares"]:
            notes.append(f"it serves {card['serves']}, which these answers lack")
    for note in notes:
        print(f"note: {one_line(note)}", file=sys.stderr)
    answers.to_csv(sys.stdout, index=False)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
