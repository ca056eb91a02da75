# SPDX-License-Identifier: Apache-2.0
"""What the libvirt of another host may ask of this host's while a VM comes from there: to take that VM, as what its
agent would start itself, and nothing else. With a connection to libvirt it could otherwise do all that root can.

The messages are those of libvirt's src/remote/remote_protocol.x, in XDR (RFC 4506); their heads those of
src/rpc/virnetprotocol.x.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Final

import libvirt

from orchestrator.agent.libvirt.migration import FLAGS
from orchestrator.core.errors import Denied

_HEAD: Final = struct.Struct(">IIIIiIi")
"""Length of all, program, its version, procedure, type, serial, status."""
_MAX_MESSAGE: Final = 9 * 1024 * 1024
"""A definition and a cookie, each of what libvirt sends at most."""
_REMOTE: Final = 0x20008086
_KEEPALIVE: Final = 0x6B656570
_CALL: Final = 0
_OPEN: Final = 1
_PREPARE: Final = 303
_FINISH: Final = 306
_PLAIN: Final = frozenset({2, 60, 66, 360, 361})
"""Close, supports feature, list ways of authentication, tell and do not tell when it closes."""
_DRIVER: Final = frozenset({b"qemu:///system", b"qemu:/system"})
"""As libvirt's client writes what is left of the agent's own address of the other libvirt, with either libxml2. Another
driver's address has programs run (``qemu+ext``)."""
_XML: Final = libvirt.VIR_MIGRATE_PARAM_DEST_XML
_WHERE: Final = frozenset({libvirt.VIR_MIGRATE_PARAM_URI, libvirt.VIR_MIGRATE_PARAM_DISKS_URI, _XML})
"""Without them QEMU would listen at ports."""
_TEXT: Final = libvirt.VIR_TYPED_PARAM_STRING
_SIZES: Final = {
    libvirt.VIR_TYPED_PARAM_INT: 4,
    libvirt.VIR_TYPED_PARAM_UINT: 4,
    libvirt.VIR_TYPED_PARAM_BOOLEAN: 4,
    libvirt.VIR_TYPED_PARAM_LLONG: 8,
    libvirt.VIR_TYPED_PARAM_ULLONG: 8,
    libvirt.VIR_TYPED_PARAM_DOUBLE: 8,
}


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = _HEAD.size

    def number(self) -> int:
        return int.from_bytes(self.take(4), "big")

    def take(self, size: int) -> bytes:
        part = self._data[self._at : self._at + size]
        if len(part) < size:
            raise _denied("a message that ends early")
        self._at += size
        return part

    def opaque(self) -> bytes:
        """With what fills it up to four bytes."""
        size = self.number()
        return self.take(-(-size // 4) * 4)[:size]

    def rest(self) -> bytes:
        return self._data[self._at :]


class MigrationCalls:
    """Reads what comes from the other libvirt, and lets pass what belongs to the move."""

    def __init__(self, texts: Mapping[str, str], check: Callable[[str], None]) -> None:
        """``texts``: what parameters of text may say, by name. ``check``: refuses a definition (XML)."""
        self._texts = texts
        self._check_xml = check
        self._waiting = bytearray()

    def passed(self, data: bytes) -> bytes:
        """The whole messages that may go on.

        :raises Denied: ``move.call_denied``; :raises VgpuctlError: of ``check``"""
        self._waiting += data
        whole = bytearray()
        while len(self._waiting) >= _HEAD.size:
            size = int.from_bytes(self._waiting[:4], "big")
            if not _HEAD.size <= size <= _MAX_MESSAGE:
                raise _denied(f"a message of {size} bytes")
            if len(self._waiting) < size:
                break
            message = bytes(self._waiting[:size])
            del self._waiting[:size]
            self._check(message)
            whole += message
        return bytes(whole)

    def _check(self, message: bytes) -> None:
        _, program, _, procedure, kind, _, _ = _HEAD.unpack_from(message)
        if program == _KEEPALIVE:
            return
        if program != _REMOTE or kind != _CALL or procedure not in {*_PLAIN, _OPEN, _PREPARE, _FINISH}:
            raise _denied(f"procedure {procedure} of program {program:#x}")
        if procedure == _OPEN:
            _check_open(_Reader(message))
        elif procedure in {_PREPARE, _FINISH}:
            given = self._check_move(_Reader(message))
            if procedure == _PREPARE and not given >= _WHERE:
                raise _denied(f"no {', '.join(sorted(_WHERE - given))}")

    def _check_move(self, reader: _Reader) -> set[str]:
        """Parameters, a cookie, flags; whether it was cancelled follows at the end of the second. Names of what is
        given."""
        given = set[str]()
        for _ in range(reader.number()):
            name = reader.opaque().decode(errors="replace")
            kind = reader.number()
            given.add(name)
            if kind == _TEXT:
                self._check_text(name, reader.opaque().decode(errors="replace"))
            elif kind in _SIZES and name == libvirt.VIR_MIGRATE_PARAM_BANDWIDTH:
                reader.take(_SIZES[kind])
            else:
                raise _denied(f"{ascii(name)[:40]} of type {kind}")
        reader.opaque()
        flags = reader.number()
        if flags & ~FLAGS or not flags & libvirt.VIR_MIGRATE_PAUSED:
            raise _denied(f"to take the VM in another way: {flags:#x}")
        return given

    def _check_text(self, name: str, text: str) -> None:
        if name == _XML:
            self._check_xml(text)
        elif self._texts.get(name) != text:
            raise _denied(f"{ascii(name)[:40]} {ascii(text)[:100]}")


def _check_open(reader: _Reader) -> None:
    """Text that may be none, and flags."""
    name = reader.opaque() if reader.number() == 1 else b""
    if name not in _DRIVER:
        raise _denied(f"another driver: {ascii(name)[:100]}")
    if reader.rest() != bytes(4):
        raise _denied("to open with flags")


def _denied(what: str) -> Denied:
    return Denied(
        "move.call_denied", "the other host's libvirt asked for what is no part of the VM's move",
        hint="look at that host: is it still only vgpuctl's?", details=what,
    )  # fmt: skip
