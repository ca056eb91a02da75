# SPDX-License-Identifier: Apache-2.0
"""A VM's disk on its way through the controller: one agent's records go to another as they come. What is read of a
snapshot ends here."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import Final

from orchestrator.adapters.agent_link.conversation import Conversation
from orchestrator.core.actions.volume_copy import DISK, END, MAX_RECORD, RECORD, SIZE
from orchestrator.core.errors import Retryable

_CHUNK: Final = 256 * 1024
_TELL_S: Final = 5.0


def carry(
    giver: Conversation,
    taker: Conversation,
    *,
    most_per_s: int | None,
    stall_s: float,
    progress: Callable[[int], None],
) -> int:
    """How many bytes went: to the last record, or until either stream ended. Whoever takes knows which it was, and what
    it answers is the next thing to be read. ``stall_s``: longest time without a byte."""
    taker.limit_sending(stall_s)
    begun = reported = time.monotonic()
    sent = 0
    with suppress(OSError):  # one of them is gone
        for chunk in _to_the_end(giver, stall_s):
            taker.send(chunk)
            sent += len(chunk)
            now = time.monotonic()
            if now - reported >= _TELL_S:
                reported = now
                progress(sent)
            if most_per_s:
                time.sleep(max(0.0, sent / most_per_s - (now - begun)))
    taker.end_sending()
    return sent


def _to_the_end(giver: Conversation, stall_s: float) -> Iterator[bytes]:
    """Heads are read for their lengths alone. :raises OSError: the stream ended early"""
    while True:
        head = bytearray()
        while len(head) < RECORD.size:
            head += _some(giver, RECORD.size - len(head), stall_s)
        yield bytes(head)
        kind, _, left = RECORD.unpack(head)
        while left:
            chunk = _some(giver, min(_CHUNK, left), stall_s)
            left -= len(chunk)
            yield chunk
        if kind == END:
            return


def content_of(giver: Conversation, stall_s: float) -> Generator[bytes]:
    """The file itself, its holes as zeros. Each record brings it on, so that there is an end.

    :raises Retryable: ``volume.cut``"""
    digest, at, size = hashlib.sha256(), 0, 0
    kind = b""
    while kind != END:
        head = _exactly(giver, RECORD.size, stall_s)
        kind, begin, length = RECORD.unpack(head)
        if length > MAX_RECORD:
            raise _cut("a record is too long")
        content = _exactly(giver, length, stall_s)
        if kind == END and content != digest.digest():
            raise _cut("its digest is another one")
        digest.update(head + content)
        if kind == SIZE and not size:
            size = begin
        elif kind == DISK and at <= begin < begin + length <= size:
            yield from _zeros(begin - at)
            yield content
            at = begin + length
        elif kind != END:
            raise _cut("its records are in no order")
    yield from _zeros(size - at)


def _zeros(count: int) -> Iterator[bytes]:
    for left in range(count, 0, -_CHUNK):
        yield bytes(min(_CHUNK, left))


def _exactly(giver: Conversation, size: int, stall_s: float) -> bytes:
    """:raises Retryable: ``volume.cut``"""
    content = bytearray()
    try:
        while len(content) < size:
            content += _some(giver, size - len(content), stall_s)
    except OSError as error:
        raise _cut(f"{len(content)} of {size} bytes came") from error
    return bytes(content)


def _cut(why: str) -> Retryable:
    return Retryable("volume.cut", "the disk was cut on its way", hint="it is copied again", details=why)


def _some(giver: Conversation, size: int, stall_s: float) -> bytes:
    chunk = giver.receive_bytes(size, stall_s)
    if not chunk:
        raise BrokenPipeError
    return chunk
