# SPDX-License-Identifier: Apache-2.0
"""A VM on networks of kind ovn runs on hosts of OVN."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.hosts.bridges import outside_ovn
from orchestrator.core.placement.rules.rule import Fact, KnownHost, Need, find
from orchestrator.core.placement.rules.wanted import Wanted

_NO_OVN: Final = "host.no_ovn"


@dataclass(frozen=True, slots=True)
class InOvn(Fact):
    """OVN does what VMs' cards on the host need."""


@dataclass(frozen=True, slots=True)
class NeedsOvn(Need):
    """The bridge that OVN plugs cards into, and OVN at work there."""

    codes = (_NO_OVN,)
    lasting = codes

    def missing(self, host: KnownHost) -> Iterator[str]:
        if find(host.facts, InOvn) is None:
            yield _NO_OVN

    def message(self, code: str) -> str:
        return (
            "the host is not in OVN, which the VM's network is made in: it has no br-int of Open vSwitch, its "
            "ovn-controller is not at work, or OVN calls it otherwise; its details say which"
        )


def needs_of(wanted: Wanted) -> Iterator[Need]:
    if wanted.overlay:
        yield NeedsOvn()


def facts_of(host: HostFacts, name: str) -> tuple[Fact, ...]:
    """``name``: the host's."""
    return (InOvn(),) if outside_ovn(host.bridges, name) is None else ()
