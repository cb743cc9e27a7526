"""Tables of saved runs, from files written by hand."""

import csv
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from cfl_flower.analysis.comparison import compare, score_runs
from cfl_flower.analysis.drift_metrics import score
from cfl_flower.analysis.saved import load_run
from cfl_flower.analysis.scorecards import score_table
from cfl_flower.config.compose import compose_sweep
from cfl_flower.errors import ConfigError
from cfl_flower.run_config import RunConfig
from simulations.reporting.written import to_csv, to_frame

SMALL = "clients=6 participants=3 rounds=3 drift.rounds=[2] partition.groups=3"


def finish(config: RunConfig, accuracies: Sequence[float | None]) -> Path:
    """Write what a finished run leaves behind; half of the clients move in round 3."""
    folder = Path(config.output_dir)
    folder.mkdir(parents=True)
    common = {"cluster_sizes": [6], "failures": [], "bytes_up": 1, "bytes_down": 1}
    rounds = [
        {"round": t, "accuracy": value, **common}
        for t, value in enumerate(accuracies, 1)
    ]
    tests = [
        {"round": t, "client": i, "cluster": int(t == 3 and i < 3), "accuracy": 0.5}
        for t in range(1, len(accuracies) + 1)
        for i in range(6)
    ]
    for name, lines in (("rounds", rounds), ("clients", tests)):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}.jsonl").write_text(text)
    (folder / "config.yaml").write_text(yaml.safe_dump(config.resolved))
    summary = {"rounds": len(accuracies), "seconds": 1.0}
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def rows(text: str) -> dict[str, list[list[str]]]:
    """Return the cells of all tables by their first one."""
    found: dict[str, list[list[str]]] = {}
    for line in text.splitlines():
        if "│" in line or "┃" in line:
            name, *cells = [part.strip() for part in re.split("[│┃]", line)]
            found.setdefault(name, []).append(cells)
    return found


def printed(configs: Sequence[RunConfig], reference: str = "fedavg") -> str:
    text = io.StringIO()
    compare(configs, Console(file=text, width=250), reference=reference)
    return text.getvalue()


def test_each_run_of_a_sweep_is_compared_with_the_reference_of_its_settings(tmp_path):
    sweep = f"{SMALL} strategy=fedavg,ifca faults.malicious=0,0.5"
    configs = compose_sweep(f"{sweep} output_dir={tmp_path}")
    each = [(0.5, 0.5, 0.9), (0.4, 0.6, 0.6), (0.5, 0.9, 0.9), (0.3, 0.4, 0.5)]
    for config, accuracies in zip(configs, each, strict=True):
        finish(config, accuracies)
    text = printed(configs)
    found = rows(text)
    (heading,) = [row for row in found["strategy"] if "at target from round" in row]
    place = heading.index("at target from round")
    fast = heading.index("speed-up to target")
    numbers = {
        name: (cells[1][place], cells[1][fast])
        for name, cells in found.items()
        if "malicious" in name
    }
    assert numbers == {
        "fedavg malicious=0": ("3", "1.00"),
        # 0.6 from the second round on; without attacks 0.9 from the third.
        "fedavg malicious=0.5": ("2", "1.00"),
        "ifca malicious=0": ("2", "1.50"),
        "ifca malicious=0.5": ("never", "never"),
    }
    words = " ".join(text.split())
    assert "target: the final accuracy of fedavg" in words
    cost = [row for row in found["fedavg malicious=0.5"] if "60.0" in row]
    assert len(cost) == 2  # its final accuracy, and its target
    # Half of the clients move in one of two rounds.
    assert found["ifca malicious=0"][2] == ["25.0"]


def test_the_worst_client_is_told_and_who_would_be_better_alone(tmp_path):
    strategies = "strategy=fedavg,local,ifca seed=0,1"
    configs = compose_sweep(f"{SMALL} {strategies} output_dir={tmp_path}")
    last = {
        "fedavg": [0.9, 0.2, 0.8, 0.8, 0.8, 0.8],
        "local": [0.8, 0.5, 0.5, 0.5, 0.5, 0.5],
        "ifca": [0.4, 0.4, 0.4, 0.5, 0.9, None],
    }
    for config in configs:
        folder = finish(config, (0.5, 0.6, 0.7))
        path = folder / "clients.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        for line in lines[-6:]:
            line["accuracy"] = last[config.names["strategy"]][line["client"]]
            line["client"] = f"site-{line['client']}"
        kept = [line for line in lines if line["accuracy"] is not None]
        path.write_text("".join(json.dumps(line) + "\n" for line in kept))
    found = rows(printed(configs))
    heading = [f"client site-{each}" for each in range(6)]
    (place,) = [i for i, row in enumerate(found["strategy"]) if heading[0] in row]
    told = ["worst client", "clients better alone"]
    assert found["strategy"][place] == [*told, *heading]
    # The table of leads is of all but FedAvg.
    shown = {name: found[name][-1] for name in last}
    same = "{} ± 0.0".format
    each = map(same, [90.0, 20.0, *4 * [80.0]])
    assert shown["fedavg"] == [same(20.0), same(16.7), *each]
    assert shown["local"][:2] == [same(50.0), "-"]
    assert shown["ifca"][:2] == [same(40.0), same(60.0)]
    assert shown["ifca"][-1] == "-"
    runs = {"ifca": [load_run(Path(configs[-1].output_dir))]}
    text = to_csv(to_frame([("", runs, score_runs(runs))]))
    assert "worst,better_alone,client site-0" in text


def test_never_of_all_methods_is_said_of_all_alone():
    common = {"failures": [], "bytes_up": 1, "bytes_down": 1}
    scores = {}
    # No test is before the first drift; ifca recovers from the second one.
    for name, last in (("fedavg", 0.5), ("ifca", 0.9)):
        tests = enumerate((None, 0.9, None, 0.9, None, last), 1)
        lines = [{"round": t, "accuracy": each, **common} for t, each in tests]
        scores[name] = [{"seed": 0, **score(lines, [2, 5])}]
    table = score_table("", scores)
    place = table.headings.index("rounds to recover")
    assert [line[place] for line in table.lines] == ["never", "-"]
    assert not table.caption


def test_a_common_reference_is_named_once_and_without_one_there_is_no_target(tmp_path):
    configs = compose_sweep(f"{SMALL} strategy=fedavg,ifca output_dir={tmp_path}")
    for config, last in zip(configs, (0.8, 0.7), strict=True):
        finish(config, (0.5, 0.6, last))
    both = " ".join(printed(configs).split())
    assert "target: the final accuracy of fedavg" in both
    alone = printed(configs[1:])
    assert "target" not in alone


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("config.yaml", "strategy: [", "while parsing"),
        ("config.yaml", "3", "no settings"),
        ("summary.json", '{"rounds": ', "Expecting value"),
        ("summary.json", "{}", "no summary of a run"),
        ("rounds.jsonl", '{"round": 1, "accu\n', "line 1 is torn"),
        ("rounds.jsonl", '{"round": 1, "accuracy": 1}\n', "has no cluster_sizes, "),
        ("rounds.jsonl", "[]\n", "line 1 is no JSON object"),
        ("rounds.jsonl", "", "(0 rounds, but 3 by summary.json)"),
        ("clients.jsonl", "", "(no line of round 1)"),
        ("clients.jsonl", '{"round": 1}\n', "line 1 has no client, cluster, accuracy"),
    ],
)
def test_a_broken_file_is_one_line_with_its_name_and_a_remedy(
    name, text, why, tmp_path
):
    configs = compose_sweep(f"{SMALL} strategy=ifca output_dir={tmp_path}/run")
    folder = finish(configs[0], (0.5, 0.6, 0.7))
    (folder / name).write_text(text)
    with pytest.raises(ConfigError) as error:
        compare(configs, Console(file=io.StringIO()))
    message = str(error.value)
    assert message.startswith(str(folder / name))
    assert why in message
    assert "delete" in message
    assert "\n" not in message


def test_leads_over_seeds_say_which_of_them_hold(tmp_path):
    sweep = f"{SMALL} strategy=fedavg,ifca,fesem seed=0,1,2 output_dir={tmp_path}"
    finals = {
        "fedavg": (0.5, 0.6, 0.5),
        "ifca": (0.7, 0.79, 0.7),
        "fesem": (0.6, 0.58, 0.54),
    }
    for config in (configs := compose_sweep(sweep)):
        last = finals[config.names["strategy"]][config.seed]
        finish(config, (0.5, 0.5, last))

    def leads(configs: Sequence[RunConfig], reference: str) -> dict[str, str]:
        text = printed(configs, reference)
        assert f"lead over {reference}, in points" in text
        assert "Holm's correction" in text
        found = {name: [row[0] for row in cells] for name, cells in rows(text).items()}
        # The second table, or the only one without a row of its own.
        return {name: found[name][1] for name in finals if name != reference}

    # Differences of 20, 19 and 20 points; of 10, -2 and 4.
    assert leads(configs, "fedavg") == {
        "ifca": "+19.7 ± 1.4",
        "fesem": "+4.0 ± 14.9, no lead",
    }
    # The lead over a method that the user names; fedavg has a row of its own.
    over = leads(configs, "ifca")
    assert over == {"fedavg": "-19.7 ± 1.4", "fesem": "-15.7 ± 13.7"}
    two = [config for config in configs if config.seed < 2]
    assert leads(two, "fedavg")["ifca"] == "+19.5, two seeds"


def test_what_metrics_chose_has_a_table_and_columns_of_its_own(tmp_path):
    sweep = f"{SMALL} strategy=fedavg,ifca output_dir={tmp_path}"
    plain = compose_sweep(sweep)
    for config in plain:
        finish(config, [0.5, 0.6, 0.7])
    without = printed(plain)
    assert "measures in %" not in without
    # A measure of concepts that come back, where none does.
    path = Path(plain[1].output_dir) / "rounds.jsonl"
    lines = path.read_text()
    path.write_text(lines.replace('"round"', '"forgetting": null, "round"'))
    assert "measures in %" not in printed(plain)
    path.write_text(lines)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for value, line in zip([None, 0.25, 0.75], lines, strict=True):
        line |= {"macro_f1": value, "auc": None, "validation_accuracy": 0.5}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    cells = rows(printed(plain))
    assert ["macro-F1", "validation"] in cells["strategy"]
    assert ["50.0", "50.0"] in cells["ifca"]
    assert ["-", "-"] in cells["fedavg"]
    both = {"both": [load_run(path.parent)]}
    text = to_csv(to_frame([("", both, score_runs(both))]))
    head, row = csv.reader(io.StringIO(text))
    found = dict(zip(head, row, strict=True))
    assert found["macro_f1"] == found["validation_accuracy"] == "0.5"
    assert found["auc"] == ""
    path.write_text(path.read_text().replace("0.25", '"much"'))
    with pytest.raises(ConfigError, match="macro_f1"):
        load_run(path.parent)
