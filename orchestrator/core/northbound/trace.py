# SPDX-License-Identifier: Apache-2.0
"""Whether a packet passes, as ovn-trace(8) says it, in the words of security groups. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from orchestrator.core.northbound.groups import Verdicts
from orchestrator.core.security_groups import Direction, SecurityRule

_JUDGED: Final = re.compile(r" *[0-9]+\. ls_(in|out)_acl\S* \(.*?\): (.+), priority ([0-9]+), uuid [0-9a-f]+")
_RAISED: Final = 1000
"""By which ovn-northd makes the priority of a flow higher than its rule's (OVN_ACL_PRI_OFFSET)."""
_FROM_PORT: Final = 49152
"""Of the sender: any that the system gives (RFC 6335)."""
Probe = Literal["tcp", "udp", "icmp"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement:
    """What one of the two cards' groups said."""

    direction: Direction
    """``out``: at the sender; ``in``: at the receiver."""
    group: str
    """Of the card's tenant."""
    rule: SecurityRule | None
    """Which allows or refuses it; None: no rule of any of its groups allows it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Packet:
    """The first of a connection."""

    port: str
    """The sender's, as OVN knows it."""
    macs: tuple[str, str]
    """Of the sender, and of the receiver or the router before it."""
    addresses: tuple[str, str]
    """IPv4 or IPv6, of the sender and of the receiver."""
    protocol: Probe
    to_port: int | None
    """Of TCP and UDP."""

    def __str__(self) -> str:
        """As ovn-trace takes it."""
        version, echo = (6, 128) if ":" in self.addresses[0] else (4, 8)
        parts = [
            f'inport == "{self.port}"', f"eth.src == {self.macs[0]}", f"eth.dst == {self.macs[1]}",
            f"ip{version}.src == {self.addresses[0]}", f"ip{version}.dst == {self.addresses[1]}", "ip.ttl == 64",
        ]  # fmt: skip
        if self.protocol == "icmp":
            parts += [f"icmp{version}.type == {echo}", f"icmp{version}.code == 0"]
        else:
            parts += [f"{self.protocol}.src == {_FROM_PORT}", f"{self.protocol}.dst == {self.to_port}"]
        return " && ".join(parts)


def judgements(trace: str, verdicts: Verdicts) -> tuple[Judgement, ...]:
    """In the order in which they were met."""
    met = []
    for judged in filter(None, map(_JUDGED.fullmatch, trace.splitlines())):
        for (match, priority), (group, rule) in verdicts.items():
            if f"({match})" in judged[2] and int(judged[3]) == priority + _RAISED:
                met.append(Judgement(direction="out" if judged[1] == "in" else "in", group=group, rule=rule))
    return tuple(met)


def arrives(trace: str, port: str) -> bool:
    """Whether the packet reaches that port."""
    return f'/* output to "{port}"' in trace
