# SPDX-License-Identifier: Apache-2.0
"""The serial console of a domain as a byte stream."""

from __future__ import annotations

from typing import Any

import libvirt

from orchestrator.agent.libvirt.connection import Libvirt, translated


class Console:
    """Bytes to and from the guest's first serial port. ``receive`` returns b"" at the end."""

    def __init__(self, host: Libvirt, vm: str) -> None:
        """:raises Fatal: ``console.refused``"""
        self._connection: Any = host.open()
        try:
            domain = self._connection.lookupByUUIDString(vm)
            self._stream: Any = self._connection.newStream(0)
            domain.openConsole(None, self._stream, libvirt.VIR_DOMAIN_CONSOLE_FORCE)
        except libvirt.libvirtError as error:
            self._connection.close()
            raise translated(
                error, "console.refused", "the VM's console cannot be opened", "is the VM running?"
            ) from error

    def send(self, data: bytes) -> None:
        while data:
            sent = self._stream.send(data)
            data = data[sent:]

    def receive(self, size: int) -> bytes:
        try:
            received: bytes = self._stream.recv(size)
        except libvirt.libvirtError:
            return b""  # the domain stopped or somebody else took the console
        return received

    def close(self) -> None:
        try:
            self._stream.abort()
        except libvirt.libvirtError:
            return  # it has ended already
        finally:
            self._connection.close()
