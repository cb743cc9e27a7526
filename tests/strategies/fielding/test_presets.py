"""The paper's settings, Appendix D, tables 1 and 2."""

import pytest

from cfl_flower.config.composition import compose_plain

PUBLISHED = {
    # clients, rounds between arrivals, rounds, learning rate, participants
    "fmow": (302, 2, 2000, 0.05, 50),
    "cityscapes": (217, 30, 200, 0.001, 20),
    "waymo": (212, 20, 100, 0.001, 20),
    "open_images": (5078, 50, 400, 0.05, 200),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_are_the_published_settings(name):
    plain, choices, _ = compose_plain(
        [f"experiment=fielding_{name}", "strategy=fielding"]
    )
    local = plain["strategy"]["local"]
    found = plain["clients"], plain["drift"]["every"], plain["rounds"]
    assert (*found, local["learning_rate"], plain["participants"]) == PUBLISHED[name]
    assert (local["steps"], local["batch_size"]) == (20, 20)
    assert choices["dataset"] == name
