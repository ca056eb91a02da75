# SPDX-License-Identifier: Apache-2.0
"""What the server's TLS listener takes and shows."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cryptography import x509

from integrations.isvctl.site import Results, Site, need
from integrations.isvctl.steps import Output

MAX_LIFETIME_DAYS: Final = 60
ROTATED_WITHIN_S: Final = 60.0
LIMIT_S: Final = 10.0
HANDSHAKE: Final = 0x16
OLD: Final = {"sslv3_disabled": 0x0300, "tlsv1_0_disabled": 0x0301, "tlsv1_1_disabled": 0x0302}
TLS_1_2: Final = 0x0303
_CIPHERS: Final = "c02bc02cc02fc030c009c00ac013c014002f0035000a"
_EXTENSIONS: Final = "000a0006000400170018000b00020100000d000c000a04030503040105010201"
"""Elliptic curves, point formats, signature algorithms."""


def _place(site: Site) -> tuple[str, int]:
    place = urlsplit(site.url)
    return place.hostname or "", place.port or 443


def client_hello(version: int) -> bytes:
    """The first record of a client that speaks no other version."""
    ciphers, extensions = bytes.fromhex(_CIPHERS), bytes.fromhex(_EXTENSIONS)
    hello = version.to_bytes(2) + os.urandom(32) + b"\x00" + len(ciphers).to_bytes(2) + ciphers + b"\x01\x00"
    hello += len(extensions).to_bytes(2) + extensions
    message = b"\x01" + len(hello).to_bytes(3) + hello
    return bytes([HANDSHAKE]) + min(version, 0x0301).to_bytes(2) + len(message).to_bytes(2) + message


def _answer(site: Site, sent: bytes) -> bytes:
    """What comes first; nothing when the connection is ended."""
    with socket.create_connection(_place(site), timeout=LIMIT_S) as connection:
        connection.sendall(sent)
        try:
            return connection.recv(16)
        except (TimeoutError, ConnectionError):
            return b""


def _speaks(site: Site, version: int) -> bool:
    """It answers with a hello of that version."""
    answer = _answer(site, client_hello(version))
    return answer[:1] == bytes([HANDSHAKE]) and answer[9:11] == version.to_bytes(2)


def insecure_protocols_test(site: Site) -> Output:
    results = Results()
    need(_speaks(site, TLS_1_2), "it does not answer TLS 1.2 either: what is asked here says nothing")
    for name, version in OLD.items():
        with results.probe(name):
            need(not _speaks(site, version), "it was accepted")
    with results.probe("plain_http_disabled") as evidence:
        answer = _answer(site, b"GET /v1/server HTTP/1.1\r\nHost: here\r\n\r\n")
        evidence["answer"] = answer.hex()
        need(not answer.startswith(b"HTTP/"), "plain HTTP was answered")
    return results.told(endpoints_tested=1)


def _trust(site: Site) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(site.ca_file))


def _connected(site: Site) -> ssl.SSLSocket:
    plain = socket.create_connection(_place(site), timeout=LIMIT_S)
    return _trust(site).wrap_socket(plain, server_hostname=_place(site)[0])


def mutual_tls_test(site: Site) -> Output:
    """A client without a certificate has to be refused before it says anything."""
    results = Results()
    with results.probe("north_south_mtls_enforced"), _connected(site) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n")
        need(not connection.recv(16), "a client without a certificate is answered: callers show tokens over TLS")
    over_ssh = "hosts are reached over SSH with pinned host keys and a forced command, without TLS"
    results.fail(("east_west_mtls_enforced",), over_ssh)
    return results.told(endpoints_tested=1)


def _served(site: Site) -> x509.Certificate:
    with _connected(site) as connection:
        return x509.load_der_x509_certificate(connection.getpeercert(binary_form=True) or b"")


def cert_rotation_test(site: Site) -> Output:
    """A new certificate is laid in place of the old one, and served while an open connection goes on."""
    files = site.files("ISV_TLS_CERT", "ISV_TLS_KEY")
    if files is None:
        return {"success": False, "skipped": True, "skip_reason": "ISV_TLS_CERT and ISV_TLS_KEY are not set"}
    results = Results()
    before = _served(site)
    with results.probe("cert_inventory_non_empty", serial=f"{before.serial_number:x}"):
        need(site.admin.connection.call("GET", "/v1/server")["certificate_ends_at"], "its end is not told")
    days = (before.not_valid_after_utc - before.not_valid_before_utc).days
    with results.probe("no_certs_out_of_policy", lifetime_days=days):
        need(days <= MAX_LIFETIME_DAYS, f"it is good for {days} days")
    with results.probe("rotation_evidence_present") as evidence:
        _replace(site, *files)
        site.until(
            lambda: _served(site).serial_number != before.serial_number, "the new certificate is not served",
            ROTATED_WITHIN_S,
        )  # fmt: skip
        evidence["serial"] = f"{_served(site).serial_number:x}"
        site.admin.whoami()
    return results.told(
        certs_inspected=1, rotation_window_days=MAX_LIFETIME_DAYS, out_of_policy=int(days > MAX_LIFETIME_DAYS)
    )  # fmt: skip


def _replace(site: Site, certificate: Path, key: Path) -> None:
    """With new ones for the same address, which clients trust beside the old ones from now on."""
    new = {certificate: site.work / "new.pem", key: site.work / "new.key"}
    address = _place(site)[0]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-days", "30", "-subj", "/CN=localhost", "-addext", f"subjectAltName=IP:{address}", "-keyout", str(new[key]),
         "-out", str(new[certificate])],
        check=True, capture_output=True,
    )  # fmt: skip
    with site.ca_file.open("ab") as trusted:
        trusted.write(new[certificate].read_bytes())
    for old, made in new.items():
        made.replace(old)
