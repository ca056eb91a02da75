# SPDX-License-Identifier: Apache-2.0
"""Addresses that libvirt's filters have learned: the only ones that it knows of cards on bridges of the host, where
another machine answers for DHCP and the host itself may have no address.

libvirt keeps them for its own next start and has no call that tells them. A line each, of which later ones count more:
until when (seconds since the epoch; 0: given back), ``UUID-MAC`` of the card, its address and the server's
(src/nwfilter/nwfilter_dhcpsnoop.c).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

LEARNED = Path("/run/libvirt/network/nwfilter.leases")
_UUID = 36
_MAX_DIGITS = 20


def learned_of(file: Path, vm: str) -> frozenset[tuple[str, str]]:
    """(MAC, address) of each card of the VM that has one now; none where libvirt has learned nothing."""
    try:
        text = file.read_text(encoding="ascii", errors="replace")
    except OSError:
        return frozenset()
    found: dict[tuple[str, str], int] = {}
    for until, uuid, mac, address in _lines(text):
        if uuid == vm:
            found[mac, address] = until
    now = time.time()
    return frozenset(card for card, until in found.items() if until >= now)


def _lines(text: str) -> Iterator[tuple[int, str, str, str]]:
    """Those that are whole: the last one may be just being written."""
    for line in text.splitlines():
        words = line.split()
        if len(words) == 4 and words[0].isdecimal() and len(words[0]) <= _MAX_DIGITS and _is_address(words[2]):
            key = words[1].lower()
            yield int(words[0]), key[:_UUID], key[_UUID + 1 :], words[2]


def _is_address(text: str) -> bool:
    try:
        return str(IPv4Address(text)) == text
    except ValueError:
        return False
