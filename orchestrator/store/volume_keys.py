# SPDX-License-Identifier: Apache-2.0
"""Passphrases of encrypted volumes, and of VMs' own disks by the id of their VM: each closed with its tenant's key,
which is a secret of the site like any other.

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
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import Volume
from orchestrator.store.secrets import SecretBox, Secrets
from orchestrator.store.statements import Statements
from orchestrator.store.tables import secrets, vms, volumes

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

    def draw(self, tenant: str, its_id: str) -> None:
        """A passphrase for a volume, or a VM's disk, that is new, and a key for its tenant that has none."""
        text = self._of_tenant(tenant) or self._new_tenant_key(tenant, None)
        self._put(text, its_id, base64.b64encode(os.urandom(_PASSPHRASE_BYTES)).decode())

    def get(self, volume: Volume) -> VolumeKey:
        """:raises Conflict: ``volume.keyless``: it was destroyed"""
        key = self._find(volume.tenant, volume.id)
        if key is None:
            raise keyless(volume)
        return key

    def of_disk(self, vm: Vm) -> VolumeKey:
        """Of a VM's own disk. :raises Conflict: ``vm.keyless``: it was destroyed"""
        key = self._find(vm.spec.tenant, vm.id)
        if key is None:
            hint = f"'vgpuctl delete-vm {vm.spec.name} --tenant {vm.spec.tenant}' removes it"
            words = f"the key of the disk of VM {vm.spec.name} was destroyed: nobody reads it again"
            raise Conflict("vm.keyless", words, hint=hint)
        return key

    def _find(self, tenant: str, its_id: str) -> VolumeKey | None:
        key, closed = self._of_tenant(tenant), self._kept.find(volume_row(its_id))
        if key is None or closed is None:
            return None
        return VolumeKey(volume=its_id, passphrase=_opened(key, its_id, closed))

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
        """Passphrases and the key that closes them are destroyed; of how many volumes and disks."""
        of = self._of(tenant)
        self._kept.remove(tenant_row(tenant), own_row(tenant), *map(volume_row, of))
        its = (volumes.c.tenant == tenant, volumes.c.encryption == "luks")
        self._db.execute(update(volumes).where(*its).values(encryption="keyless"))
        return len(of)

    def _of(self, tenant: str) -> tuple[str, ...]:
        """Ids of its encrypted volumes, and of its VMs with an encrypted disk, that have a key."""
        its = select(volumes.c.id).where(volumes.c.tenant == tenant, volumes.c.encryption == "luks")
        disks = select(vms.c.id).where(vms.c.tenant == tenant, secrets.c.id == volume_row("") + vms.c.id)
        return tuple(self._db.execute(its.union(disks).order_by("id")).scalars())

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
