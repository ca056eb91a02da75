# SPDX-License-Identifier: Apache-2.0
"""A certificate for this machine's loopback address that signs itself."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.fakes.ports import own_port


def new_certificate(directory: Path) -> tuple[Path, Path]:
    """PEM files: the certificate, its key."""
    certificate, key = directory / "server.pem", directory / "server.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


@dataclass(frozen=True)
class OverTls:
    """Where a server listens on loopback, and with what."""

    certificate: Path
    key: Path
    listen: str

    @property
    def url(self) -> str:
        return f"https://{self.listen}"

    @property
    def words(self) -> tuple[str, ...]:
        """Of its command line."""
        return ("--listen", self.listen, "--tls-cert", str(self.certificate), "--tls-key", str(self.key))


def over_tls(directory: Path) -> OverTls:
    """A new certificate, which lies in ``directory``, and a port that stays free for its server."""
    return OverTls(*new_certificate(directory), f"127.0.0.1:{own_port()}")
