"""What a comparison found, in words: who leads, by how much, at what cost."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from cfl_flower.analysis.saved import load_run
from simulations.reporting.streams import divide, question
from tests.conftest import Runner
from tests.simulations.test_report import again


@pytest.fixture(scope="module")
def folders(undisturbed: Runner) -> list[Path]:
    """Two finished runs of one stream."""
    fielding = undisturbed("strategy=fielding", "faults.raises=0.2")
    return [undisturbed("strategy=fedavg").folder, fielding.folder]


def test_leads_and_costs_are_said_first(folders: list[Path]) -> None:
    single, other = (load_run(folder) for folder in folders)
    settings = {
        key: value for key, value in single.resolved.items() if key != "strategy"
    }
    other = replace(other, resolved=other.resolved | settings, rounds=single.rounds)
    seeds = [again(single, 1), again(single, 2), again(other, 0, 0.03)]
    runs = [single, *seeds, again(other, 1, 0.01), again(other, 2, 0.02)]
    (stream,) = divide(runs)
    end, _, idle = stream.findings  # all sent the same
    assert idle == "fielding: all clients were in one cluster in every round."
    last = 100 * single.rounds[-1]["accuracy"] + 2
    assert end == (
        f"fielding is the most accurate at the end, with {last:.1f} ± 1.0%, but not "
        "clearly: 2.0 points ahead of fedavg (95% interval -0.5 to 4.5; p = 0.07 with "
        "Holm's correction for all methods)."
    )
    more = [{**row, "bytes_up": row["bytes_up"] + 10**6} for row in other.rounds]
    (dear,) = divide([single, replace(other, rounds=more)])
    *_, cost, _ = dear.findings
    assert re.fullmatch(
        r"fedavg sent least, \d+ kB; fielding sent most, 4.\d MB.", cost
    )
    leads = stream.tables[1]
    assert [[*column.cells] for column in leads.columns][1] == ["+2.0 ± 2.5, no lead"]
    assert question([stream]) == "2 methods under drift regroup on digits, 3 seeds"
    (own,) = divide(runs, "fielding")
    leads = own.tables[1]
    assert leads.title == "lead over fielding, in points"
    assert [[*column.cells] for column in leads.columns][1] == ["-2.0 ± 2.5, no lead"]


def test_references_stand_beside_who_leads(folders: list[Path]) -> None:
    first, other = (load_run(folder) for folder in folders)
    (clustered,) = divide([other])
    mean = sum(row["ari"] for row in other.rounds) / len(other.rounds)
    assert clustered.findings[-1].endswith(f"0: as by chance): fielding {mean:.2f}.")
    alone = {**other.resolved["strategy"], "name": "local"}
    local = replace(other, resolved={**other.resolved, "strategy": alone})
    (stream,) = divide([first, again(local, 0, 0.05)])
    end, beside, *_ = stream.findings
    high = 100 * local.rounds[-1]["accuracy"] + 5
    assert end.startswith(f"{first.strategy} has ")
    assert beside == f"Bounds: local, which shares nothing, has {high:.1f}%."
    # It knows the true clusters only where there are some.
    knows = {**other.resolved["strategy"], "name": "oracle"}
    oracle = replace(other, resolved={**other.resolved, "strategy": knows})
    (stream,) = divide([first, oracle])
    assert "oracle, which knows the true clusters, has" in stream.findings[1]
    blind = [{**row, "ari": None} for row in oracle.rounds]
    (stream,) = divide([first, replace(oracle, rounds=blind)])
    assert "oracle" not in " ".join(stream.findings)
