# SPDX-License-Identifier: Apache-2.0
"""The serial console of a domain as a byte stream, and what it wrote before: libvirt's log daemon keeps a file and
older ones beside it."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import libvirt

from orchestrator.agent.libvirt.connection import Libvirt, translated
from orchestrator.agent.paths import Paths
from orchestrator.core.domain_xml.console import console_log
from orchestrator.core.names import is_uuid


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


_OLDER: Final = tuple(f".{number}" for number in range(10))
"""How the daemon names older files, newest first. A host may be told to keep more than its usual three."""


@dataclass(frozen=True)
class ConsoleLogs:
    paths: Paths

    def tail(self, vm: str, most: int) -> bytes:
        """At most so many bytes, the last ones; b"" when nothing is kept."""
        kept = b""
        for path in self._files(vm):
            if len(kept) < most:
                kept = _tail(path, most - len(kept)) + kept
        return kept

    def remove(self, vm: str) -> None:
        """Gone already is fine."""
        for path in self._files(vm):
            path.unlink(missing_ok=True)

    def _files(self, vm: str) -> tuple[Path, ...]:
        """Newest first; none for what is no VM's id and could be a path."""
        if not is_uuid(vm):
            return ()
        newest = self.paths.root / console_log(vm).removeprefix("/")
        return (newest, *(newest.with_name(newest.name + suffix) for suffix in _OLDER))


def _tail(path: Path, most: int) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            return b""
        file.seek(max(0, about.st_size - most))
        return file.read(most)
