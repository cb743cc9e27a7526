from __future__ import annotations

import pytest

from simulations.compare import with_marks


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("strategy=fielding", "strategy=fedavg,local,fielding,oracle"),
        ("strategy=oracle,fedavg", "strategy=local,oracle,fedavg"),
        ("strategy=choice(fielding,local)", "strategy=fedavg,fielding,local,oracle"),
        (
            "strategy=glob(fe*s*)",
            "strategy=fedavg,local,fesem,oracle",
        ),
        ("strategy.local.mu=1", "strategy.local.mu=1"),
    ],
)
def test_marks_are_added_to_whatever_way_strategies_are_swept(
    asked: str, found: str
) -> None:
    assert with_marks(["rounds=3", asked]) == ["rounds=3", found]
