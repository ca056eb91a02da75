# SPDX-License-Identifier: Apache-2.0
"""Private keys, each a file of mode 0600: one per host for provisioning, one of the controller for the agents."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from orchestrator.core.errors import InvalidInput

_MAX_KEY = 64 * 1024


class HostKeyFiles:
    """Implements ports/files.HostKeys below ``<state>/secrets/hosts``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def path(self, host: str) -> Path:
        return self._directory / host / "provisioning_key"

    def put(self, host: str, text: str) -> None:
        """:raises InvalidInput: ``host.key_invalid`` when it is no private key"""
        _check_private_key(text)
        path = self.path(host)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_private(path, text.encode() if text.endswith("\n") else f"{text}\n".encode())

    def remove(self, host: str) -> None:
        path = self.path(host)
        path.unlink(missing_ok=True)
        if path.parent.is_dir():
            path.parent.rmdir()


def _check_private_key(text: str) -> None:
    content = text.encode(errors="replace")
    load = (
        serialization.load_ssh_private_key
        if b"BEGIN OPENSSH PRIVATE KEY" in content
        else serialization.load_pem_private_key
    )
    try:
        load(content[:_MAX_KEY], None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InvalidInput(
            "host.key_invalid",
            "the provisioning key is not a private key that can be used without a passphrase",
            hint="make one for this purpose: ssh-keygen -t ed25519 -N '' -f FILE",
        ) from error


def agent_key(path: Path) -> str:
    """The controller's key for the agents, drawn at the first call; returns its public line (``type base64``)."""
    if not path.exists():
        private = Ed25519PrivateKey.generate()
        write_private(
            path,
            private.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
            ),
        )
    key = serialization.load_ssh_private_key(path.read_bytes(), None)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return public.decode()


def database_key(path: Path) -> bytes:
    """The key that stored secrets are encrypted with, drawn at the first call."""
    if not path.exists():
        write_private(path, Fernet.generate_key())
    return path.read_bytes().strip()


def write_private(path: Path, content: bytes) -> None:
    """Whole or not at all, never readable by others."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
