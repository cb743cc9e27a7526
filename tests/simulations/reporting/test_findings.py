"""What a comparison found, in a sentence: who leads, and by how much."""

from dataclasses import replace
from pathlib import Path

import pytest

from cfl_flower.analysis.saved import load_run
from simulations.reporting.sections import divide, question
from tests.conftest import Runner
from tests.simulations.test_report import again


@pytest.fixture(scope="module")
def folders(undisturbed: Runner) -> list[Path]:
    """Two finished runs of one stream."""
    fielding = undisturbed("strategy=fielding", "faults.raises=0.2")
    return [undisturbed("strategy=fedavg").folder, fielding.folder]


def test_who_leads_is_said_first(folders):
    single, other = (load_run(folder) for folder in folders)
    settings = {
        key: value for key, value in single.resolved.items() if key != "strategy"
    }
    other = replace(other, resolved=other.resolved | settings, rounds=single.rounds)
    seeds = [again(single, 1), again(single, 2), again(other, 0, 0.03)]
    runs = [single, *seeds, again(other, 1, 0.01), again(other, 2, 0.02)]
    (stream,) = divide(runs)
    last = 100 * single.rounds[-1]["accuracy"] + 2
    assert stream.finding == (
        f"fielding is the most accurate at the end, with {last:.1f} ± 1.0%, but not "
        "clearly: 2.0 points ahead of fedavg (95% interval -0.5 to 4.5; p = 0.07 with "
        "Holm's correction for all methods)."
    )
    leads = stream.tables[1]
    assert [line[1] for line in leads.lines] == ["+2.0 ± 2.5, no lead"]
    assert question([stream]) == "2 methods under drift regroup on digits, 3 seeds"
    (own,) = divide(runs, "fielding")
    leads = own.tables[1]
    assert leads.title == "lead over fielding, in points"
    assert [line[1] for line in leads.lines] == ["-2.0 ± 2.5, no lead"]


def test_bounds_do_not_lead(folders):
    first, other = (load_run(folder) for folder in folders)
    for bound in ("local", "oracle"):
        strategy = {**other.resolved["strategy"], "name": bound}
        better = replace(other, resolved={**other.resolved, "strategy": strategy})
        (stream,) = divide([first, again(better, 0, 0.05)])
        assert stream.finding.startswith(f"{first.strategy} has ")
        (alone,) = divide([better])
        assert alone.finding == ""
