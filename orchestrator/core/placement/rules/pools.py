# SPDX-License-Identifier: Apache-2.0
"""A VM whose disk or volumes are in pools runs on hosts that have these pools mounted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.hosts.pool import short_of
from orchestrator.core.placement.rules.rule import Fact, KnownHost, Need, find
from orchestrator.core.placement.rules.wanted import Wanted
from orchestrator.core.vms.volume import pools_of


@dataclass(frozen=True, slots=True)
class ReachesPools(Fact):
    """As hosts call them."""

    pools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NeedsPools(Need):
    """All of these."""

    codes = ("host.no_pool",)
    lasting = codes

    pools: tuple[str, ...]

    def missing(self, host: KnownHost) -> Iterator[str]:
        has = find(host.facts, ReachesPools)
        if not set(self.pools).issubset(() if has is None else has.pools):
            yield "host.no_pool"

    def message(self, code: str) -> str:
        names = ", ".join(map(short_of, self.pools))
        return f"the host has not mounted {'pool' if len(self.pools) == 1 else 'pools'} {names}"


def needs_of(wanted: Wanted) -> Iterator[Need]:
    if pools := pools_of(wanted.vm):
        yield NeedsPools(pools)


def facts_of(host: HostFacts) -> tuple[Fact, ...]:
    return (ReachesPools(host.pools),) if host.pools else ()
