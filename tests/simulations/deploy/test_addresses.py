"""Names and addresses of a SuperLink: right as certificates need them, or one line."""

import re

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from cfl_flower.errors import ConfigError
from simulations.deploy import connect, doctor, keys, superlink, supernode
from simulations.deploy.addresses import read_address, read_host, write_address

LONG = ".".join(["superlink-0123456789", "eu-central-1", "elb", "amazonaws"] * 2)
HOSTS = {
    "superlink.example.org": "superlink.example.org",
    "SuperLink.Example.org.": "superlink.example.org",
    "super_link": "super_link",
    "10.0.0.5": "10.0.0.5",
    "2001:db8::1": "2001:db8::1",
    "[2001:db8::1]": "2001:db8::1",
    "2001:DB8:0::0:1": "2001:db8::1",
    "xn--mnchen-3ya.example.org": "xn--mnchen-3ya.example.org",
    "a" * 63: "a" * 63,
    LONG: LONG,
}
"""What people write, and what certificates have."""

NO_HOSTS = [
    *("", " ", "https://superlink.example.org", "grpc://h:9092", "h.example.org:9092"),
    *("[::1]:9092", "10.0.0.5:80", "10.0.0.5/24", "2001:db8::/32", "[10.0.0.5]"),
    *("10.0.0.256", "10.0.5", "010.0.0.5", "::1::2", "[::1", "fe80::1%eth0"),
    *("0.0.0.0", "::", "a" * 64, "é.org", ".".join(["a" * 60] * 5), "a..b", ".a"),
    *("-a.org", "a-.org", 'a"b', "a'b", "a b", "a\nb", "a\x1b]0;b", "user@host"),
    *("host/path", "host,other", "☃.net", "*", "a.*.org"),
]

PORTS = ["", ":", ":0", ":65536", ":99999", ":-1", ":+9", ":x", ":9 ", ":90.5", ":९०"]


@pytest.mark.parametrize(("text", "host"), HOSTS.items())
def test_a_host_is_what_certificates_have(text, host, tmp_path):
    assert read_host(text) == host
    assert read_host(host) == host
    assert keys.main([str(tmp_path), "--host", text]) == 0
    made, _ = keys.load(tmp_path / "server")
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert keys.alternative_name(host) in names
    (common,) = made.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    assert common.value == (host if len(host) <= 64 else "cfl-flower server")
    if "_" not in host:
        assert host in doctor.verify(made, tmp_path / "ca.pem", host)


@pytest.mark.parametrize("text", NO_HOSTS)
def test_what_is_no_host_is_one_line_before_any_file(
    text, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flwr"))
    folder = str(tmp_path / "keys")
    assert keys.main([folder, f"--host={text}"]) == 2
    complaint = capsys.readouterr().err
    assert re.fullmatch(r"cfl-flower error: --host=.* a name such as .*\n", complaint)
    if re.search(r":\d+$", text):
        return  # with an address's port
    bare = ":" in text and not text.startswith("[")
    address = f"[{text}]:9092" if bare and "://" not in text else f"{text}:9092"
    for command in (
        lambda: connect.main(["prod", address, str(tmp_path / "ca.pem")]),
        lambda: doctor.main([address, folder]),
        lambda: supernode.main([address, folder, "--client", "a"]),
    ):
        assert command() == 2
        assert re.fullmatch(r"cfl-flower error: .*\n", capsys.readouterr().err)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("host", ["superlink.example.org", "10.0.0.5", "[::1]"])
@pytest.mark.parametrize("end", PORTS)
def test_an_address_has_a_port(host, end):
    with pytest.raises(ConfigError, match="port") as error:
        read_address(f"{host}{end}")
    assert "\n" not in str(error.value)


def test_an_ipv6_address_with_a_port_is_in_brackets():
    with pytest.raises(ConfigError, match="IPv6 in brackets"):
        read_address("::1:9092")


def test_a_wildcard_is_for_certificates_alone(tmp_path):
    assert keys.main([str(tmp_path), "--host", "*.example.org"]) == 0
    with pytest.raises(ConfigError):
        read_host("*.example.org")


@pytest.mark.parametrize("command", [superlink, supernode])
def test_a_port_of_ones_own_is_checked(command, capsys):
    asked = {superlink: ["keys"], supernode: ["h:1", "keys", "--client", "a"]}
    for text in ("0", "65536", "-1", "x"):
        assert command.main([*asked[command], f"--port={text}"]) == 2
        assert "--port" in capsys.readouterr().err


@given(st.text(max_size=80))
def test_any_text_is_a_host_or_one_line(text):
    try:
        host = read_host(text)
    except ConfigError as error:
        assert str(error).isprintable()
    else:
        keys.alternative_name(host)
        assert read_address(write_address(host, 9092)) == (host, 9092)
