# SPDX-License-Identifier: Apache-2.0
"""What a host lacks, before it is added or after. Nothing is changed on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from orchestrator.core.errors import Conflict
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.readiness import HostReadinessFacts, Requirement, requirements
from orchestrator.core.ovn import LABEL
from orchestrator.ports.host import Inspector
from orchestrator.services.hosts.hosts import HostService
from orchestrator.services.messages import AddHost, HostKey
from orchestrator.store.database import Store

NEW: Final = "new-host"
"""What a host that is not added yet is called in a run's files."""


@dataclass(frozen=True)
class HostInspection:
    """What is read of hosts that have no agent: the SSH host key at an address and port, and what a host has.

    ``own_agent``: the version that an agent of this server's build reports; None: the hosts are simulated."""

    scan_key: Callable[[str, int], HostKey]
    inspector: Inspector | None = None
    own_agent: Callable[[], str | None] = lambda: None


@dataclass(frozen=True, kw_only=True)
class HostCheckService:
    """``inspector`` None: the hosts are simulated."""

    store: Store
    hosts: HostService
    inspector: Inspector | None

    def check_new(self, address: str, port: int, user: str, key: str, fingerprint: str) -> tuple[Requirement, ...]:
        """A host that may not be added yet.

        :raises InvalidInput, Fatal: as :meth:`HostService.add` does, before the host is logged in to
        """
        wanted = AddHost(name=NEW, address=address, port=port, user=user, provisioning_key=key, fingerprint=fingerprint)
        return requirements(self._facts(self.hosts.checked(wanted), key))

    def check(self, name: str) -> tuple[Requirement, ...]:
        """A host that is added. :raises NotFound: ``host.unknown``"""
        with self.store.read() as tx:
            host = tx.hosts.get(name)
        return requirements(self._facts(host, None), in_ovn=LABEL in dict(host.labels))

    def _facts(self, host: Host, key: str | None) -> HostReadinessFacts:
        if self.inspector is None:
            raise Conflict("host.simulated", "simulated hosts have nothing to check", hint="use a server of real hosts")
        return self.inspector.inspect(host, key)
