# SPDX-License-Identifier: Apache-2.0
"""A VM on networks that leave by bridges of hosts runs on hosts that have these bridges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.hosts.bridges import NO_BRIDGE, OPEN_VSWITCH, Bridge, Uplink, bridge_of, why_not
from orchestrator.core.placement.rules.rule import Fact, Need, find


@dataclass(frozen=True, slots=True)
class HasBridges(Fact):
    """Bridges of the host's own."""

    bridges: tuple[Bridge, ...]

    @property
    def size(self) -> int:
        return 128 * sum(1 + len(one.vlans) for one in self.bridges)


@dataclass(frozen=True, slots=True)
class NeedsBridges(Need):
    """The bridges that the VM's networks leave by."""

    codes = (NO_BRIDGE, OPEN_VSWITCH)

    uplinks: tuple[Uplink, ...]

    def missing(self, facts: tuple[Fact, ...]) -> Iterator[str]:
        has = find(facts, HasBridges)
        for uplink in self.uplinks:
            found = bridge_of(() if has is None else has.bridges, uplink)
            if isinstance(found, str):
                yield found

    def message(self, code: str) -> str:
        return " or ".join(why_not(code, uplink) for uplink in self.uplinks)


def needs_of(uplinks: tuple[Uplink, ...]) -> tuple[Need, ...]:
    """None of networks that are made on any host."""
    return (NeedsBridges(uplinks),) if uplinks else ()


def facts_of(host: HostFacts) -> tuple[Fact, ...]:
    return (HasBridges(host.bridges),) if host.bridges else ()
