# SPDX-License-Identifier: Apache-2.0
"""How controller and agent talk: length-prefixed JSON frames on one byte stream (SSH or a unix socket).

A frame is four bytes of big-endian length and that many bytes of UTF-8 JSON. A stream that ends inside a frame
is an error, never a result (reliability: a half answer is not an answer).

The controller's first frame is ``Hello``; the agent answers with its own ``Hello`` or an error frame and closes.
Then, on a ``channel`` stream: ``{"id": n, "method": "observe"|"perform"|…, "params": {…}}`` is answered by
``{"id": n, "result": …}`` or ``{"id": n, "error": error_to_dict(…)}``; the agent may send
``{"event": {…}}`` at any time.
A ``console``, ``tcp`` or ``image`` stream carries raw bytes after the two hellos.
"""

from __future__ import annotations

import json
import struct
from typing import Protocol

from orchestrator.core.errors import Unknown

PROTOCOL_VERSION = 1
SUPPORTED_VERSIONS = (1,)
"""Agents and controllers speak N and N-1."""

MAX_FRAME_BYTES = 64 * 1024 * 1024
_LENGTH = struct.Struct(">I")


class ByteSource(Protocol):
    """Anything with a file-like ``read(n)`` that returns b"" at its end."""

    def read(self, size: int, /) -> bytes: ...


def encode_frame(message: dict[str, object]) -> bytes:
    """One frame, ready to be written whole."""
    body = json.dumps(message, separators=(",", ":"), ensure_ascii=False).encode()
    return _LENGTH.pack(len(body)) + body


def _read_exactly(source: ByteSource, size: int) -> bytes:
    chunks: list[bytes] = []
    missing = size
    while missing:
        chunk = source.read(missing)
        if not chunk:
            break
        chunks.append(chunk)
        missing -= len(chunk)
    return b"".join(chunks)


def read_frame(source: ByteSource) -> dict[str, object] | None:
    """The next message; None when the stream ended cleanly between two frames.

    :raises Unknown: ``agent.channel_cut`` when it ended inside a frame, ``agent.protocol`` for anything malformed.
    """
    head = _read_exactly(source, _LENGTH.size)
    if not head:
        return None
    if len(head) < _LENGTH.size:
        raise Unknown("agent.channel_cut", "the connection to the agent was cut inside an answer")
    (size,) = _LENGTH.unpack(head)
    if size > MAX_FRAME_BYTES:
        raise Unknown("agent.protocol", "the agent's stream carries something else than frames", details=repr(head))
    body = _read_exactly(source, size)
    if len(body) < size:
        raise Unknown("agent.channel_cut", "the connection to the agent was cut inside an answer")
    try:
        message = json.loads(body)
    except ValueError as error:
        raise Unknown("agent.protocol", "the agent sent a frame that is not JSON", details=str(error)) from error
    if not isinstance(message, dict):
        raise Unknown("agent.protocol", "the agent sent a frame that is not an object")
    return message
