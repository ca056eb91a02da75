# SPDX-License-Identifier: Apache-2.0
"""What a name after ``--profile`` means here and now."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TypeVar

from orchestrator.catalogue.profiles import Profiles, shipped_profiles
from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.hosts.snapshot import HostVgpuType
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.vms.vm import VmShape
from orchestrator.store.transaction import Transaction

_VmT = TypeVar("_VmT", bound=VmShape)


@dataclass(frozen=True, kw_only=True)
class KnownProfiles:
    """Everything that may be asked for: shipped and added offerings, the tables, what hosts offer."""

    profiles: Profiles
    types: frozenset[str]
    """vGPU types that some host's driver offers."""

    @classmethod
    def of(cls, tx: Transaction) -> KnownProfiles:
        """As the transaction sees it: of all hosts, for who asks once in a while and not for each VM."""
        hosts = [row.facts for row in tx.fleet.hosts(None) if row.facts is not None]
        types = frozenset(vgpu_type.name for facts in hosts for gpu in facts.gpus for vgpu_type in gpu.types)
        return cls(profiles=shipped_profiles().with_site(tx.offerings.list()), types=types)

    @property
    def offerings(self) -> tuple[Offering, ...]:
        """All that were written down, by us or by the site."""
        return tuple(self.profiles.offerings.values())

    def of_tenants(self, tenants: Collection[str] | None) -> KnownProfiles:
        """What these may know of: not the offerings on hosts that are kept for others. None: all of it."""
        if tenants is None or all(offering.kept_for is None for offering in self.offerings):
            return self
        theirs = {
            offering.name: offering
            for offering in self.offerings
            if offering.kept_for is None or offering.kept_for in tenants
        }
        return replace(self, profiles=Profiles(self.profiles.catalogue, theirs))

    def resolve(self, name: str) -> Offering:
        """:raises NotFound: ``profile.unknown`` with near names"""
        return self.profiles.resolve(name, host_types=self.types)

    def sized(self, asked: _VmT, offering: Offering) -> _VmT:
        """With what it leaves open as the offering says it."""
        return asked.filled(self.profiles.size(offering), offering)


class OfferedTypes:
    """The vGPU types of all hosts. GPUs of a kind have the same ones, so lists of types are counted, not names."""

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self._hosts: dict[tuple[HostVgpuType, ...], int] = {}

    def add(self, facts: HostFacts) -> None:
        """A host that has these GPUs now."""
        self._count(facts, 1)

    def drop(self, facts: HostFacts) -> None:
        """One that had them."""
        self._count(facts, -1)

    def _count(self, facts: HostFacts, sign: int) -> None:
        known = len(self._hosts)
        for types in {gpu.types for gpu in facts.gpus}:
            hosts = self._hosts.get(types, 0) + sign
            if hosts:
                self._hosts[types] = hosts
            else:
                del self._hosts[types]
        if len(self._hosts) != known:
            self.names = frozenset(vgpu_type.name for types in self._hosts for vgpu_type in types)
