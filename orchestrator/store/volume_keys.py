# SPDX-License-Identifier: Apache-2.0
"""Passphrases of encrypted volumes: each closed with its tenant's key, which is a secret of the site like any other.

Rows of ``secrets``: ``tenant-key:TENANT`` and ``volume-key:ID``. A row that is gone is a key that was destroyed.
"""

from __future__ import annotations

import base64
import os
from typing import Final

from cryptography.fernet import Fernet
from sqlalchemy import delete, select, update

from orchestrator.core.errors import Conflict
from orchestrator.core.hosts.volume_key import VolumeKey
from orchestrator.core.vms.volume import Volume
from orchestrator.store.secrets import SecretBox, Secrets
from orchestrator.store.statements import Statements
from orchestrator.store.tables import secrets, volumes

_PASSPHRASE_BYTES: Final = 32


def volume_row(volume_id: str) -> str:
    """Of its passphrase among the secrets."""
    return f"volume-key:{volume_id}"


def tenant_row(tenant: str) -> str:
    """Of its key among the secrets."""
    return f"tenant-key:{tenant}"


class VolumeKeys:
    def __init__(self, db: Statements, kept: Secrets) -> None:
        self._db = db
        self._kept = kept

    def draw(self, volume: Volume) -> None:
        """A passphrase for one that is new, and a key for its tenant that has none."""
        text = self._kept.find(tenant_row(volume.tenant)) or self._new_tenant_key(volume.tenant)
        self._put(text, volume.id, base64.b64encode(os.urandom(_PASSPHRASE_BYTES)).decode())

    def get(self, volume: Volume) -> VolumeKey:
        """:raises Conflict: ``volume.keyless``: it was destroyed"""
        key, closed = self._kept.find(tenant_row(volume.tenant)), self._kept.find(volume_row(volume.id))
        if key is None or closed is None:
            raise keyless(volume)
        return VolumeKey(volume=volume.id, passphrase=_opened(key, volume.id, closed))

    def rotate(self, tenant: str) -> int:
        """Passphrases stay, closed with a new key of their tenant; how many there are."""
        before, of = self._kept.find(tenant_row(tenant)), self._of(tenant)
        if before is None:
            return 0
        after = self._new_tenant_key(tenant)
        for volume in of:
            closed = self._kept.find(volume_row(volume))
            if closed is not None:
                self._put(after, volume, _opened(before, volume, closed))
        return len(of)

    def revoke(self, tenant: str) -> int:
        """Passphrases and the key that closes them are destroyed; of how many volumes."""
        of = self._of(tenant)
        self._kept.remove(tenant_row(tenant), *map(volume_row, of))
        its = (volumes.c.tenant == tenant, volumes.c.encryption == "luks")
        self._db.execute(update(volumes).where(*its).values(encryption="keyless"))
        return len(of)

    def _of(self, tenant: str) -> tuple[str, ...]:
        """Ids of its encrypted volumes that have a key."""
        its = (volumes.c.tenant == tenant, volumes.c.encryption == "luks")
        return tuple(self._db.execute(select(volumes.c.id).where(*its).order_by(volumes.c.id)).scalars())

    def _new_tenant_key(self, tenant: str) -> str:
        text = Fernet.generate_key().decode()
        self._kept.put(tenant_row(tenant), text)
        return text

    def _put(self, tenant_key: str, volume: str, passphrase: str) -> None:
        closed = SecretBox(tenant_key.encode()).close(volume, passphrase)
        self._kept.put(volume_row(volume), base64.b64encode(closed).decode())


def _opened(tenant_key: str, volume: str, closed: str) -> str:
    return SecretBox(tenant_key.encode()).open(volume, base64.b64decode(closed))


def destroy(db: Statements, row: str) -> None:
    """For whoever removes what it is of, in the same transaction. Gone already is fine."""
    db.execute(delete(secrets).where(secrets.c.id == row))


def keyless(volume: Volume) -> Conflict:
    """``volume.keyless``"""
    hint = f"'vgpuctl volume delete {volume.name} --tenant {volume.tenant}' removes its file, once no VM has it"
    return Conflict(
        "volume.keyless", f"the key of volume {volume.name} was destroyed: nobody reads it again", hint=hint
    )
