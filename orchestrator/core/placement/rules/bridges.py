# SPDX-License-Identifier: Apache-2.0
"""A VM on networks that leave by bridges of hosts runs on hosts that have these bridges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.hosts.bridges import NO_BRIDGE, OPEN_VSWITCH, Bridge, Uplink, bridge_of, why_not
from orchestrator.core.placement.rules.rule import Fact, KnownHost, Need, find
from orchestrator.core.placement.rules.wanted import Wanted


@dataclass(frozen=True, slots=True)
class HasBridges(Fact):
    """Bridges of the host's own."""

    bridges: tuple[Bridge, ...]

    @property
    def size(self) -> int:
        return 128 * sum(1 + len(bridge.vlans) for bridge in self.bridges)


@dataclass(frozen=True, slots=True)
class NeedsBridges(Need):
    """The bridges that the VM's networks leave by."""

    codes = (NO_BRIDGE, OPEN_VSWITCH)
    lasting = codes

    uplinks: tuple[Uplink, ...]

    def missing(self, host: KnownHost) -> Iterator[str]:
        has = find(host.facts, HasBridges)
        for uplink in self.uplinks:
            bridge = bridge_of(() if has is None else has.bridges, uplink)
            if isinstance(bridge, str):
                yield bridge

    def message(self, code: str) -> str:
        return " or ".join(why_not(code, uplink) for uplink in self.uplinks)


def needs_of(wanted: Wanted) -> Iterator[Need]:
    """None of networks that are made on any host."""
    if wanted.uplinks:
        yield NeedsBridges(wanted.uplinks)


def facts_of(host: HostFacts) -> tuple[Fact, ...]:
    """Of hosts that have the same bridges the same, whatever OVN calls each."""
    bridges = tuple(replace(bridge, chassis=(), problem=None) for bridge in host.bridges)
    return (HasBridges(bridges),) if bridges else ()
