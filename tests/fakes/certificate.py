# SPDX-License-Identifier: Apache-2.0
"""A certificate for this machine's loopback address that signs itself."""

from __future__ import annotations

import subprocess
from pathlib import Path


def new_certificate(directory: Path) -> tuple[Path, Path]:
    """PEM files: the certificate, its key."""
    certificate, key = directory / "server.pem", directory / "server.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key
