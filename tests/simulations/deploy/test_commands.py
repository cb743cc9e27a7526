"""Keys, the doctor and what the guide, the units and the compose file say."""

import json
import re
import shlex
import ssl
import subprocess
import sys
import threading
import tomllib
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from cfl_flower.client.node_config import FOLDER
from cfl_flower.errors import ConfigError
from simulations.deploy import connect, doctor, keys, superlink, supernode
from simulations.engines.superlink import PROJECT

DEPLOY = PROJECT / "simulations" / "deploy"
CSV = "cfl_flower.data.datasets.tables.Csv"
GUIDE = DEPLOY / "README.md"
Door = Callable[[Path, float], int]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Keys of a SuperLink at 127.0.0.1 and of one device."""
    folder: Path = tmp_path_factory.mktemp("made") / "keys"
    assert keys.main([str(folder), "--host", "127.0.0.1", "--device", "site-a"]) == 0
    return folder


@pytest.fixture
def serve() -> Iterator[Door]:
    """Serve https with a folder's certificate and a clock; return the port."""
    servers: list[HTTPServer] = []

    def start(folder: Path, ahead: float = 0.0) -> int:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(404)
                self.end_headers()

            def date_time_string(self, timestamp: float | None = None) -> str:
                now = datetime.now(UTC) + timedelta(seconds=ahead)
                return format_datetime(now, usegmt=True)

            def log_message(self, format: str, *args: object) -> None:
                del format, args

        server = HTTPServer(("", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem", folder / "server.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda request, address: None  # type: ignore[method-assign]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return int(server.server_address[1])

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_keys_are_private_and_kept(made):
    before = {path.name: path.read_bytes() for path in made.iterdir()}
    assert set(before) == {
        *("ca.pem", "ca.key", "server.pem", "server.key", "site-a", "site-a.pub")
    }
    for secret in ("ca.key", "server.key", "site-a"):
        assert (made / secret).stat().st_mode & 0o077 == 0
    assert keys.main([str(made), "--host", "elsewhere", "--device", "site-a"]) == 0
    assert {path.name: path.read_bytes() for path in made.iterdir()} == before
    assert before["site-a.pub"].startswith(b"ecdsa-sha2-nistp384 ")


@pytest.mark.parametrize(
    ("command", "complaint"),
    [([], "at least one"), (["--device", "../x"], "--device=../x")],
)
def test_a_wrong_name_makes_no_key(command, complaint, tmp_path, capsys):
    assert keys.main([str(tmp_path / "keys"), *command]) == 2
    assert complaint in capsys.readouterr().err


def test_the_doctor_finds_nothing_wrong_with_a_healthy_device(
    made, serve, tmp_path, capsys
):
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    data = tmp_path / "data" / "site-a"
    asked = [f"127.0.0.1:{serve(made, 0.0)}", str(made), "--client", "site-a"]
    asked += ["--data-dir", str(data), "--home", str(tmp_path)]
    assert doctor.main([*asked, "--shape", "1", "8", "8"]) == 0
    said = capsys.readouterr().out
    for name in ("certificate", "clock", "key", "data"):
        assert f"ok    {name}" in said
    assert "samples of 5 labels" in said


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"_target_": CSV, "label": "kind"}, "ok    data        8 samples of 2 labels"),
        ({"_target_": CSV, "label": "sort"}, "sort"),
        ({"label": "kind"}, "--settings="),
        ({"_target_": FOLDER}, "--settings="),
    ],
)
def test_the_doctor_reads_a_table_as_its_owners_settings_say(
    settings, said, tmp_path, capsys
):
    rows = [f"{number},{'ab'[number % 2]}" for number in range(10)]
    (tmp_path / "data.csv").write_text("\n".join(["x,kind", *rows]))
    path = tmp_path / "own.json"
    path.write_text(json.dumps({"dataset": settings}))
    asked = ["127.0.0.1:1", str(tmp_path), "--client", "site-a", "--settings"]
    asked += [str(path), "--data-dir", str(tmp_path), "--home", str(tmp_path)]
    assert doctor.main(asked) == 1  # there is no SuperLink
    lines = capsys.readouterr().out.splitlines()
    assert [said in line for line in lines if " data " in line] == [True]


@pytest.mark.parametrize("wrong", ["authority", "name", "expired", "soon", "clock"])
def test_the_doctor_says_what_is_wrong_with_a_superlink(
    wrong, made, serve, tmp_path, monkeypatch, capsys
):
    days = {"expired": -1, "soon": 3}
    monkeypatch.setattr(keys, "SERVER_DAYS", days.get(wrong, 99))
    if wrong == "expired":
        # A certificate cannot end before it starts.
        monkeypatch.setattr(keys, "timedelta", lambda days=9, **_: timedelta(days))
    theirs = tmp_path / "theirs"
    assert keys.main([str(theirs), "--host", "127.0.0.1"]) == 0
    port = serve(theirs, 3600.0 if wrong == "clock" else 0.0)
    host = "127.0.0.2" if wrong == "name" else "127.0.0.1"
    trusted = made if wrong == "authority" else theirs
    assert doctor.main([f"{host}:{port}", str(trusted), "--home", str(tmp_path)]) == 1
    said = [line for line in capsys.readouterr().out.splitlines() if "WRONG" in line]
    complaint = {
        "authority": "signature does not match; copy the right ca.pem, or set the "
        "clock, or remove server.pem and make it anew with simulations.deploy.keys "
        "--host",
        "name": "no matching subjectAltName",
        "expired": "not valid at validation time",
        "soon": "it expires on .*; remove server.pem and make it anew",
        "clock": " s from the SuperLink's: calls fail; use NTP",
    }[wrong]
    assert len(said) == 1, said
    assert re.search(complaint, said[0])


def test_the_doctor_says_what_is_wrong_with_a_device(made, tmp_path, capsys):
    (tmp_path / "ca.pem").write_bytes((made / "ca.pem").read_bytes())
    (tmp_path / "site-b").write_text("no key")
    asked = ["127.0.0.1:1", str(tmp_path), "--client", "site-b"]
    asked += ["--data-dir", str(tmp_path / "none"), "--home", str(tmp_path)]
    assert doctor.main(asked) == 1
    said = capsys.readouterr().out
    assert "WRONG certificate no SuperLink answers at 127.0.0.1 port 1 (" in said
    assert "); start it there, or open the firewall" in said
    assert "site-b: no OpenSSH key" in said
    assert f"WRONG data        {tmp_path / 'none'} is not there" in said


def test_the_doctor_examines_the_superlink_itself(made, tmp_path, capsys):
    asked = [str(made), "--server", "--home", str(tmp_path)]
    assert doctor.main(["127.0.0.1:9092", *asked]) == 0
    assert doctor.main(["elsewhere:9092", *asked]) == 1
    told = "make it anew with simulations.deploy.keys --host elsewhere"
    assert told in capsys.readouterr().out
    assert doctor.main(["nowhere", *asked]) == 2


def test_a_key_that_others_may_read_is_no_secret(made, tmp_path):
    key = tmp_path / "site-a"
    key.write_bytes((made / "site-a").read_bytes())
    key.chmod(0o644)
    with pytest.raises(ConfigError, match=r"others may read .*; chmod 600"):
        doctor.check_key(key)


def uncommented(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


def by_name(lines: Iterable[str]) -> dict[str, Requirement]:
    return {each.name: each for each in map(Requirement, lines)}


SETTINGS = tomllib.loads((PROJECT / "pyproject.toml").read_text())
DEPENDENCIES = by_name(SETTINGS["project"]["dependencies"])


def test_a_device_needs_what_the_project_needs_but_for_ray_and_hydra():
    device = by_name(uncommented((DEPLOY / "device.txt").read_text()))
    beside = {"hydra-core", "jinja2", "psutil", "vl-convert-python"}
    assert DEPENDENCIES.keys() - device.keys() == beside
    assert not device["flwr"].extras
    # What pyproject.toml fixes for uv, and thereby for Flower.
    versions = by_name(SETTINGS["tool"]["uv"]["constraint-dependencies"])
    for name, need in device.items():
        if name in ("flwr", "torch", "torchvision"):
            assert need.specifier == versions[name].specifier
        else:
            assert need.specifier == DEPENDENCIES[name].specifier
    for name, need in versions.items():
        (exact,) = need.specifier
        assert name == "ray" or DEPENDENCIES[name].specifier.contains(exact.version)


def test_the_hashes_are_of_the_locked_versions():
    text = (PROJECT / "hashes.txt").read_text().replace("\\\n", "")
    lines = uncommented(text)
    assert all(" --hash=sha256:" in line for line in lines)
    # What it is for stands in its head, as `make lock` writes it.
    makefile = (PROJECT / "Makefile").read_text()
    (purpose,) = re.findall("^HASHES := (.*)$", makefile, re.MULTILINE)
    assert f"#    {purpose}\n" in text
    hashed = {str(Requirement(line.partition(" --hash")[0])) for line in lines}
    constraints = uncommented((PROJECT / "constraints.txt").read_text())
    locked = {str(Requirement(line)) for line in constraints}
    # A marker may be narrower where fewer extras ask for a package.
    versions = [{each.partition(";")[0] for each in file} for file in (hashed, locked)]
    assert versions[0] <= versions[1]
    for name in map(canonicalize_name, DEPENDENCIES):
        assert any(found.startswith(f"{name}==") for found in hashed), name


def test_a_connection_is_added_to_those_that_are_there(made, tmp_path, monkeypatch):
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    config = tmp_path / "config.toml"
    config.write_text('[superlink.old]\naddress = "x:1"\n')
    assert connect.main(["prod", "[0::1]:09092", str(made / "ca.pem")]) == 0
    links = tomllib.loads(config.read_text())["superlink"]
    assert links["old"] == {"address": "x:1"}
    trusted = str(made / "ca.pem")
    assert links["prod"] == {"address": "[::1]:9092", "root-certificates": trusted}
    config.write_text("[")
    assert connect.main(["prod", "y:2", str(made / "ca.pem")]) == 2


def test_a_device_says_who_it_is_in_flowers_words(made, tmp_path):
    home, word = tmp_path / "home", tmp_path / "own.json"
    told = supernode.node_config("site-a", home, data_dir=tmp_path)
    command = supernode.supernode("h:1", made / "site-a", made / "ca.pem", told, 9101)
    assert tomllib.loads("\n".join(command[-1].split(" "))) == {
        "client-id": "site-a",
        "state-dir": str(home / "state"),
        "data-dir": str(tmp_path),
    }
    word.write_text("{}")
    words = {"secure_sums": True, "least_members": 5, "settings": word}
    strict = supernode.node_config("b", home, data_dir=tmp_path, **words)
    assert [strict["secure-sums"], strict["least-members"]] == [True, 5]
    assert strict["settings"] == str(word)


def test_a_device_adds_to_no_sum_of_its_own(made, capsys):
    asked = ["h:1", str(made), "--client", "site-a", "--least-members", "1"]
    assert supernode.main(asked) == 2
    assert "--least-members=1 is not allowed; use at least 2" in capsys.readouterr().err


def commands() -> Iterator[list[str]]:
    for unit in (DEPLOY / "systemd").glob("cfl-flower-super*.service"):
        text = unit.read_text().replace("%i", "site-a")
        for name, value in re.findall(r"^Environment=(\w+)=(.*)$", text, re.MULTILINE):
            text = text.replace(f"${{{name}}}", value)
        for line in text.splitlines():
            if line.startswith("ExecStart="):
                yield shlex.split(line.partition("=")[2])
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert set(services) == {"superlink", "site-a", "site-b", "site-c"}
    for service in services.values():
        yield shlex.split(service["command"])


def made_by_the_guide() -> set[str]:
    """Return the folders of the checkout that the guide's commands write into."""
    text = GUIDE.read_text()
    blocks = re.findall(r"^```bash\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    words = shlex.split(" ".join(blocks).replace("\\\n", " "))
    pairs = list(pairwise(words))
    writers = ("--home", "--output", "--data-dir", "simulations.deploy.keys")
    found = [word for before, word in pairs if before in writers]
    here = "output_dir=$PWD/"
    found += [word.removeprefix(here) for word in words if word.startswith(here)]
    return {Path(word).parts[0] for word in found}


def test_files_of_the_guide_get_into_no_image():
    """Keys above all: the images are built from the whole checkout."""
    made = made_by_the_guide()
    devices = {"device-a", "device-b", "device-c"}
    assert made == {"keys", "data", "superlink", "runs", "served", *devices}
    patterns = uncommented((PROJECT / ".dockerignore").read_text())
    for name in {*made, "outputs", ".git", ".venv"}:
        assert any(fnmatch(name, pattern) for pattern in patterns), name
    # Nor does it keep out what an image needs.
    for name in ("cfl_flower", "clients", "conf", "simulations", "strategies"):
        assert not any(fnmatch(name, pattern) for pattern in patterns), name


def test_the_key_of_a_device_is_the_one_of_its_name_as_typed(
    made, tmp_path, monkeypatch, capsys
):
    folder = tmp_path / "keys"
    assert keys.main([str(folder), "--device", "007"]) == 0
    (folder / "ca.pem").write_bytes((made / "ca.pem").read_bytes())
    started: list[list[str]] = []
    monkeypatch.setattr(supernode, "become", lambda line, *_: started.append(line))
    home = ["--home", str(tmp_path)]
    assert supernode.main(["h:1", str(folder), "--client", "007", *home]) == 0
    (line,) = started
    assert line[line.index("--auth-supernode-private-key") + 1] == str(folder / "007")
    assert line[-1].startswith("client-id=7 ")
    assert supernode.main(["h:1", str(folder), "--client", "../keys/007", *home]) == 2
    assert doctor.main(["127.0.0.1:1", str(folder), "--client", "007", *home]) == 1
    said = capsys.readouterr().out
    assert "ok    key         007" in said
    assert "ok    identity    client-id 7," in said


@pytest.mark.parametrize("module", [superlink, supernode])
def test_options_after_two_dashes_are_flowers(module, made, tmp_path, monkeypatch):
    started: list[list[str]] = []
    monkeypatch.setattr(module, "become", lambda line, *_: started.append(line))
    device = ["h:1", str(made), "--client", "site-a", "--data-dir", str(tmp_path)]
    own = [str(made)] if module is superlink else device
    flowers = ["--trusted-entities", "/etc/trusted.yaml", "--max-retries", "3"]
    assert module.main([*own, "--home", str(tmp_path), "--", *flowers]) == 0
    (line,) = started
    assert line[-4:] == flowers
    assert module.main([*own, *flowers]) == 2


def test_units_and_containers_start_what_there_is(capsys):
    started = 0
    for command in commands():
        at = command.index("-m")
        module = import_module(command[at + 1])
        # Well understood, and refused for want of keys and data.
        assert module.main(command[at + 2 :]) == 2
        assert "cfl-flower error: " in capsys.readouterr().err
        started += 1
    assert started == 6


def test_a_device_starts_without_what_only_the_superlink_needs():
    missing = ("hydra", "omegaconf", "jinja2", "pandas", "psutil", "ray", "vl_convert")
    needed = ("cfl_flower.client_app", "simulations.deploy.flower_supernode")
    code = f"import sys\nsys.modules.update(dict.fromkeys({missing}))\n"
    for name in (*needed, "simulations.deploy.supernode", "simulations.deploy.doctor"):
        code += f"import {name}\n"
    subprocess.run([sys.executable, "-c", code], cwd=PROJECT, check=True)
