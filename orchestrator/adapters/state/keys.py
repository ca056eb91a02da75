# SPDX-License-Identifier: Apache-2.0
"""Private keys: one per host for provisioning, one of the site for the agents, both kept encrypted in the database.

The key that they are encrypted with is a file of each controller's alone. Files have mode 0600."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.fernet import Fernet
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from orchestrator.core.errors import Conflict, Fatal, InvalidInput
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

_MAX_KEY = 64 * 1024
_AGENT_KEY: Final = "agent_key"
_SITE: Final = "site"
"""A secret that is none: who can read it has the right key."""


class HostKeyFiles:
    """Implements ports/files.HostKeys: the database keeps the keys, and ssh reads them from files below a directory."""

    def __init__(self, directory: Path, store: Store) -> None:
        """Files that an older version has kept for hosts of the database are taken into it; others are of no use."""
        self._directory = directory
        self._store = store
        kept = {path.parent.name: path for path in directory.glob("*/provisioning_key")}
        with store.begin() as tx:
            known = {host.name for host in tx.hosts.list()}
            for host in kept.keys() & known:
                if tx.secrets.find(_secret_of(host)) is None:
                    tx.secrets.put(_secret_of(host), kept[host].read_text(encoding="utf-8"))
        for host in kept.keys() - known:
            self._forget(host)

    def path(self, host: str) -> Path:
        """A file of mode 0600 with the key.

        :raises Fatal: ``host.key_missing``
        """
        with self._store.read() as tx:
            text = tx.secrets.find(_secret_of(host))
        if text is None:
            raise Fatal(
                "host.key_missing",
                f"the database has no provisioning key of host {ascii(host)[1:64]}",
                hint="start the server that the host was added with once: it has the key",
            )
        path = self._file(host)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(path, text.encode())
        return path

    def put(self, tx: Transaction, host: str, text: str) -> None:
        """:raises InvalidInput: ``host.key_invalid`` when it is no private key"""
        _check_private_key(text)
        tx.secrets.put(_secret_of(host), text if text.endswith("\n") else f"{text}\n")

    def remove(self, tx: Transaction, host: str) -> None:
        tx.secrets.remove(_secret_of(host))
        self._forget(host)

    def _file(self, host: str) -> Path:
        return self._directory / host / "provisioning_key"

    def _forget(self, host: str) -> None:
        path = self._file(host)
        path.unlink(missing_ok=True)
        if path.parent.is_dir():
            path.parent.rmdir()


def _secret_of(host: str) -> str:
    return f"provisioning_key/{host}"


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


def agent_key(path: Path, store: Store) -> str:
    """The site's key for the agents as a file at ``path``, drawn once; returns its public line (``type base64``).

    The key that a server finds here becomes the site's when the database has none; one that differs is kept beside."""
    with store.begin() as tx:
        text = tx.secrets.find(_AGENT_KEY)
        if text is None:
            text = path.read_text(encoding="ascii") if path.exists() else _new_key()
            tx.secrets.put(_AGENT_KEY, text)
    if not path.exists() or path.read_text(encoding="ascii") != text:
        if path.exists():
            path.rename(path.with_name(f"{path.name}.replaced"))
        write_private(path, text.encode())
    key = serialization.load_ssh_private_key(text.encode(), None)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return public.decode()


def _new_key() -> str:
    private = Ed25519PrivateKey.generate()
    return private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    ).decode()


def database_key(path: Path) -> bytes:
    """The ring of keys (core/tenancy/key_ring.py) that stored secrets are encrypted with, drawn at the first call."""
    if not path.exists():
        write_private(path, Fernet.generate_key())
    return path.read_bytes().strip()


def settle_site_key(store: Store, path: Path, *, drawn: bool) -> None:
    """All controllers of a database have one key; the first one's counts. ``drawn``: the one at ``path`` is new.

    :raises Conflict: ``serve.other_key``: this server has another one
    """
    try:
        with store.begin() as tx:
            for known in (_SITE, *tx.secrets.ids()[:1]):  # the first of an older version's, which has written no mark
                tx.secrets.find(known)
            tx.secrets.put(_SITE, store.site)
    except Fatal as error:
        if error.code != "secret.unreadable":
            raise
        if drawn:
            path.unlink()
        raise Conflict(
            "serve.other_key",
            "the database's secrets are encrypted with a key that this server does not have",
            hint="'vgpuctl server invite' on a running one makes a token, with which 'vgpuctl server join' fetches it",
        ) from error


def write_private(path: Path, content: bytes) -> None:
    """Whole or not at all, never readable by others."""
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
