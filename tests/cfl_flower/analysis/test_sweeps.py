"""Tables of methods by the values of a swept setting."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from cfl_flower.analysis.comparison import compare
from cfl_flower.analysis.method_tables import Table
from cfl_flower.analysis.saved import SavedRun, read_finished
from cfl_flower.analysis.sweeps import sweep_tables
from cfl_flower.config.compose import compose_config
from cfl_flower.errors import ConfigError
from cfl_flower.run_config import RunConfig
from simulations.compare import by_settings, make_jobs
from tests.conftest import SMALL


def swept(configs: list[RunConfig]) -> list[Table]:
    """Return the tables of configurations whose runs may be finished."""
    return sweep_tables(
        [
            read_finished(config) or SavedRun(Path(), [], config.resolved, [], [])
            for config in configs
        ]
    )


def columns(configs: list[RunConfig]) -> dict[str, list[list[str]]]:
    """Return the cells of each table, column by column with its heading."""
    return {
        table.title: list(map(list, zip(table.headings, *table.lines, strict=True)))
        for table in swept(configs)
    }


def test_a_sweep_table_has_a_row_per_method_and_a_column_per_value(run_small, tmp_path):
    quick = ["rounds=2", "clients=6", "participants=3"]
    found, configs = {}, []
    for method in ("strategy=fedavg", "strategy=fielding"):
        for share in ("0", "0.5"):
            own = [*quick, method, f"faults.malicious={share}"]
            run = run_small(*own, folder=f"{method}{share}")
            found[method, share] = run.rounds
            wanted = [*SMALL, *own, f"output_dir='{run.folder}'"]
            configs.append(compose_config(wanted))
    unfinished = [each for each in configs[3].overrides if "output_dir" not in each]
    honest = found["strategy=fielding", "0.5"]
    tables = columns(configs)
    final, mean, of_honest = tables.values()
    assert final[0] == ["strategy", "fedavg", "fielding"]
    assert [column[0] for column in final[1:]] == ["malicious=0", "malicious=0.5"]
    assert final[2][2] == f"{100 * honest[1]['accuracy']:.1f}"
    both = sum(row["accuracy_honest"] for row in honest) / 2
    assert of_honest[2][2] == f"{100 * both:.1f}"
    assert of_honest[1] == mean[1]
    console = Console(file=StringIO(), width=120)
    compare(configs, console)
    assert "final accuracy, in %, by faults.malicious" in console.file.getvalue()  # type: ignore[attr-defined]
    lost = compose_config([*unfinished, "output_dir=/tmp/nowhere"])
    assert next(iter(columns([*configs[:3], lost]).values()))[2][2] == "failed"
    more = compose_config([*unfinished, "seed=7", "output_dir=/tmp/nowhere"])
    known = f"{final[2][2]}, 1 of 2 seeds"
    assert next(iter(columns([*configs, more]).values()))[2][2] == known


def test_methods_and_seeds_alone_are_no_sweep():
    runs = ["strategy=fedavg", "strategy=fielding"], ["seed=1"], ["rounds=3"]
    assert swept([compose_config(each) for each in runs[:2]]) == []


def test_settings_within_a_column_name_rows_and_those_of_columns_are_told():
    methods = ("strategy=fedavg", "strategy=fielding")
    streams = ("experiment=labels", "experiment=meanings")
    final, _ = swept([compose_config([m, each]) for m in methods for each in streams])
    assert [line[0] for line in final.lines] == ["fedavg", "fielding"]
    compared = ("label_histogram", "gradient")
    told = [f"fielding representation={each}" for each in compared]
    assert [line.split(": ")[1] for line in final.caption.splitlines()] == told
    swept_too = ["strategy.threshold=0,1", "drift=none,rotate"]
    jobs = make_jobs(["strategy=fielding,static", *swept_too, "output_dir=/tmp/no"])
    final, _ = swept([job.config for job in jobs])
    named = [f"{m} threshold={t}" for m in ("fielding", "static") for t in (0, 1)]
    assert [line[0] for line in final.lines] == named
    assert final.headings == ["strategy", "drift=none", "drift=rotate"]
    assert not final.caption


def test_a_swept_setting_applies_to_the_methods_that_have_it(tmp_path):
    asked = ["strategy=fedavg,fielding,static", "strategy.threshold=0,1", "rounds=2"]
    jobs = make_jobs([*asked, f"output_dir={tmp_path}"])
    assert [job.label for job in jobs] == [
        "fedavg",
        *("fielding-strategy.threshold0", "fielding-strategy.threshold1"),
        *("static-strategy.threshold0", "static-strategy.threshold1"),
    ]


def test_a_setting_that_no_method_has_is_refused(tmp_path):
    asked = ["strategy=fedavg,fielding", "strategy.treshold=0,1"]
    assert by_settings(asked) == [asked]
    both = by_settings([*asked, "strategy.threshold=0,1"])
    assert all("strategy.treshold=0,1" in line for line in both)
    with pytest.raises(ConfigError, match=r"strategy\.treshold is no"):
        make_jobs([*asked, f"output_dir={tmp_path}"])
