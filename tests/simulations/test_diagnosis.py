"""What a preview says of data in which one site differs from two others."""

import re
from pathlib import Path

import numpy as np
import pytest

from simulations.preview import main

NAMES = ("labels", "inputs", "relation")


def sites(
    folder: Path, kind: str, samples: int = 240, scale: float = 1, lacks: int = 0
) -> list[str]:
    """Write a table of three sites, of which the last differs in a kind; name it.

    The third input is in other units, and lacks its first values.
    """
    rng = np.random.default_rng(3)
    lines = ["site,a,b,c,kind"]
    for site in "xyz":
        odd = site == "z"
        shares = [0.8, 0.2] if odd and kind == "labels" else [0.5, 0.5]
        y = rng.choice(2, samples, p=shares)
        # The second input has nothing to do with the label.
        x = rng.normal(size=(samples, 3)) + 2 * y[:, None] * [1, 0, 1]
        if odd and kind == "inputs":
            x[:, 1] += 3
        if odd and kind == "relation":
            y = 1 - y
        if odd and kind == "other labels":
            y += 2
        third = [""] * lacks + [str(c * scale) for c in x[lacks:, 2]]
        rows = zip(x, third, y, strict=True)
        lines += [f"{site},{a},{b},{c},{k}" for (a, b, _), c, k in rows]
    (folder / "data.csv").write_text("\n".join(lines) + "\n")
    return ["dataset=csv", f"data_dir={folder}", "dataset.label=kind"]


def said(capsys: pytest.CaptureFixture[str], *asked: str) -> list[str]:
    """Return what a diagnosis says last, with one blank between words."""
    assert main([*asked, "--diagnose"]) == 0
    out = capsys.readouterr().out
    return [" ".join(each.split()) for each in out.splitlines()]


@pytest.mark.parametrize("samples", [240, 90])
@pytest.mark.parametrize(
    ("kind", "differs", "advice"),
    [
        ("nothing", [], "fedavg"),
        ("labels", ["labels"], "label shares"),
        ("inputs", ["inputs"], "inputs look otherwise"),
        ("relation", ["relation"], "labels mean something else: clusters"),
        ("other labels", ["labels"], "label shares"),
    ],
)
def test_the_site_that_differs_is_a_group_of_its_own(
    kind, differs, advice, samples, tmp_path, capsys
):
    own = sites(tmp_path, kind, samples)
    asked = ["dataset.owner=site", "partition=natural", "drift=none"]
    lines = said(capsys, *own, *asked, "clients=3", "participants=3")
    for name in NAMES:
        one = "2 (1 1 2)" if name in differs else "1 (1 1 1)"
        assert f"groups by {name}: {one}" in lines
    assert re.search(advice, lines[-1])
    rows = lines[lines.index("client samples labels inputs relation changed") + 1 :]
    counts = {"x": 1, "z": 2}
    for place, site in ((0, "x"), (2, "z")):
        _, _, *others = rows[place].split()
        expected = [counts[site] * (name in differs) for name in NAMES]
        assert [int(each) for each in others] == expected


@pytest.mark.parametrize(
    ("drift", "changed"),
    [
        ("drift=feature_shift drift.rounds=[3] drift.ids=[0,1,2]", "inputs"),
        ("drift=concept_half drift.rounds=[3] drift.fraction=1.0", "relation"),
        ("drift=none", None),
    ],
)
def test_what_changes_for_all_is_seen_in_time(drift, changed, tmp_path, capsys):
    own = sites(tmp_path, "nothing", 400)
    asked = ["dataset.owner=site", "partition=natural", "clients=3", "participants=3"]
    lines = said(capsys, *own, *asked, "rounds=4", *drift.split())
    heading = "client samples labels inputs relation changed"
    starts = [place for place, line in enumerate(lines) if line == heading]
    assert len(starts) == 1 + (changed is not None)
    words = [" ".join(line.split()[5:]) for line in lines[starts[-1] + 1 :][:3]]
    assert all(changed in each if changed else not each for each in words)


@pytest.mark.parametrize("kind", ["nothing", *NAMES, "other labels"])
def test_a_site_sees_alone_what_of_its_own_changes(kind, tmp_path, capsys):
    own = sites(tmp_path, kind)
    asked = ["dataset.features=[a,b,c]", "dataset.time=row", "drift=timestamps"]
    asked += ["drift.periods=3", "drift.every=1", "drift.window=1", "rounds=3"]
    lines = said(capsys, *own, *asked, "clients=1", "participants=1", "partition=iid")
    heading = "client samples labels inputs relation changed"
    places = [place for place, line in enumerate(lines) if line == heading]
    changed = lines[places[-1] + 1].split()[5:]
    assert changed == {"nothing": [], "other labels": ["labels"]}.get(kind, [kind])


@pytest.mark.parametrize(
    "asked",
    [
        ["clients=1", "participants=1", "drift=none", "partition=iid"],
        ["clients=400", "drift=none", "partition=dirichlet", "partition.alpha=0.01"],
        ["clients=3", "participants=3", "partition=few_classes", "drift=none"],
    ],
)
def test_few_samples_and_clients_without_any_are_no_error(asked, capsys):
    assert "docs/choosing.md" in said(capsys, *asked)[-1]


@pytest.mark.parametrize("partition", ["natural", "iid"])
@pytest.mark.parametrize("options", [{"scale": 1e6}, {"scale": 1e-6}, {"lacks": 9}])
def test_inputs_are_compared_as_a_run_scales_and_fills_them(
    options, partition, tmp_path, capsys
):
    own = sites(tmp_path, "inputs", **options)
    asked = ["dataset.owner=site", "dataset.missing=mean", "drift=none"]
    asked += [f"partition={partition}", "clients=3", "participants=3"]
    groups = "2 (1 1 2)" if partition == "natural" else "1 (1 1 1)"
    assert f"groups by inputs: {groups}" in said(capsys, *own, *asked)
