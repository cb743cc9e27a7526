"""What methods promise: their bytes, the ends of their settings, and their options."""

import pytest

from simulations.engines.inprocess import InProcessGrid
from tests.conftest import sample

pytestmark = pytest.mark.contract

MODEL = 650 * 4
"""Bytes of softmax regression on digits; six of twelve clients take part."""
HIDDEN = "model=mlp model.hidden=16 drift.rounds=[]"
EXTRACTOR = 4 * (64 * 16 + 16)
HEAD = 4 * 17 * 10
ANCHORS = 4 * 16 * 10
LABELS = 4 * 10
CCFA = (
    "fedccfa model=mlp model.hidden=16 drift=none participants=5 rounds=2 "
    "strategy.clustering={} strategy.alignment={} strategy.anchors={}"
)
FLEX = "flexcfl clusters=3 strategy.alpha=2 drift=none rounds=2"
STO = "stocfl drift.rounds=[] participants=12 rounds=2"

BYTES: dict[str, tuple[list[int], list[int]]] = {
    **{name: ([6 * MODEL] * 4,) * 2 for name in ("fedavg", "apfl", "ditto", "auxo")},
    "fedem strategy.components=4": ([24 * MODEL] * 4,) * 2,
    "scaffold": ([12 * MODEL] * 4,) * 2,
    "local": ([0] * 4,) * 2,
    "local_rounds": ([0] * 4,) * 2,
    "local_async strategy.public=30": ([0] * 4,) * 2,
    f"fedrep {HIDDEN}": ([6 * EXTRACTOR] * 4,) * 2,
    f"fedbabu {HIDDEN}": ([6 * EXTRACTOR] * 4,) * 2,
    f"fedfm {HIDDEN}": (
        [6 * (EXTRACTOR + HEAD + ANCHORS + LABELS)] * 4,
        [6 * (EXTRACTOR + HEAD + ANCHORS)] * 4,
    ),
    # Classifiers come back with the tests.
    f"fedpac {HIDDEN}": (
        [6 * (EXTRACTOR + HEAD + 2 * ANCHORS + LABELS)] * 4,
        [6 * (EXTRACTOR + ANCHORS + HEAD)] * 4,
    ),
    # Global anchors go to all participants of the next round.
    **{
        CCFA.format("balanced", "contrast", anchors): (
            [5 * (EXTRACTOR + 2 * HEAD + ANCHORS + LABELS)] * 2,
            [5 * (EXTRACTOR + HEAD + ANCHORS)] * 2,
        )
        for anchors in ("clustered", "global")
    },
    CCFA.format("local", "none", "clustered"): (
        [5 * (EXTRACTOR + HEAD + LABELS)] * 2,
        [5 * (EXTRACTOR + HEAD)] * 2,
    ),
    # The hello's histograms, models of participants, histograms after the drift.
    "fielding rounds=2 drift.rounds=[2]": (
        [6 * MODEL + 24 * LABELS, 6 * MODEL],
        [6 * MODEL] * 2,
    ),
    "static": ([6 * MODEL + 12 * LABELS, *[6 * MODEL] * 3], [6 * MODEL] * 4),
    "ifca clusters=3 drift=none": ([6 * MODEL] * 4, [18 * MODEL] * 4),
    "fesem clusters=3 drift=none": ([6 * MODEL] * 4,) * 2,
    # Losses and counts of one model go up with it.
    "feddrift drift.rounds=[] rounds=2": ([6 * (MODEL + 8)] * 2, [6 * MODEL] * 2),
    # Updates of six, then directions to everyone, with the first test.
    FLEX: ([12 * MODEL, 6 * MODEL], [(36 + 6) * MODEL, 6 * MODEL]),
    f"{FLEX} strategy.sketch=128": (
        [6 * 128 * 4 + 6 * MODEL, 6 * MODEL],
        [36 * 128 * 4 + 6 * MODEL, 6 * MODEL],
    ),
    f"{FLEX} strategy.grouping=random": (
        [9 * MODEL, 6 * MODEL],
        [(36 + 6) * MODEL, 6 * MODEL],
    ),
    STO: ([36 * MODEL, 24 * MODEL],) * 2,
    f"{STO} strategy.sketch=128": (
        [12 * 128 * 4 + 24 * MODEL, 24 * MODEL],
        [36 * MODEL, 24 * MODEL],
    ),
}
"""Bytes up and down, round by round."""


@pytest.mark.parametrize("options", BYTES)
def test_bytes_are_those_of_the_protocol(options, run_small):
    up, down = BYTES[options]
    rows = run_small(*f"strategy={options}".split()).rounds
    assert [row["bytes_up"] for row in rows] == up
    assert [row["bytes_down"] for row in rows] == down


ALL = "participants=12 drift.rounds=[]"
PLAIN = f"strategy.weighting=plain {ALL}"
WHOLE = f"strategy.local.batch_size=999 {ALL}"
"""In one batch, whose order does not matter but for rounding."""
OWN = f"strategy.start={{}} strategy.regularisation=0.5 {PLAIN} rounds=5"

APFL = "apfl strategy.adaptive=false strategy.alpha"

ENDS = [
    (f"{APFL}=0 {PLAIN}", f"fedavg {PLAIN}", 1e-4),
    (f"{APFL}=1 {PLAIN}", f"local_rounds {PLAIN}", 1e-4),
    (
        "ditto strategy.regularisation=0 strategy.start=initial participants=12",
        "local_rounds participants=12",
        1e-6,
    ),
    (
        f"fedem strategy.components=1 {WHOLE}",
        f"ifca strategy.clusters=1 strategy.weighting=samples {WHOLE}",
        1e-3,
    ),
    ("fedprox strategy.local.mu=0", "fedavg", 0),
    (f"cfl strategy.norms=relative {ALL}", f"fedavg {PLAIN}", 0),
    *(
        (
            f"stocfl strategy.threshold=1 {OWN.format(start)}",
            f"ditto {OWN.format(start)}",
            1e-6,
        )
        for start in ("omega", "initial")
    ),
    (f"stocfl strategy.service=omega {WHOLE}", f"fedavg {WHOLE}", 0.05),
]
"""A method at an end of its settings, the method that it is there, and how nearly."""


@pytest.mark.parametrize(("one", "other", "error"), ENDS, ids=str)
def test_at_the_ends_of_its_settings_a_method_is_another(one, other, error, run_small):
    runs = [
        run_small(*f"strategy={options}".split(), folder=str(place))
        for place, options in enumerate((one, other))
    ]
    losses = [[row["loss"] for row in run.rounds] for run in runs]
    assert losses[0] == pytest.approx(losses[1], rel=error)


SWAP = "drift=swap_all drift.probability=1 drift.every=null drift.rounds=[4]"
REFRESH = f"stocfl {SWAP} strategy.refresh=on_drift rounds=6"
SHARED = "strategy.representation.shared"
GRADIENT = (
    f"fielding strategy/representation={{}} {SHARED}.epochs=2 {SHARED}.samples=20 "
    "strategy.distance=l2"
)
NOISY = "faults.attackers=[2] faults.attack=noise"
DRIFTS = (
    *("noise drift.rounds=[2,4]", "test_time drift.rounds=[2,4]"),
    "gradual drift.rounds=[2] drift.width=3",
    "recurring_covariate drift.first=2 drift.every=1",
)
OFTEN = "rounds=5 drift.rounds=[2,3,4,5] participants=3"
OPTIONS = [
    f"fielding strategy/trigger=pairwise strategy.trigger.delta=0.3 {OFTEN}",
    "fielding strategy/threshold_learning=trials strategy.threshold_learning.rounds=1 "
    + OFTEN,
    GRADIENT.format("gradient"),
    GRADIENT.format("combined"),
    *(f"{REFRESH} strategy.{o}" for o in ("sketch=64", "omega=sequential")),
    *(
        f"stocfl drift.rounds=[] rounds=5 strategy.{option}"
        for option in (
            *("representation=difference", "recompute=false", "merged_model=larger"),
            *("start=initial", "omega=sequential"),
        )
    ),
    "cfl drift.rounds=[] participants=12 strategy.norms=relative strategy.first=1 "
    "strategy.eps1=0.5 strategy.eps2=0.75 rounds=6",
    # Another mixture after every upload, with and without an adjustment, which starts
    # at a share of all rounds.
    *(
        "ccfl strategy.public=30 participants=12 partition=mixtures rounds=4 "
        "partition.clusters=3 partition.sizes=[20,40] partition.test_samples=10 "
        "drift=mixture_redraw drift.every=1 drift.first=2 drift.rounds=[] "
        f"strategy.stream=cycles strategy.arrival=shuffled {adjusted}"
        for adjusted in ("strategy.adjust_from=1", "strategy.adjust_from=0")
    ),
    # The buffer is not empty after three rounds of six uploads.
    "fedbuff strategy.buffer=4 drift.rounds=[] rounds=6",
    # Updates are bounded by what was typical before.
    "fedavg strategy.robust=clip privacy.secure_sums=true participants=8",
    *(f"{name} strategy.robust=clip {NOISY}" for name in ("fedavg", "ccfl")),
    # FedDrift keeps how the samples of earlier rounds looked.
    *(f"feddrift partition=iid clients=6 participants=3 drift={d}" for d in DRIFTS),
]


@pytest.mark.parametrize("options", sample(OPTIONS, OPTIONS[::3]))
def test_options_give_the_same_run_on_any_nodes_and_after_a_break(options, run_small):
    asked = f"strategy={options}".split()
    whole = run_small(*asked)
    nodes = InProcessGrid([{}, {}, {}])
    run_small(*asked, "rounds=3", folder="parts", grid=nodes)
    parts = run_small(*asked, "resume=true", folder="parts")
    assert parts.numbers == whole.numbers
    assert parts.summary["data"] == whole.summary["data"]
    last = whole.rounds[-1]
    assert last.get("purity", 1) == 1
    if "strategy.distance=l2" in asked:
        assert whole.rounds[0]["ari"] == 1


@pytest.mark.parametrize(
    "options",
    [
        "strategy=ifca",
        "strategy=ifca strategy.tested=best",
        "strategy=ifca strategy.migration=true",
        "strategy=ifca privacy.secure_sums=true participants=12",
        "strategy=flexcfl",
        "strategy=flexcfl strategy.migration=false",
        "strategy=fesem",
    ],
)
def test_one_cluster_has_all_clients(run_small, options):
    run = run_small(*options.split(), "strategy.clusters=1")
    assert {row["num_clusters"] for row in run.rounds} == {1}
    assert not any(row["failures"] for row in run.rounds)
    assert run.rounds[-1]["accuracy"] > run.rounds[0]["accuracy"]


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
    run = run_small(*SWAP.split(), "participants=12", "rounds=8", *method)
    # Tests are before the drift, and reports are about the data of the round after.
    assert [each["round"] for each in run.rounds if each["drifted"]] == [3]
    moves = [each["round"] for each in run.rounds[1:] if each["moved"]]
    assert moves in ([3], []), "the labels that clients hold have changed once"
    sent = [each["bytes_up"] for each in run.rounds]
    assert [each - sent[1] for each in sent[1:]] == [0, reported, 0, 0, 0, 0, 0]
