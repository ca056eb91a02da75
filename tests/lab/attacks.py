# SPDX-License-Identifier: Apache-2.0
"""Ethernet frames as a guest could write them, honest and not. Each carries its own name."""

from __future__ import annotations

import ipaddress
import struct
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).with_name("frames.c")
"""Of the program that puts frames on the wire and says which ones come."""
COMPILED = (
    "gcc -Os -static -nostdlib -ffreestanding -fno-stack-protector -fno-asynchronous-unwind-tables "
    "-fcf-protection=none -Wl,--build-id=none,-z,noseparate-code -s -o {program} {program}.c"
)
"""On a lab host: 1.4 KB, which a seed has room for."""
EVERYBODY = "ff:ff:ff:ff:ff:ff"
_NOBODY = "52:54:00:00:00:99"
_IPV4, _ARP, _VLAN, _IPV6 = 0x0800, 0x0806, 0x8100, 0x86DD
_UDP, _ICMPV6 = 17, 58


@dataclass(frozen=True)
class Card:
    """A guest's."""

    mac: str
    address: str


def honest(name: str, sender: Card, receiver: Card) -> bytes:
    """UDP as a guest may send it."""
    return _frame(sender.mac, receiver.mac, _IPV4, _udp(name, sender.address, receiver.address, 4000, 4000))


def attacks(sender: Card, receiver: Card, gateway: str) -> dict[str, bytes]:
    """What is stopped, by name. ``gateway``: of their network."""
    me, it = sender, receiver
    near = str(ipaddress.IPv4Address(me.address) + 100)

    def ipv4(name: str, mac: str, address: str, ports: tuple[int, int] = (4000, 4000), to: str = it.address) -> bytes:
        return _frame(mac, EVERYBODY if to == "255.255.255.255" else it.mac, _IPV4, _udp(name, address, to, *ports))

    udp = _udp("vlan-tag", me.address, it.address, 4000, 4000)
    return {
        "spoofed-mac": ipv4("spoofed-mac", _NOBODY, me.address),
        "receivers-mac": ipv4("receivers-mac", it.mac, me.address),
        "spoofed-address": ipv4("spoofed-address", me.mac, near),
        "gateways-address": ipv4("gateways-address", me.mac, gateway),
        "arp-for-gateway": _frame(me.mac, it.mac, _ARP, _arp("arp-for-gateway", me.mac, gateway, it)),
        "arp-of-other-mac": _frame(me.mac, it.mac, _ARP, _arp("arp-of-other-mac", _NOBODY, me.address, it)),
        "dhcp-server": ipv4("dhcp-server", me.mac, me.address, (67, 68)),
        "dhcp-server-to-all": ipv4("dhcp-server-to-all", me.mac, me.address, (67, 68), "255.255.255.255"),
        "dhcp-server-from-nowhere": ipv4("dhcp-server-from-nowhere", me.mac, "0.0.0.0", (67, 68), "255.255.255.255"),
        "dhcp-server-as-gateway": ipv4("dhcp-server-as-gateway", me.mac, gateway, (67, 68), "255.255.255.255"),
        "router-advertisement": _frame(me.mac, "33:33:00:00:00:01", _IPV6, _advertisement("router-advertisement")),
        "dhcpv6-server": _frame(me.mac, it.mac, _IPV6, _udp6("dhcpv6-server", _link_local(me.mac), it.mac, (547, 546))),
        "vlan-tag": _frame(me.mac, it.mac, _VLAN, struct.pack(">HH", 120, _IPV4) + udp),
    }


def _frame(source: str, target: str, kind: int, content: bytes) -> bytes:
    return bytes.fromhex((target + source).replace(":", "")) + struct.pack(">H", kind) + content


def _mark(name: str) -> bytes:
    return f"probe:{name}\n".encode()


def _udp(name: str, source: str, target: str, source_port: int, target_port: int) -> bytes:
    content = _mark(name).ljust(64, b"\0")
    body = struct.pack(">HHHH", source_port, target_port, 8 + len(content), 0) + content
    addresses = ipaddress.IPv4Address(source).packed + ipaddress.IPv4Address(target).packed
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0, 64, _UDP, 0) + addresses
    return header[:10] + struct.pack(">H", _checksum(header)) + header[12:] + body


def _arp(name: str, mac: str, address: str, receiver: Card) -> bytes:
    """A reply that says who has the address."""
    packed = [bytes.fromhex(one.replace(":", "")) for one in (mac, receiver.mac)]
    ours, its = (ipaddress.IPv4Address(one).packed for one in (address, receiver.address))
    return struct.pack(">HHBBH", 1, _IPV4, 6, 4, 2) + packed[0] + ours + packed[1] + its + _mark(name)


def _link_local(mac: str) -> str:
    """Of a card (RFC 4291, appendix A)."""
    packed = bytes.fromhex(mac.replace(":", ""))
    return str(
        ipaddress.IPv6Address(b"\xfe\x80" + bytes(6) + bytes([packed[0] ^ 2]) + packed[1:3] + b"\xff\xfe" + packed[3:])
    )


def _advertisement(name: str) -> bytes:
    content = struct.pack(">BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0) + _mark(name).ljust(40, b"\0")
    return _ipv6("fe80::1", "ff02::1", _ICMPV6, content, 2)


def _udp6(name: str, source: str, mac: str, ports: tuple[int, int]) -> bytes:
    content = _mark(name).ljust(64, b"\0")
    body = struct.pack(">HHHH", *ports, 8 + len(content), 0) + content
    return _ipv6(source, _link_local(mac), _UDP, body, 6)


def _ipv6(source: str, target: str, kind: int, content: bytes, place: int) -> bytes:
    """``place``: of the checksum in the content."""
    ends = ipaddress.IPv6Address(source).packed + ipaddress.IPv6Address(target).packed
    checksum = _checksum(ends + struct.pack(">II", len(content), kind) + content)
    content = content[:place] + struct.pack(">H", checksum) + content[place + 2 :]
    return struct.pack(">IHBB", 0x60000000, len(content), kind, 255) + ends + content


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
