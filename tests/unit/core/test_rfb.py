# SPDX-License-Identifier: Apache-2.0
"""Whoever only watches a screen says no keys, however its messages are cut."""

from __future__ import annotations

import struct
import time

import pytest

from orchestrator.core.errors import InvalidInput
from orchestrator.core.rfb import MAX_MESSAGE, ViewerMessages

GREETING = b"RFB 003.008\n\x01\x01"
ASKS = (
    bytes(20), struct.pack(">BxHii", 2, 2, 0, -258), struct.pack(">BBHHHH", 3, 1, 0, 0, 64, 48),
    struct.pack(">BBHHHH", 150, 1, 0, 0, 64, 48), struct.pack(">B3xIB3s", 248, 1, 3, b"abc"),
)  # fmt: skip
"""Pixel format, encodings, a picture, pictures unasked, a fence."""
ACTS = (
    struct.pack(">BBxxI", 4, 1, 97), struct.pack(">BBHH", 5, 1, 3, 4), struct.pack(">B3xI3s", 6, 3, b"abc"),
    struct.pack(">B3xi5s", 6, -5, b"\0\0\0\0\0"), struct.pack(">BxBB", 250, 1, 2),
    struct.pack(">BxHHBx16s", 251, 800, 600, 1, bytes(16)), struct.pack(">BBHII", 255, 0, 1, 97, 30),
)  # fmt: skip
"""Key, pointer, clipboard in both forms, power, size, a key with its place."""


def said(viewer: ViewerMessages, data: bytes, *, writes: bool, piece: int) -> bytes:
    return b"".join(viewer.passed(data[at : at + piece], writes=writes) for at in range(0, len(data), piece))


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_who_writes_says_everything_and_who_watches_nothing_that_reaches_the_guest(piece: int) -> None:
    mixed = b"".join(act + ask for act, ask in zip(ACTS, ASKS * 2, strict=False))
    asked = b"".join(ask for _, ask in zip(ACTS, ASKS * 2, strict=False))
    writer, watcher = ViewerMessages(), ViewerMessages()
    assert said(writer, GREETING + mixed, writes=True, piece=piece) == GREETING + mixed
    assert said(watcher, GREETING + mixed, writes=False, piece=piece) == GREETING + asked
    assert writer.typed == watcher.typed == 3


def test_the_keyboard_may_be_lost_and_got_between_two_messages() -> None:
    viewer = ViewerMessages()
    viewer.passed(GREETING, writes=True)
    key = ACTS[0]
    assert viewer.passed(key[:3], writes=True) == b""
    assert viewer.passed(key[3:] + key[:5], writes=False) == b""
    assert viewer.passed(key[5:] + key, writes=True) == key + key


@pytest.mark.parametrize(
    "message",
    [b"\x07", b"\xff\x01", b"\xff\x09", b"GET / HTTP/1.1\r\n", struct.pack(">B3xI", 6, MAX_MESSAGE)],
)
def test_what_is_no_message_of_a_viewer_is_refused_before_it_is_kept(message: bytes) -> None:
    viewer = ViewerMessages()
    viewer.passed(GREETING, writes=True)
    with pytest.raises(InvalidInput) as refused:
        viewer.passed(message, writes=True)
    assert refused.value.code == "console.no_rfb"


@pytest.mark.parametrize(
    "greeting", [b"RFB 003.003\n\x01", b"RFB 003.005\n\x01", b"RFB 004.001\n\x01", b"RFB 003.008\n\x02"]
)
def test_a_greeting_after_which_the_screen_reads_otherwise_than_we_do_is_refused(greeting: bytes) -> None:
    """After version 3.3 no way to log in follows: a watcher's key would be part of a list of encodings here."""
    key_among_encodings = struct.pack(">BBHBBxxI", 2, 2, 0, 4, 1, ord("a")) + bytes(8)
    viewer = ViewerMessages()
    with pytest.raises(InvalidInput) as refused:
        viewer.passed(greeting + key_among_encodings, writes=False)
    assert refused.value.code == "console.no_rfb"


def test_many_short_messages_at_once_take_no_longer_than_one_by_one() -> None:
    messages = ACTS[4] * (MAX_MESSAGE // len(ACTS[4]))
    viewer, began = ViewerMessages(), time.process_time()
    assert viewer.passed(GREETING + messages, writes=True) == GREETING + messages
    assert time.process_time() - began < 3, "each copies all that follow it"
