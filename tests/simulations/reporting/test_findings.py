"""What a comparison found, in a sentence: who leads, and by how much."""

from simulations.reporting.sections import divide, question
from tests.simulations.conftest import changed


def test_who_leads_is_said_first(run):
    runs = [changed(run, seed=seed) for seed in range(3)]
    better = enumerate((0.03, 0.01, 0.02))
    runs += [changed(run, by, "fielding", seed=seed) for seed, by in better]
    (stream,) = divide(runs)
    last = 100 * run.rounds[-1]["accuracy"] + 2
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


def test_bounds_do_not_lead(run):
    for bound in ("local", "oracle"):
        better = changed(run, 0.05, bound)
        (stream,) = divide([run, better])
        assert stream.finding.startswith(f"{run.strategy} has ")
        (alone,) = divide([better])
        assert alone.finding == ""
