# SPDX-License-Identifier: Apache-2.0
"""Passphrases of encrypted volumes: each closed with its tenant's key, which is a secret of the site like any other.

Rows of ``secrets``: ``volume-key:ID``, and ``tenant-key:TENANT`` that the site drew or ``own-tenant-key:TENANT`` that
its tenant brought. A row that is gone is a key that was destroyed.
"""

from __future__ import annotations

import base64
import os
from typing import Final

from cryptography.fernet import Fernet
from sqlalchemy import delete, select, update

from orchestrator.core.errors import Conflict
from orchestrator.core.hosts.volume_key import TenantKey, VolumeKey, key_id
from orchestrator.core.vms.volume import Volume
from orchestrator.store.secrets import SecretBox, Secrets
from orchestrator.store.statements import Statements
from orchestrator.store.tables import secrets, volumes

_PASSPHRASE_BYTES: Final = 32


def volume_row(volume_id: str) -> str:
    """Of its passphrase among the secrets."""
    return f"volume-key:{volume_id}"


def tenant_row(tenant: str) -> str:
    """Of its key among the secrets, if the site drew it."""
    return f"tenant-key:{tenant}"


def own_row(tenant: str) -> str:
    """Of its key among the secrets, if it brought it."""
    return f"own-tenant-key:{tenant}"


class VolumeKeys:
    def __init__(self, db: Statements, kept: Secrets) -> None:
        self._db = db
        self._kept = kept

    def draw(self, volume: Volume) -> None:
        """A passphrase for one that is new, and a key for its tenant that has none."""
        text = self._of_tenant(volume.tenant) or self._new_tenant_key(volume.tenant, None)
        self._put(text, volume.id, base64.b64encode(os.urandom(_PASSPHRASE_BYTES)).decode())

    def get(self, volume: Volume) -> VolumeKey:
        """:raises Conflict: ``volume.keyless``: it was destroyed"""
        key, closed = self._of_tenant(volume.tenant), self._kept.find(volume_row(volume.id))
        if key is None or closed is None:
            raise keyless(volume)
        return VolumeKey(volume=volume.id, passphrase=_opened(key, volume.id, closed))

    def of_tenant(self, tenant: str) -> TenantKey | None:
        """None: it needed none yet, or it was destroyed."""
        own = self._kept.find(own_row(tenant))
        text = own or self._kept.find(tenant_row(tenant))
        if text is None:
            return None
        key = key_id(base64.urlsafe_b64decode(text))
        return TenantKey(id=key, origin="site" if own is None else "tenant", volumes=len(self._of(tenant)))

    def rotate(self, tenant: str, own: bytes | None) -> None:
        """Passphrases stay, closed with a new key of their tenant: its ``own``; None: one that is drawn, where there
        was one."""
        before = self._of_tenant(tenant)
        if before is None and own is None:
            return
        after = self._new_tenant_key(tenant, own)
        for volume in self._of(tenant):
            closed = self._kept.find(volume_row(volume))
            if before is not None and closed is not None:
                self._put(after, volume, _opened(before, volume, closed))

    def revoke(self, tenant: str) -> int:
        """Passphrases and the key that closes them are destroyed; of how many volumes."""
        of = self._of(tenant)
        self._kept.remove(tenant_row(tenant), own_row(tenant), *map(volume_row, of))
        its = (volumes.c.tenant == tenant, volumes.c.encryption == "luks")
        self._db.execute(update(volumes).where(*its).values(encryption="keyless"))
        return len(of)

    def _of(self, tenant: str) -> tuple[str, ...]:
        """Ids of its encrypted volumes that have a key."""
        its = (volumes.c.tenant == tenant, volumes.c.encryption == "luks")
        return tuple(self._db.execute(select(volumes.c.id).where(*its).order_by(volumes.c.id)).scalars())

    def _of_tenant(self, tenant: str) -> str | None:
        return self._kept.find(own_row(tenant)) or self._kept.find(tenant_row(tenant))

    def _new_tenant_key(self, tenant: str, own: bytes | None) -> str:
        """In the place of the one before."""
        text = (Fernet.generate_key() if own is None else base64.urlsafe_b64encode(own)).decode()
        self._kept.remove(tenant_row(tenant), own_row(tenant))
        self._kept.put(tenant_row(tenant) if own is None else own_row(tenant), text)
        return text

    def _put(self, tenant_key: str, volume: str, passphrase: str) -> None:
        closed = SecretBox(tenant_key.encode()).close(volume, passphrase)
        self._kept.put(volume_row(volume), base64.b64encode(closed).decode())


def _opened(tenant_key: str, volume: str, closed: str) -> str:
    return SecretBox(tenant_key.encode()).open(volume, base64.b64decode(closed))


def destroy(db: Statements, *rows: str) -> None:
    """For whoever removes what they are of, in the same transaction. Gone already is fine."""
    db.execute(delete(secrets).where(secrets.c.id.in_(rows)))


def keyless(volume: Volume) -> Conflict:
    """``volume.keyless``"""
    hint = f"'vgpuctl volume delete {volume.name} --tenant {volume.tenant}' removes its file, once no VM has it"
    return Conflict(
        "volume.keyless", f"the key of volume {volume.name} was destroyed: nobody reads it again", hint=hint
    )
