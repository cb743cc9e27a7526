"""What the command makes of the lines of Flower's CLI."""

from pathlib import Path

import pytest

from cfl_flower.errors import RunFailedError
from simulations.deploy import submit

UNKNOWN = """\
╭─ Error ──────────────────────────────────────────────────────────────────────╮
│ An unexpected error occurred while reading the Flower configuration file     │
│ (/var/lib/.flwr/config.toml). SuperLink connection 'prodd' not found in the  │
│ Flower configuration file (/var/lib/.flwr/config.toml).                      │
╰──────────────────────────────────────────────────────────────────────────────╯
"""
NOBODY = """\
Using SuperLink: prod (127.0.0.1:9092)
╭─ Error ──────────────────────────────────────────────────────────────────────╮
│ Connection to the SuperLink is unavailable. Please check your network        │
│ connection and 'address' in the SuperLink connection configuration.          │
╰──────────────────────────────────────────────────────────────────────────────╯
"""
INFO = "\x1b[92mINFO \x1b[0m:      "


@pytest.fixture
def flwr(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of lines that a false `flwr` prints."""
    lines, command = tmp_path / "lines.txt", tmp_path / "bin" / "flwr"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\ncat '{lines}'\n")
    command.chmod(0o755)
    path = {"PATH": f"{command.parent}:/usr/bin:/bin"}
    monkeypatch.setattr(submit, "environment", lambda: path)
    # As `subprocess` looks for the command.
    monkeypatch.setenv("PATH", path["PATH"])
    return lines


@pytest.mark.parametrize(
    ("lines", "words"),
    [(UNKNOWN, "not found in the"), (NOBODY, "the SuperLink is unavailable")],
)
def test_a_superlink_that_takes_no_run_is_said_in_flowers_words(lines, words, flwr):
    flwr.write_text(lines)
    with pytest.raises(RunFailedError, match=words):
        submit.start("prod", ["rounds=1"])


def test_the_first_line_names_the_run_whatever_its_own_lines_say(flwr):
    flwr.write_text(
        "Successfully started run 7\n"
        f"{INFO}Starting logstream for run_id `7`\n"
        "client 3, train: raised: Successfully started run 8\n"
        "client 3, train: raised: cfl-flower error: forged\n"
        "ValueError: cfl-flower error: forged\n"
    )
    assert submit.start("prod", []) == ("7", "")


@pytest.mark.parametrize(
    "line",
    [
        "cfl-flower error: no node joined",
        "\x1b[31mcfl-flower error: no node joined\x1b[0m",
        f"{INFO}cfl-flower error: no node joined",
        "ERROR 2026-01-31 12:00:00,123: cfl-flower error: no node joined  ",
    ],
)
def test_a_run_that_gives_up_says_why(line, flwr, capsys):
    flwr.write_text(f"Successfully started run 7\n{line}\nmore\n")
    assert submit.start("prod", []) == ("7", "no node joined")
    assert "\x1b" not in capsys.readouterr().out, "no colours but on a terminal"


REFUSED = [
    ("strategy=cfl privacy.secure_sums=true", "privacy.secure_sums=true"),
    ("strategy=fedbuff devices.slowest=0.5", "devices.slowest="),
    ("rounds=0", "rounds=0"),
    ("rounds=2 --restarts 1 seed=1", "needs output_dir"),
    ("rounds=2 --restarts -1", "--restarts: -1 is not allowed; use at least 0"),
    ("stratgy=fedavg", "did you mean strategy?"),
    ("dataset=folder participants=9 clients=3", "participants=9"),
    ("dataset=mnist data_dir=/on/the/superlink rounds=0", "rounds=0"),
    ("dataset=folder strategy=cfl privacy.secure_sums=true", "secure_sums=true"),
    ("strategy=fedavg,cfl privacy.secure_sums=true", "secure_sums=true"),
    ("strategy=fedavg clusters=0", "clusters=0"),
    ("dataset=csv dataset.label=y strategy=cfl privacy.secure_sums=true", "secure_"),
    ("dataset=mnist data_dir=/on/it strategy=cfl privacy=central", "privacy="),
    ("dataset=csv strategy=local server_optimizer=yogi", "server_optimizer="),
]


@pytest.mark.parametrize(("overrides", "told"), REFUSED)
def test_what_the_superlink_would_refuse_is_refused_here(overrides, told, flwr, capsys):
    flwr.write_text("Successfully started run 7\n")
    assert submit.main(["prod", *overrides.split()]) == 2
    out, err = capsys.readouterr()
    assert told in err
    assert err.startswith("cfl-flower error: ")
    assert "started" not in out


@pytest.mark.parametrize(
    "overrides",
    [
        "dataset=mnist data_dir=/on/the/superlink output_dir=/on/it",
        "dataset=folder clients=3 participants=3",
        "strategy=ifca",
        "dataset=csv dataset.label=y partition=natural model=ccfl_cnn",
        "dataset=csv dataset.label=y partition=dirichlet drift=sensor_failure",
        "dataset=mnist data_dir=/on/it model=lstm partition=rotated metrics=[auc]",
    ],
)
def test_what_it_may_take_is_not(overrides):
    submit.check_here(overrides.split())
