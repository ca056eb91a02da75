# SPDX-License-Identifier: Apache-2.0
"""Key pairs of the lab: the root login, and each host's ssh identity, both made on this machine."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from lab.commands import run


def key_pair(private: Path, comment: str) -> str:
    """The public line of an ed25519 pair at ``private`` (0600); made when it is not there."""
    public = private.with_name(f"{private.name}.pub")
    if not private.exists():
        private.parent.mkdir(parents=True, exist_ok=True)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", private])
    return public.read_text().strip()


def sha256_fingerprint(public: str) -> str:
    """As ``ssh-keygen -l`` prints it: ``SHA256:`` and unpadded base64."""
    digest = hashlib.sha256(base64.b64decode(public.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


def known_host_line(address: str, port: int, public: str) -> str:
    kind, key = public.split()[:2]
    return f"[{address}]:{port} {kind} {key}"
