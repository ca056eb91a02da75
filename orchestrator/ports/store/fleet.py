# SPDX-License-Identifier: Apache-2.0
"""Hosts as placement needs them, and which of them changed."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol

from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.hosts.host import Host
from orchestrator.core.vms.claim import Claim
from orchestrator.core.vms.vm import Vm


@dataclass(frozen=True, kw_only=True)
class HostRecord:
    """All of a host that placement sees."""

    host: Host
    facts: HostFacts | None
    """None: it was never observed."""
    claims: tuple[Claim, ...]
    vms: tuple[Vm, ...]
    """All on it, with or without a place."""
    volume_bytes: int = 0
    """What the data volumes on it may take together."""


@dataclass(frozen=True, kw_only=True)
class FleetChanges:
    """What happened to hosts since somebody read them."""

    position: int
    """Where to go on from."""
    stamps: dict[str, int]
    """Host → a number that differs after each change. Those that are gone are named too, and some may be named
    again."""


class Fleet(Protocol):
    def changes(self, since: int) -> FleetChanges:
        """``since``: the position of an earlier answer; 0: from the beginning. No change is ever left out."""

    def hosts(self, names: Collection[str] | None) -> Iterator[HostRecord]:
        """Those of them that are there; None: all."""
