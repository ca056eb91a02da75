# SPDX-License-Identifier: Apache-2.0
"""A VM on networks of kind ovn runs on hosts of OVN."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.core.overlay import INTEGRATION_BRIDGE
from orchestrator.core.placement.rules.bridges import HasBridges
from orchestrator.core.placement.rules.rule import KnownHost, Need, find
from orchestrator.core.placement.rules.wanted import Wanted

_NO_OVN: Final = "host.no_ovn"


@dataclass(frozen=True, slots=True)
class NeedsOvn(Need):
    """The bridge that OVN plugs cards into."""

    codes = (_NO_OVN,)
    lasting = codes

    def missing(self, host: KnownHost) -> Iterator[str]:
        has = find(host.facts, HasBridges)
        bridges = () if has is None else has.bridges
        if not any((bridge.name, bridge.kind) == (INTEGRATION_BRIDGE, "openvswitch") for bridge in bridges):
            yield _NO_OVN

    def message(self, code: str) -> str:
        return "the host is not in OVN, which the VM's network is made in: it has no br-int of Open vSwitch"


def needs_of(wanted: Wanted) -> Iterator[Need]:
    if wanted.overlay:
        yield NeedsOvn()
