# SPDX-License-Identifier: Apache-2.0
"""Keys of encrypted disks and data volumes, as they travel to a host: with the action that needs them, in no text of
it.

The file of an encrypted volume says so by its name, ``NAME.ID.luks.raw``, and that of a VM's own disk, which is qcow2,
by ``VM.luks.qcow2``: it is LUKS as QEMU writes it, and libvirt is told the volume's id, or the VM's, as that of the
secret which opens it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from orchestrator.core.errors import Conflict, InvalidInput

MARK: Final = ".luks"
"""Behind the id of a volume or of a disk's VM, where hosts name it."""
READS: Final = ".ro"
"""At the end of the name of a file that is read and never written: ``NAME.ID.VOLUME.ro.raw``, in a pool
``NAME.ID.VOLUME.POOL.ro.raw``, a second name of the file of the volume with the last id."""
HEADER_BYTES: Final = 2_068_480
"""What QEMU puts before the content, for AES-256 in XTS: eight slots of 4,000 stripes of a key of 64 bytes."""
NO_KEY: Final = "the key of an encrypted volume was not sent with it"
"""How a host says that what it does by itself cannot open one (:func:`check_keys`)."""


@dataclass(frozen=True, kw_only=True)
class VolumeKey:
    """What opens one volume, or a VM's own disk."""

    volume: str
    """Its id, or that of the VM."""
    passphrase: str = field(repr=False)


KeyOrigin = Literal["site", "tenant"]
"""Who made a tenant's key: the site drew it, or its tenant brought it."""
TENANT_KEY_BYTES: Final = 32


@dataclass(frozen=True, kw_only=True)
class TenantKey:
    """What closes the passphrases of a tenant's encrypted volumes, as people may see it."""

    id: str
    """The first 16 hexadecimal digits of its bytes' SHA-256: whoever has the key can tell that it is this one."""
    origin: KeyOrigin
    volumes: int
    """How many passphrases it closes."""


def key_bytes(text: str) -> bytes:
    """Of a key that a tenant brings, in base64 as ``openssl rand -base64 32`` writes it.

    :raises InvalidInput: ``tenant.key_invalid``"""
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):  # ValueError: it is not ASCII
        key = b""
    if len(key) != TENANT_KEY_BYTES:
        hint = f"'openssl rand -base64 {TENANT_KEY_BYTES} >FILE' writes one"
        raise InvalidInput("tenant.key_invalid", f"a key is {TENANT_KEY_BYTES} bytes, in base64", hint=hint)
    return key


def key_id(key: bytes) -> str:
    """See :attr:`TenantKey.id`."""
    return hashlib.sha256(key).hexdigest()[:16]


def is_encrypted(name: str) -> bool:
    """Whether a file, or what a specification calls a volume, is that of an encrypted one."""
    return _stem(name).endswith(MARK)


def _stem(file: str) -> str:
    return file.removesuffix(".raw").removesuffix(".qcow2")


def length_of(file: str, size_bytes: int) -> int:
    """Bytes of the file of a volume of which a guest sees ``size_bytes``."""
    return size_bytes + (HEADER_BYTES if is_encrypted(file) else 0)


def ids_of(files: Iterable[str]) -> tuple[str, ...]:
    """Ids of the encrypted ones among files of VMs."""
    return tuple(_stem(file).removesuffix(MARK).rpartition(".")[2] for file in files if is_encrypted(file))


def check_keys(files: Iterable[str], keys: Collection[VolumeKey]) -> None:
    """:raises Conflict: ``volume.no_key``: one of the files is encrypted and none of the keys is its"""
    sent = {key.volume for key in keys if key.passphrase}
    missing = [volume for volume in ids_of(files) if volume not in sent]
    if missing:
        hint = "'vgpuctl start-vm NAME' sends it; a host has no key that it could start the VM with by itself"
        raise Conflict("volume.no_key", NO_KEY, hint=hint, details=", ".join(missing))


def passphrase_of(file: str, keys: Collection[VolumeKey]) -> str | None:
    """None: it is not encrypted. :raises Conflict: ``volume.no_key``"""
    check_keys((file,), keys)
    return next((key.passphrase for key in keys if key.volume in ids_of((file,))), None)
