"""After one drift a method follows it once, and clients report once."""

import pytest

SWAP = ["drift=swap_all", "drift.probability=1", "drift.every=null", "drift.rounds=[4]"]


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ("fielding", 12 * 40),
        ("fielding strategy.tolerance=0.01", 12 * 40),
        ("stocfl strategy.refresh=on_drift", 12 * 2600),
        ("stocfl strategy.refresh=on_drift strategy.sketch=64", 12 * 256),
        ("ifca strategy.migration=true", 0),
        ("fesem strategy.migration=true", 0),
        ("flexcfl strategy.migration=true", 0),
        ("flexcfl strategy.migration=true participants=5", 0),
    ],
)
def test_one_drift_is_followed_in_one_round(options, reported, run_small):
    method = f"strategy={options}".split()
    run = run_small(*SWAP, "participants=12", "rounds=8", *method)
    # Tests are before the drift, and reports are about the data of the round after.
    assert [each["round"] for each in run.rounds if each["drifted"]] == [3]
    moves = [each["round"] for each in run.rounds[1:] if each["moved"]]
    assert moves in ([3], []), "the labels that clients hold have changed once"
    sent = [each["bytes_up"] for each in run.rounds]
    assert [each - sent[1] for each in sent[1:]] == [0, reported, 0, 0, 0, 0, 0]
