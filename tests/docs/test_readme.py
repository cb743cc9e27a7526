"""README's commands, pasted one after the other into a shell, as a new user would.

They are pasted in the order of the page in a fresh copy of the checkout, with a home, a
FLWR_HOME and Flower's own local SuperLink that no other run has touched. Three things
are not as on the page: `make run` finds the packages of this environment instead of
installing them again, `make test`, which would run this test, is only looked up, and
the lines for a ServerApp run in one.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from flwr.app import ArrayRecord

from simulations.engines.inprocess import InProcessGrid
from simulations.engines.superlink import free_ports
from tests.cfl_flower.dropin import quickstarts

ROOT = Path(__file__).parents[2]


def blocks() -> list[tuple[str, str]]:
    """Return README's blocks of code, each with its language."""
    text = (ROOT / "README.md").read_text()
    return re.findall(r"```(bash|python)\n(.*?)```", text, re.DOTALL)


def of_a_server_app(block: str) -> bool:
    """Return whether a block stands in a ServerApp's main function, not in a shell."""
    return "grid=grid" in block


def page(comparisons: bool = True) -> str:
    """Return all that README asks to type, as one script, or that without sweeps.

    The main job compares, too.
    """
    script = ["set -e"]
    for language, block in blocks():
        if language == "bash":
            script.append(block)
        elif not of_a_server_app(block):
            script.append(f"python - <<'PASTED'\n{block}PASTED")
    text = re.sub(r"^make test\b", "make --dry-run test", "\n".join(script), flags=re.M)
    if comparisons:
        return text
    sweep = r"^(?:cfl-flower compare |cfl\.compare)(?:.*\\\n)*.*\n"
    return re.sub(sweep, "", text, flags=re.M)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the checkout with an environment, as `make run` installs it."""
    folder = tmp_path / "cfl-flower"
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in names.stdout.splitlines():
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    environment = folder / ".venv"
    command = [sys.executable, "-m", "venv", "--without-pip", environment]
    subprocess.run(command, check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    installed = [path for path in sys.path if path.endswith("site-packages")]
    paths = "".join(f"{path}\n" for path in [folder, *installed])
    (packages / "installed.pth").write_text(paths)
    for script in Path(sys.executable).parent.iterdir():
        if script.is_file() and script.read_bytes().startswith(b"#!"):
            first, _, rest = script.read_text().partition("\n")
            if first == f"#!{sys.executable}":
                copy = environment / "bin" / script.name
                copy.write_text(f"#!{environment}/bin/python\n{rest}")
                copy.chmod(0o755)
    (environment / ".ready").touch()
    (environment / ".tools").touch()
    return folder


@pytest.fixture
def newcomer(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The variables of somebody who has used nothing of this before."""
    http, control = free_ports(2)
    home = str(tmp_path / "home")
    (tmp_path / "home").mkdir()
    network = re.compile("PIP_|(http|https|no|all)_proxy$", re.IGNORECASE)
    yield {
        **{name: os.environ[name] for name in os.environ if network.match(name)},
        "PATH": os.defpath,
        "HOME": home,
        "FLWR_HOME": f"{home}/flwr",
        "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT": str(http),
        "FLWR_LOCAL_CONTROL_API_PORT": str(control),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
    }
    ours = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("HOME") == home:
                ours.append(process)
        except psutil.Error:  # it has ended, or is another user's
            continue
    for process in ours:
        process.kill()
    psutil.wait_procs(ours, timeout=30)


def paste(script: str, folder: Path, variables: dict[str, str]) -> str:
    """Return what a shell says to commands, which must end well.

    Flower waits 15 seconds for its SuperLink to start, which can take longer on a busy
    machine; then its commands are pasted once more.
    """
    done = run_shell(script, folder, variables)
    if done.returncode and "Failed to start local SuperLink" in done.stdout:
        rest = script[script.index("export FLWR_") :]
        again = f"set -e\nsource .venv/bin/activate\n{rest}"
        done = run_shell(again, folder, variables)
    assert done.returncode == 0, done.stdout
    return done.stdout


def run_shell(
    script: str, folder: Path, variables: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """Paste commands into a shell."""
    return subprocess.run(
        ["bash"],
        input=script,
        cwd=folder,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def cells(line: str) -> list[str]:
    """Return the cells of a row, as a page has it or as a command prints it."""
    return [cell.strip().strip("*") for cell in re.split("[|│]", line.strip("|"))]


def test_the_lines_for_a_server_app_work_in_one():
    (lines,) = [block for _, block in blocks() if of_a_server_app(block)]
    contexts = [{"partition-id": node} for node in range(6)]
    main: dict[str, Any] = {
        "grid": InProcessGrid(contexts, quickstarts.pytorch),
        "initial_arrays": ArrayRecord(quickstarts.Net().state_dict()),
    }
    exec(lines, main)
    result = main["result"]
    assert len(result.clusters) == 6
    assert set(result.cluster_arrays) == set(result.clusters.values())


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize(
    "comparisons", [False, pytest.param(True, marks=pytest.mark.whole)]
)
def test_all_commands_of_readme_work_in_their_place(comparisons, checkout, newcomer):
    said = paste(page(comparisons), checkout, newcomer)
    printed: dict[str, list[str]] = {}
    for line in said.splitlines():
        if line.count("│") == 8:
            name, *figures = cells(line)
            # Just after, final, mean; the first two tables are the main job's.
            kept = [figures[place] for place in (1, 4, 7)]
            printed.setdefault(name, []).extend(kept)
    text = (ROOT / "README.md").read_text()
    main_job = text.partition("## What the main job shows")[2].partition("\n## ")[0]
    shown = re.findall(r"^\|.*\d\d\.\d.*\|$", main_job, re.M)
    for name, *figures in map(cells, shown):
        assert printed[name.partition(":")[0]][:6] == figures
    assert len(shown) == 7
    # Flower's command exits with 0 whatever happens to the run.
    assert statuses(checkout, newcomer) == ["finished:completed"], said
    # Of several runs that were saved, Flower's is the last.
    run = Path(re.findall(r"^saved in (.+)$", said, re.M)[-1])
    assert run.is_relative_to(checkout / "outputs")
    rounds = (run / "rounds.jsonl").read_text().splitlines()
    assert len(rounds) == 8
    assert any(json.loads(line)["moved"] for line in rounds)
    assert (checkout / "report.html").exists()
    compared = [path.parent.name for path in checkout.glob("runs/*/report.html")]
    assert sorted(compared) == (["comparison", "shifted"] if comparisons else [])

    # The same SuperLink, and the command with a mistake in it.
    (command,) = re.findall(r"^flwr run (?:.*\\\n)*.*$", page(), re.M)
    wrong = command.replace("strategy=fielding", "strategy=feilding")
    lines = paste(
        f"source .venv/bin/activate\n{wrong}", checkout, newcomer
    ).splitlines()
    assert "cfl-flower error: strategy=feilding is not allowed" in lines[-1]
    assert not any(line.startswith("Traceback") for line in lines)
    assert statuses(checkout, newcomer)[0] == "finished:failed"


@pytest.mark.slow
def test_the_wheel_of_a_checkout_is_installed_and_runs(checkout, newcomer, tmp_path):
    place = tmp_path / "installed"
    script = [
        "source .venv/bin/activate",
        "make wheel",
        f"python -m pip install -q --no-deps --target {place} dist/cfl_flower-*.whl",
        f"export PYTHONPATH={place}",
        "python -P -c 'import cfl_flower; print(cfl_flower.__file__)'",
        f"{place}/bin/cfl-flower run strategy=fedavg rounds=2",
        f"{place}/bin/cfl-flower compare rounds=2 output_dir=main-job",
    ]
    said = paste("\n".join(["set -e", *script]), checkout, newcomer)
    assert f"{place}/cfl_flower/__init__.py\n" in said
    assert f"saved in {checkout}/outputs/" in said
    # The methods of a plain comparison stand in the wheel's own pyproject.toml.
    assert (checkout / "main-job" / "oracle" / "summary.json").exists()


def statuses(folder: Path, variables: dict[str, str]) -> list[str]:
    """Return the statuses of all runs, the newest first."""
    words = "source .venv/bin/activate\nflwr list --format json"
    runs = json.loads(paste(words, folder, variables))["runs"]
    return [run["status"] for run in runs]
