# SPDX-License-Identifier: Apache-2.0
"""What a viewer of a screen says (RFC 6143 §7.5 and QEMU's extension), so that one who only watches says no keys."""

from __future__ import annotations

from typing import Final

from orchestrator.core.errors import InvalidInput

_GREETING: Final = (12, 1, 1)
"""Bytes of the version, of the way to log in (none is needed) and of whether others may watch, in turn."""
_KEY, _POINTER, _CUT_TEXT, _POWER, _SET_SIZE, _QEMU = 4, 5, 6, 250, 251, 255
_FIXED: Final = {0: 20, 3: 10, _KEY: 8, _POINTER: 6, 150: 10, _POWER: 4}
"""Bytes of each kind of message."""
_COUNTED: Final = {2: (2, 2, 4, 4), 248: (8, 1, 9, 1), _SET_SIZE: (6, 1, 8, 16)}
"""Of those that hold a number: where, in how many bytes; bytes without what it counts, and of each."""
_QEMU_KEY: Final = 12
"""Bytes of a key as QEMU takes it. Sound is not let through: no page plays it."""
_ACTS: Final = frozenset({_KEY, _POINTER, _CUT_TEXT, _POWER, _SET_SIZE, _QEMU})
"""What reaches the guest."""
_TYPED: Final = frozenset({_KEY, _POINTER, _QEMU})
MAX_MESSAGE: Final = 1 << 20
"""Bytes; the longest is a clipboard."""


class ViewerMessages:
    """Of one viewer, in any pieces."""

    def __init__(self) -> None:
        self._unread = b""
        self._greeted = 0
        self.typed = 0
        """How many keys and movements came, passed on or not."""

    def passed(self, data: bytes, *, writes: bool) -> bytes:
        """What of it goes to the guest's screen; a message that has begun is kept until it is whole.

        :raises InvalidInput: ``console.no_rfb``: it is none that viewers say"""
        self._unread += data
        passed = bytearray()
        while (length := self._length()) is not None and len(self._unread) >= length:
            message, self._unread = self._unread[:length], self._unread[length:]
            if self._greeted < len(_GREETING):
                self._greeted += 1
                passed += message
                continue
            self.typed += message[0] in _TYPED
            if writes or message[0] not in _ACTS:
                passed += message
        return bytes(passed)

    def _length(self) -> int | None:
        """Of the message that has begun; None: not known yet. :raises InvalidInput: ``console.no_rfb``"""
        if self._greeted < len(_GREETING):
            return _GREETING[self._greeted]
        if not self._unread:
            return None
        kind = self._unread[0]
        length = _FIXED.get(kind) or self._counted_length(kind)
        if length is not None and length > MAX_MESSAGE:
            raise _no_rfb(f"a message of {length} bytes")
        return length

    def _counted_length(self, kind: int) -> int | None:
        if kind in _COUNTED:
            at, size, base, each = _COUNTED[kind]
            count = self._number(at, size)
            return None if count is None else base + each * count
        if kind == _CUT_TEXT:
            length = self._number(4, 4)
            return None if length is None else 8 + min(length, (1 << 32) - length)  # below 0: RFB's newer way
        if kind != _QEMU or self._number(1, 1) not in {None, 0}:
            raise _no_rfb(f"message {kind}")
        return _QEMU_KEY

    def _number(self, at: int, size: int) -> int | None:
        return int.from_bytes(self._unread[at : at + size], "big") if len(self._unread) >= at + size else None


def _no_rfb(details: str) -> InvalidInput:
    return InvalidInput(
        "console.no_rfb",
        "that is nothing that a viewer of a screen says",
        hint="'vgpuctl vnc NAME' takes any viewer",
        details=details,
    )
