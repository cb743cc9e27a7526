"""`cfl-flower` starts every command, and lists what there is to choose."""

import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from cfl_flower import __version__
from cfl_flower.errors import ConfigError
from simulations import choices
from simulations.cli import COMMANDS, DEVICES, main
from tests.conftest import run_command

Teller = Callable[..., str]


@pytest.fixture
def tell(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Teller:
    def told(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["cfl-flower", *arguments])
        assert main([*arguments]) == 0
        return capsys.readouterr().out

    return told


def test_help_has_a_line_for_each_command(tell):
    shown = tell("--help")
    assert all(f"\n  {name} " in shown for name in (*COMMANDS, "list", "deploy"))
    assert "One run, or a Hydra sweep" in shown
    assert tell() == shown
    assert all(f"\n  {name} " in tell("deploy", "--help") for name in DEVICES)
    assert tell("--version") == f"cfl-flower {__version__}\n"


def test_the_nearest_command_is_told(capsys):
    assert main(["rn"]) == 2
    assert "rn is no command; did you mean run?" in capsys.readouterr().err


EARLY_EXITS = {
    "run --help": 0,
    "run strategy=fieldin": 2,
    "run stratgy.threshold=1": 2,
    "compare --help": 0,
    "compare strategy=fedavg,ifca roundz=3": 2,
    "preview --help": 0,
    "preview clints=1": 2,
    "choices strategy": 0,
}
RUN_ALL = """
import sys
from importlib import import_module
for line in sys.argv[1:]:
    name, *words = line.split()
    try:
        code = import_module(f"simulations.{name}").main(words)
    except SystemExit as ended:
        code = ended.code
    print(f"\\nended: {line}:", code, *sys.modules)
"""
"""Carries out commands, and says after each what has been imported."""


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("arguments", [["--help"], ["list", "strategy"]])
def test_a_reader_may_stop_reading(arguments, unbuffered):
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run(
        [sys.executable, "-m", "simulations.cli", *arguments],
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        stdout=write,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(write)
    assert (ended.returncode, ended.stderr) == (1, b"")


def test_help_and_a_wrong_key_need_none_of_what_trains():
    done = run_command([sys.executable, "-c", RUN_ALL, *EARLY_EXITS], check=True)
    said = [line for line in done.stdout.splitlines() if line.startswith("ended: ")]
    heavy = {"flwr", "vl_convert", "pandas", "ray", "scipy", "sklearn", "torch"}
    for told, (line, expected) in zip(said, EARLY_EXITS.items(), strict=True):
        code, *imported = told.removeprefix(f"ended: {line}:").split()
        assert code == str(expected)
        assert "cfl_flower.errors" in imported
        assert not heavy & {*imported}, line


def test_a_run_in_process_needs_neither_ray_nor_what_draws_nor_a_compiler(tmp_path):
    script = (
        "import sys\n"
        "from simulations.run import main\n"
        "main(sys.argv[1:])\n"
        "print(*sys.modules)"
    )
    settings = ["-q", "engine=inprocess", "rounds=1", "drift=none", "model=mlp"]
    command = [sys.executable, "-c", script, *settings, f"output_dir={tmp_path}"]
    done = run_command(command, check=True)
    imported = set(done.stdout.split())
    assert "torch" in imported
    assert not {"vl_convert", "ray", "sympy", "torch._dynamo", "torchvision"} & imported


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("", "selection"),
        ("strategy", "pFedMe (Dinh et al., 2020): personal models by Moreau "),
        ("experiment", "FlexCFL, Table 3: MNIST by FedProx's recipe"),
        ("pfedme", "lambda, strength of the attraction between theta and w."),
        ("dirichlet", "Concentration: small is uneven."),
        ("drift=sudden", "steps.first.swaps"),
        ("strategy=fedavg", "local.learning_rate"),
    ],
)
def test_choices_are_listed_with_what_they_are(name, line, capsys):
    headings, rows = choices.list_choices(name)
    assert any(cell.startswith(line) for row in rows for cell in row)
    assert {len(row) for row in rows} == {len(headings)}
    assert choices.main([name] if name else []) == 0
    assert line.split(maxsplit=1)[0] in capsys.readouterr().out


def test_methods_say_what_they_need_and_when_to_use_them():
    headings, rows = choices.list_choices("strategies")
    assert headings == ["strategy", "", "needs", "use"]
    assert all(all(row) for row in rows)
    assert choices.list_choices("drift")[0] == ["drift", ""]


def test_a_misspelt_name_is_met_with_the_nearest(capsys):
    with pytest.raises(ConfigError, match=r"feilding is neither .* fielding\?"):
        choices.list_choices("feilding")
    assert choices.main(["zzz"]) == 2
    assert "known here: dataset, devices, drift" in capsys.readouterr().err
    with pytest.raises(ConfigError, match="write drift=none or logger=none or"):
        choices.list_choices("none")
