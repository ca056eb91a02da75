# SPDX-License-Identifier: Apache-2.0
"""Certificates that ``server make-cert`` makes, judged by handshakes; authorities are those that openssl makes."""

from __future__ import annotations

import json
import re
import ssl
import subprocess
from pathlib import Path

import pytest

from tests.fakes.typed import Cli


def _openssl(*words: str | Path) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``root`` and ``between``, which it has signed, with their keys; ``leaf`` is no authority."""
    place = tmp_path_factory.mktemp("site")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "30")
    uses = ("-addext", "keyUsage=critical,keyCertSign,cRLSign", "-addext", "basicConstraints=critical,CA:TRUE")
    signed = ("-CA", place / "root.pem", "-CAkey", place / "root.key")
    for name, more in (
        ("root", uses),
        ("between", (*uses, *signed)),
        ("leaf", ("-addext", "basicConstraints=CA:FALSE")),
    ):
        files = ("-keyout", place / f"{name}.key", "-out", place / f"{name}.pem")
        _openssl("req", "-x509", *key, "-subj", f"/CN={name}", *more, *files)
    _openssl("pkey", "-in", place / "root.key", "-aes256", "-passout", "pass:x", "-out", place / "locked.key")
    return place


def _make(cli: Cli, place: Path, *words: str) -> dict[str, str]:
    done = cli("server", "make-cert", "pool.example.org", "192.0.2.7", "--directory", str(place), *words, "-o", "json")
    assert done.code == 0, done.err
    told: dict[str, str] = json.loads(done.out)
    return told


def _handshake(told: dict[str, str], trusted: str, name: str) -> None:
    """In memory. :raises ssl.SSLError: the client does not believe the server"""
    serving, asking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=trusted)
    serving.load_cert_chain(told["certificate"], told["key"])
    asking.verify_flags |= ssl.VERIFY_X509_STRICT
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = asking.wrap_bio(back, there, server_hostname=name)
    server = serving.wrap_bio(there, back, server_side=True)
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue


@pytest.mark.parametrize("authority", [None, "root", "between"])
def test_clients_that_trust_what_is_told_believe_the_server_by_its_names(
    cli: Cli, site: Path, tmp_path: Path, authority: str | None
) -> None:
    signed = (
        () if authority is None else ("--ca-cert", f"{site / authority}.pem", "--ca-key", f"{site / authority}.key")
    )
    told = _make(cli, tmp_path, *signed)
    trusted = told["certificate"] if authority is None else str(site / "root.pem")
    for name in ("pool.example.org", "192.0.2.7"):
        _handshake(told, trusted, name)
    for name in ("other.example.org", "192.0.2.8"):
        with pytest.raises(ssl.SSLCertVerificationError):
            _handshake(told, trusted, name)
    assert Path(told["key"]).stat().st_mode & 0o777 == 0o600
    assert (told["trusted"] == told["certificate"]) == (authority is None)


def test_it_is_told_how_server_and_clients_take_it(cli: Cli, tmp_path: Path) -> None:
    said = cli("server", "make-cert", "*.example.org", "fd00::7", "--directory", str(tmp_path), "--days", "1").out
    assert f"tls_key: {tmp_path / 'server.key'}" in said
    assert "context add pool --url https://[fd00::7]:8443 --ca-file server.pem" in said


def test_it_ends_with_its_authority_at_the_latest(cli: Cli, site: Path, tmp_path: Path) -> None:
    root = ("--ca-cert", str(site / "root.pem"), "--ca-key", str(site / "root.key"))
    said = subprocess.run(
        ["openssl", "x509", "-noout", "-enddate", "-dateopt", "iso_8601", "-in", site / "root.pem"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    assert _make(cli, tmp_path, *root)["ends_at"][:10] == said.partition("=")[2][:10]


def test_a_directory_that_is_missing_is_made_by_what_the_hint_says(cli: Cli, tmp_path: Path) -> None:
    words = ("server", "make-cert", "pool.example.org", "--directory", str(tmp_path / "not yet" / "made"))
    refused = cli(*words)
    hint = re.search(r"'(mkdir -p .+)' makes its directory", refused.err)
    assert hint is not None
    subprocess.run(hint[1], shell=True, check=True)
    assert cli(*words).code == 0


@pytest.mark.parametrize("there", ["server.key", "server.pem"])
def test_files_that_are_there_stay_and_none_is_added(cli: Cli, tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("mine")
    refused = cli("server", "make-cert", "pool.example.org", "--directory", str(tmp_path))
    assert (refused.code, "[certificate.unwritable]" in refused.err) == (2, True)
    assert {one.name: one.read_text() for one in tmp_path.iterdir() if one.is_file()} == {there: "mine"}


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("https://pool.example.org",), "certificate.name_invalid"),
        (("pool.example.org:8443",), "certificate.name_invalid"),
        (("10.0.0.300",), "certificate.name_invalid"),
        (("a" * 64,), "certificate.name_invalid"),
        (("a.*.org",), "certificate.name_invalid"),
        (("",), "certificate.name_invalid"),
        (("bücher.example",), "certificate.name_invalid"),
        (tuple(f"n{number}" for number in range(51)), "cli.usage"),
        (("x", "--ca-cert", "root.pem"), "cli.usage"),
        (("x", "--ca-cert", "root.pem", "--ca-key", "between.key"), "certificate.ca_unusable"),
        (("x", "--ca-cert", "root.pem", "--ca-key", "locked.key"), "certificate.ca_unusable"),
        (("x", "--ca-cert", "root.pem", "--ca-key", "root.pem"), "certificate.ca_unusable"),
        (("x", "--ca-cert", "leaf.pem", "--ca-key", "leaf.key"), "certificate.ca_unusable"),
        (("x", "--ca-cert", "gone.pem", "--ca-key", "root.key"), "certificate.ca_unusable"),
    ],
)  # fmt: skip
def test_what_cannot_be_certified_is_one_line_and_leaves_nothing(
    cli: Cli, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: str
) -> None:
    monkeypatch.chdir(site)
    refused = cli("server", "make-cert", *words, "--directory", str(tmp_path))
    assert (refused.code, refused.out) == (2, "")
    assert f"[{code}]" in refused.err
    assert "hint: " in refused.err
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith("server")] == []
