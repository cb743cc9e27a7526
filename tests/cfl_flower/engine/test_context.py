from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import open_method


@pytest.mark.parametrize(
    ("every", "done", "number", "kept"),
    [
        (1, 0, 1, 0),
        (1, 0, 5, 3),
        (3, 0, 4, 0),
        (3, 0, 5, 3),
        (3, 0, 7, 3),
        (3, 0, 8, 6),
        (3, 4, 5, 4),
        (3, 4, 8, 6),
    ],
)
def test_devices_keep_what_the_newest_checkpoint_that_is_sure_to_be_there_needs(
    every: int, done: int, number: int, kept: int, tmp_path: Path
) -> None:
    # The one of the round before is written in the course of a round.
    asked = ["strategy=fedavg", f"system.checkpoint_every={every}"]
    context = open_method(tmp_path, *asked).engine.context
    context.done = done
    context.begin(number)
    assert context.keep_from == kept
