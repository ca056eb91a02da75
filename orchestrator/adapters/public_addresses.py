# SPDX-License-Identifier: Apache-2.0
"""Which addresses may be asked because somebody else has named them: public ones, and networks that the site allows."""

from __future__ import annotations

import socket
from collections.abc import Collection
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

_LAST_32_BITS: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("::/96"))
"""NAT64, and IPv4-compatible addresses: an IPv4 address is their end."""


def addresses_of(host: str, port: int) -> list[Address]:
    """What the name resolves to.

    :raises OSError: nothing is known of it; :raises ValueError, OverflowError: it is no name, or no port
    """
    resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [ip_address(str(answer[4][0])) for answer in resolved]


def may_ask(address: Address, allowed: Collection[Network]) -> bool:
    """Whether every way in which it can be read is public or allowed."""
    return all(_is_public(way) or any(way in network for network in allowed) for way in _ways_to_read(address))


def _is_public(address: Address) -> bool:
    site_local = isinstance(address, IPv6Address) and address.is_site_local
    return address.is_global and not address.is_multicast and not site_local


def _ways_to_read(address: Address) -> tuple[Address, ...]:
    """Itself and the IPv4 addresses that a translator or a tunnel may make of it; mapped ones are nothing but these."""
    if isinstance(address, IPv4Address):
        return (address,)
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    last = IPv4Address(int(address) & 0xFFFFFFFF)
    translated = (last,) if any(address in network for network in _LAST_32_BITS) else ()
    return (address, *translated, *filter(None, (address.sixtofour, *(address.teredo or ()))))
