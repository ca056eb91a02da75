# SPDX-License-Identifier: Apache-2.0
"""How controller and agent talk: length-prefixed JSON frames on one byte stream (SSH or a unix socket).

A frame is four bytes of big-endian length and that many bytes of UTF-8 JSON. A stream that ends inside a frame
is an error, never a result (reliability: a half answer is not an answer). What a frame holds is bounded, whoever
sends it: its size by its kind, its depth, its integers, and no text that a database or an encoder would choke on.

The controller's first frame is ``Hello``; the agent answers with its own ``Hello`` or an error frame and closes.
Then, on a ``channel`` stream: ``{"id": n, "method": "observe"|"perform"|…, "params": {…}}`` is answered by
``{"id": n, "result": …}`` or ``{"id": n, "error": error_to_dict(…)}``; the agent may send
``{"event": {…}}`` at any time after a ``watch``, and ``{"readings": {…}}`` (core/readings/frame.py) when its params had
``"readings": true``: agents that do not know that send none, and controllers that do not ask get none.
A ``console``, ``display`` (RFB), ``tcp`` or ``image`` stream carries raw bytes after the two hellos.

Also the words for what did not come back after a boot, which both sides have to know, and fencing epochs: counted up,
and moved to the seconds since 2020 by a restore.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from orchestrator.core.errors import Unknown

PROTOCOL_VERSION = 11
SUPPORTED_VERSIONS = (8, 9, 10, 11)
"""Agents and controllers speak N, and N-1 to N-3. Host actions say since which version they have the form they have
(``HostAction.since``); what an agent is too old for is not sent to it.

2: a domain is adopted with a list of devices. 3: GPU instances, MIG modes, whole GPUs. 4: domains and networks
are described field by field, and no XML is taken any more. 5: networks of tenants, whose VMs reach each other there.
6: how a GPU divides its time among its vGPUs is set for VMs. 7: networks on bridges that hosts have; vGPUs of
several sizes on one GPU; fabric partitions; data volumes, several network cards. 8: GPUs are
known by their cards, and nothing is made where another one is. 9: MIG-backed vGPUs as mediated devices.
10: one action makes a vGPU, in either framework and wherever it shall lie. 11: disks and volumes
in pools; volumes and network cards are plugged into VMs that run, and volumes grow; VMs are suspended and resumed;
snapshots of disks, and backups; a host is rebooted."""

HELLO_BYTES: Final = 64 * 1024
REQUEST_BYTES: Final = 16 * 1024 * 1024
"""The largest is a seed: 8 MiB, in base64."""
OBSERVED_BYTES: Final = 4 * 1024 * 1024
"""Several times what a host with 16 GPUs, 512 virtual functions and 1,000 domains tells."""
ANSWER_BYTES: Final = 256 * 1024

_DEPTH: Final = 32
_INT64: Final = 2**63
_NUL: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
"""As JSON writes it, and not where an escaped backslash comes before ``u0000``."""
_NO_TEXT: Final = re.compile("[\\0\ud800-\udfff]")
"""A NUL, or half of a pair that stands for one character: no database and no encoder takes them."""
_LENGTH = struct.Struct(">I")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _no_number(text: str) -> float:
    raise ValueError(text)


_DECODER: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_no_number)


class ByteSource(Protocol):
    """Anything with a file-like ``read(n)`` that returns b"" at its end."""

    def read(self, size: int, /) -> bytes: ...


def encode_frame(message: dict[str, object]) -> bytes:
    """One frame, ready to be written whole. Text that no frame may hold (a file name that is not UTF-8, a NUL) comes
    with question marks in its place: it must cost nobody the rest of the message."""
    text = json.dumps(message, separators=(",", ":"), ensure_ascii=False)
    if "\\u0000" in text:  # seldom, and a seed is half a megabyte of text to search
        text = _NUL.sub(r"\1?", text)
    body = text.encode(errors="replace")
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


def read_frame(source: ByteSource, most: int = REQUEST_BYTES) -> dict[str, object] | None:
    """The next message; None when the stream ended cleanly between two frames. ``most`` bytes may it have.

    :raises Unknown: ``agent.channel_cut`` when it ended inside a frame, ``agent.protocol`` for anything malformed.
    """
    head = _read_exactly(source, _LENGTH.size)
    if not head:
        return None
    if len(head) < _LENGTH.size:
        raise Unknown("agent.channel_cut", "the connection to the agent was cut inside an answer")
    (size,) = _LENGTH.unpack(head)
    if size > most:
        raise _malformed("the agent's stream carries something else than frames", f"{head!r}: more than {most} bytes")
    body = _read_exactly(source, size)
    if len(body) < size:
        raise Unknown("agent.channel_cut", "the connection to the agent was cut inside an answer")
    try:
        # Strictly UTF-8: the library would guess, and let surrogates pass.
        message = _DECODER.decode(body.decode())
    except (ValueError, RecursionError) as error:
        raise _malformed("the agent sent a frame that is not JSON", str(error)[:200]) from error
    if not isinstance(message, dict):
        raise _malformed("the agent sent a frame that is not an object")
    _check(message)
    return message


def _check(message: dict[str, object]) -> None:
    """Without recursion: how deep it goes is what is asked. A thousand hosts send such messages again and again, so
    text and numbers are gathered and looked at once."""
    texts: list[str] = []
    numbers: list[int] = []
    level: list[object] = [message]
    for _ in range(_DEPTH):
        below: list[object] = []
        for value in level:
            if isinstance(value, str):
                texts.append(value)
            elif isinstance(value, int):
                numbers.append(value)
            elif isinstance(value, dict):
                texts.extend(value)
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
        if not below:
            break
        level = below
    else:
        raise _malformed(f"the agent sent a frame nested more than {_DEPTH} deep")
    if _NO_TEXT.search("".join(texts)):
        raise _malformed("the agent sent text that is none")
    if numbers and not -_INT64 <= min(numbers) <= max(numbers) < _INT64:
        raise _malformed("the agent sent a number that nothing can have")


def _malformed(message: str, details: str | None = None) -> Unknown:
    return Unknown("agent.protocol", message, details=details)


_AGAIN = " again after the reboot: "


def layout_not_back(why: str) -> str:
    """A line about the GPU instances that stand without VMs."""
    return f"a MIG layout is not there{_AGAIN}{why}"


def vm_not_back(vm: str, why: str) -> str:
    """A line about a VM, by its id."""
    return f"VM {vm} is not running{_AGAIN}{why}"


def why_not_back(vm: str, problems: Iterable[str]) -> str | None:
    """What the agent said of this VM; None: nothing. ``problems``: of the host's observation."""
    begin = vm_not_back(vm, "")
    return next((line.removeprefix(begin) for line in problems if line.startswith(begin)), None)


def not_on_bus(gpus: Sequence[str]) -> str:
    """GPUs that are gone. ``gpus``: PCI addresses, at least one."""
    return f"GPU {', '.join(gpus)} is not on the host's bus"


_BEGIN_S: Final = 1_577_836_800.0
"""2020-01-01: seconds since then are higher than any epoch that was counted, and fit the column until 2088."""
_AHEAD_S: Final = 24 * 3600
"""How much a server's clock may be ahead of a host's."""
_COUNTED: Final = 64
"""How many times a server may have raised it while a host heard nothing."""


def restored_epoch(epoch: int, now: float) -> int:
    """Of a host after a restore; ``epoch``: what the backup has."""
    return max(epoch + 1, int(now - _BEGIN_S))


def highest_epoch(seen: int, now: float) -> int:
    """That a server can have reached when a host has ``seen`` that one: more is a lie, which would lock everybody else
    out for ever."""
    return max(seen + _COUNTED, int(now - _BEGIN_S) + _AHEAD_S)
