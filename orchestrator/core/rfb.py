# SPDX-License-Identifier: Apache-2.0
"""What a viewer of a screen says (RFC 6143 §7.5 and QEMU's extension), so that one who only watches says no keys."""

from __future__ import annotations

from typing import Final

from orchestrator.core.errors import InvalidInput

_GREETING: Final = (
    (12, frozenset({b"RFB 003.007\n", b"RFB 003.008\n"})),
    (1, frozenset({b"\1"})),
    (1, frozenset({b"\0", b"\1"})),
)
"""The version, the way to log in (none is needed) and whether others may watch, in turn: bytes, and what is taken. An
older version has no second part, and so all that follows would be read as something else than the screen reads."""
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
        self._unread = bytearray()
        self._greeted = 0
        self.typed = 0
        """How many keys and movements came, passed on or not."""

    def passed(self, data: bytes, *, writes: bool) -> bytes:
        """What of it goes to the guest's screen; a message that has begun is kept until it is whole.

        :raises InvalidInput: ``console.no_rfb``: it is none that viewers say"""
        self._unread += data
        passed, at = bytearray(), 0
        while (length := self._length(at)) is not None and len(self._unread) >= at + length:
            message, at = bytes(self._unread[at : at + length]), at + length
            if self._greeted < len(_GREETING):
                if message not in _GREETING[self._greeted][1]:
                    raise _no_rfb("another version, or a login")
                self._greeted += 1
                passed += message
                continue
            self.typed += message[0] in _TYPED
            if writes or message[0] not in _ACTS:
                passed += message
        del self._unread[:at]
        return bytes(passed)

    def _length(self, at: int) -> int | None:
        """Of the message that begins there; None: not known yet. :raises InvalidInput: ``console.no_rfb``"""
        if self._greeted < len(_GREETING):
            return _GREETING[self._greeted][0]
        if len(self._unread) == at:
            return None
        kind = self._unread[at]
        length = _FIXED.get(kind) or self._counted_length(kind, at)
        if length is not None and length > MAX_MESSAGE:
            raise _no_rfb(f"a message of {length} bytes")
        return length

    def _counted_length(self, kind: int, at: int) -> int | None:
        if kind in _COUNTED:
            place, size, base, each = _COUNTED[kind]
            count = self._number(at + place, size)
            return None if count is None else base + each * count
        if kind == _CUT_TEXT:
            length = self._number(at + 4, 4)
            return None if length is None else 8 + min(length, (1 << 32) - length)  # below 0: RFB's newer way
        if kind != _QEMU or self._number(at + 1, 1) not in {None, 0}:
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
