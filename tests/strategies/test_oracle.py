import io

import pytest
from rich.console import Console

from cfl_flower.config.compose import compose_config
from cfl_flower.errors import ConfigError
from cfl_flower.server_app import execute
from simulations.compare import make_jobs
from simulations.engines.inprocess import InProcessGrid
from tests.conftest import Run


def test_its_clusters_are_the_true_concepts_in_every_round(run_small):
    run = run_small("strategy=oracle", "rounds=6", "drift.rounds=[3,5]")
    assert {row["ari"] for row in run.rounds} == {1.0}
    assert [row["reclustered"] for row in run.rounds] == [False, True] * 2 + [False] * 2


def test_a_partial_drift_moves_only_who_drifted(run_small):
    run = run_small("strategy=oracle", "drift.fraction=0.25")
    assert {row["ari"] for row in run.rounds} == {1.0}
    assert run.rounds[-1]["num_clusters"] > 3


ONE_CONCEPT = ["drift=none", "partition=dirichlet", "clients=12", "rounds=2"]


def test_without_several_concepts_there_is_no_oracle_and_no_index(tmp_path):
    folder = f"output_dir={tmp_path}/run"
    with pytest.raises(ConfigError, match=r"strategy=oracle .* several true concepts"):
        compose_config(["strategy=oracle", *ONE_CONCEPT])
    config = compose_config(["strategy=fedavg", folder, *ONE_CONCEPT])
    execute(InProcessGrid(), config, Console(file=io.StringIO()))
    assert [row["ari"] for row in Run(tmp_path / "run").rounds] == [None, None]
    # A single one at first is one of several where they change in the run.
    changing = ["drift=sudden", "drift.rounds=[2]", *ONE_CONCEPT[1:]]
    assert compose_config(["strategy=oracle", *changing]).timeline.has_concepts
    late = compose_config(["drift=sudden", "drift.rounds=[3]", *ONE_CONCEPT[1:]])
    assert not late.timeline.has_concepts


def test_a_comparison_leaves_the_oracle_out_where_there_is_none(tmp_path):
    asked = ["strategy=fedavg,oracle", *ONE_CONCEPT, f"output_dir={tmp_path}"]
    names = [job.config.names["strategy"] for job in make_jobs(asked)]
    assert names == ["fedavg"]


def test_real_devices_have_no_known_concepts(run_small):
    grid = InProcessGrid([{"client-id": i} for i in range(12)])
    with pytest.raises(ConfigError, match="use another strategy on real devices"):
        run_small("strategy=oracle", grid=grid)
