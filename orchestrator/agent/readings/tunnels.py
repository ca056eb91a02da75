# SPDX-License-Identifier: Apache-2.0
"""How long packets take to a few other hosts of OVN, once a minute, by ICMP and with no program: the kernel lets who is
in ``net.ipv4.ping_group_range`` open such a socket (icmp(7)). Where it does not, nothing is measured."""

from __future__ import annotations

import logging
import select
import socket
import struct
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from ipaddress import ip_address
from typing import Any, Final

from orchestrator.agent.open_vswitch import ask_open_vswitch, of_map
from orchestrator.agent.paths import Paths
from orchestrator.agent.timing import Timing
from orchestrator.core.readings.tunnels import Tunnel, is_silent, nearest, slowness, tunnel_of

_PERIOD_S: Final = 60.0
_PACKETS: Final = 3
_WAIT_S: Final = 1.0
"""For the answers to one packet to each: three seconds for all."""
_END_S: Final = 5.0
_JUDGED: Final = 2
"""Measurements that must agree before anybody is told of trouble."""
_PROTOCOLS: Final = {
    4: (socket.AF_INET, socket.IPPROTO_ICMP, 8),
    6: (socket.AF_INET6, socket.IPPROTO_ICMPV6, 128),
}
"""By IP version; the last is the kind of message that asks for an echo (RFC 792, RFC 4443)."""
_HEADER: Final = struct.Struct("!BBHHH")
_PAYLOAD: Final = bytes(56)
_QUESTIONS: Final[list[dict[str, Any]]] = [
    {"op": "select", "table": "Open_vSwitch", "where": [], "columns": ["external_ids"]},
    {"op": "select", "table": "Interface", "where": [["type", "==", "geneve"]], "columns": ["options"]},
]
log = logging.getLogger(__name__)


class MeasuredTunnels:
    """Safe for threads; measures by a thread of its own."""

    def __init__(self, paths: Paths, timing: Timing) -> None:
        self._paths, self._timing = paths, timing
        self._ended = threading.Event()
        self._measured: dict[str, tuple[Tunnel, ...]] = {}
        self._answered: frozenset[str] = frozenset()
        self.refused = False
        """The kernel lets us send no ping."""
        self._thread = threading.Thread(target=self._run, name="tunnels", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(_END_S)

    def last(self) -> tuple[Tunnel, ...]:
        """The last measurement of each."""
        return tuple(measured[-1] for measured in self._measured.values())

    def silent(self) -> tuple[str, ...]:
        """Other hosts' addresses that answered once and answer no more. Of one that never did nothing is known: ICMP
        may be filtered on the way there."""
        judged = self._judged()
        return tuple(address for address in judged if address in self._answered and is_silent(judged[address]))

    def slow(self) -> tuple[str, ...]:
        """Other hosts' addresses, each with what is wrong, for people."""
        troubles = {address: slowness(measured) for address, measured in self._judged().items()}
        return tuple(f"{address}: {trouble}" for address, trouble in troubles.items() if trouble is not None)

    def measure(self) -> None:
        """Once; nothing is known of what is no tunnel any more, and of all where Open vSwitch does not answer."""
        try:
            chassis, tunnels = ask_open_vswitch(self._paths, _QUESTIONS)
            own = of_map(chassis[0]["external_ids"]).get("ovn-encap-ip", "").partition(",")[0]
            addresses = nearest(own, [of_map(tunnel["options"]).get("remote_ip", "") for tunnel in tunnels])
            times = ping(addresses)
        except (OSError, ValueError, LookupError, TypeError) as error:
            log.debug("tunnels are not measured: %s", error)
            self._measured, self.refused = {}, isinstance(error, PermissionError)
            return
        self.refused = False
        self._answered = (self._answered & set(addresses)) | {address for address, answers in times.items() if answers}
        self._measured = {
            address: (*self._measured.get(address, ())[1 - _JUDGED :], tunnel_of(address, _PACKETS, times[address]))
            for address in addresses
        }

    def _judged(self) -> dict[str, tuple[Tunnel, ...]]:
        return {address: measured for address, measured in self._measured.items() if len(measured) == _JUDGED}

    def _run(self) -> None:
        while not self._ended.wait(self._timing.jitter(_PERIOD_S)):
            self.measure()


def ping(addresses: Sequence[str]) -> dict[str, list[float]]:
    """Seconds until each answer came, by address. What comes too late is lost.

    :raises OSError: the kernel lets us send none
    """
    times: dict[str, list[float]] = {address: [] for address in addresses}
    versions = {address: ip_address(address).version for address in addresses}
    with ExitStack() as open_sockets:
        sockets = {
            version: open_sockets.enter_context(socket.socket(family, socket.SOCK_DGRAM, protocol))
            for version, (family, protocol, _) in _PROTOCOLS.items()
            if version in versions.values()
        }
        for number in range(_PACKETS):
            sent: dict[int, tuple[str, float]] = {}
            for sequence, address in enumerate(addresses, number * len(addresses)):
                sent[sequence] = (address, time.perf_counter())
                _send(sockets[versions[address]], address, sequence)
            end = time.monotonic() + _WAIT_S
            while sent and (left := end - time.monotonic()) > 0:
                for ready in select.select([*sockets.values()], [], [], left)[0]:
                    sequence, source = _receive(ready)
                    if sequence in sent and ip_address(sent[sequence][0]) == ip_address(source):
                        address, at = sent.pop(sequence)
                        times[address].append(time.perf_counter() - at)
    return times


def _send(by: socket.socket, address: str, sequence: int) -> None:
    kind = next(kind for family, _, kind in _PROTOCOLS.values() if family == by.family)
    try:  # the kernel fills in checksum and identifier, and gives us answers to these alone
        by.sendto(_HEADER.pack(kind, 0, 0, 0, sequence) + _PAYLOAD, (address, 0))
    except OSError as error:
        log.debug("nothing is sent to %s: %s", address, error)  # as good as lost


def _receive(by: socket.socket) -> tuple[int, str]:
    """Sequence and sender; -1: it is no answer."""
    message, sender = by.recvfrom(2 * len(_PAYLOAD))
    sequence = _HEADER.unpack_from(message)[4] if len(message) >= _HEADER.size else -1
    return sequence, str(sender[0]).partition("%")[0]
