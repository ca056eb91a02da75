# SPDX-License-Identifier: Apache-2.0
"""Keys of encrypted volumes, lent to libvirt for as long as QEMU is given them: secrets that no file holds and that
nobody reads back (libvirt's ``ephemeral`` and ``private``). QEMU has what it needs by then, until it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from xml.etree import ElementTree as ET

import libvirt

from orchestrator.agent.libvirt.connection import Libvirt
from orchestrator.core.errors import InvalidInput
from orchestrator.core.hosts.volume_key import VolumeKey
from orchestrator.core.names import is_uuid


@contextmanager
def lent(to: Libvirt, keys: Sequence[VolumeKey]) -> Iterator[None]:
    """What libvirt has of the same volumes from an agent that died is replaced.

    :raises InvalidInput: ``agent.request_invalid``; :raises Fatal: ``volume.key_refused``"""
    for key in keys:
        if not is_uuid(key.volume):
            raise InvalidInput("agent.request_invalid", "a volume's id is a UUID", details=key.volume[:60])
    try:
        for key in keys:
            _call(to, partial(_put, key))
        yield
    finally:
        for key in keys:
            _call(to, partial(_forget, key.volume))


def _call(to: Libvirt, function: Callable[[Any], None]) -> None:
    to.call(
        function,
        code="volume.key_refused",
        message="libvirt did not take the key of an encrypted volume",
        hint="is its secret driver there? package libvirt-daemon-driver-secret, or libvirt-daemon",
    )


def _put(key: VolumeKey, connection: Any) -> None:
    secret = ET.Element("secret", ephemeral="yes", private="yes")
    ET.SubElement(secret, "uuid").text = key.volume
    connection.secretDefineXML(ET.tostring(secret, encoding="unicode")).setValue(key.passphrase.encode())


def _forget(volume: str, connection: Any) -> None:
    """Gone already is fine: a daemon that nobody talked to for two minutes has ended, with all that was in it."""
    try:
        connection.secretLookupByUUIDString(volume).undefine()
    except libvirt.libvirtError as error:
        if error.get_error_code() != libvirt.VIR_ERR_NO_SECRET:
            raise
