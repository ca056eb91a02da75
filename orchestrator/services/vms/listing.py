# SPDX-License-Identifier: Apache-2.0
"""VMs as they are on record: one, a page of them, all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Unpack

from orchestrator.core.tenancy.access import Tenants
from orchestrator.core.vms.vm import Vm
from orchestrator.services.vm_checks import known_vm
from orchestrator.store.database import Store
from orchestrator.store.pages import PageKey
from orchestrator.store.records import VmFilter


@dataclass(frozen=True, kw_only=True)
class VmListing:
    """Looks and changes nothing."""

    store: Store

    def get(self, tenant: str, name: str) -> Vm:
        """:raises NotFound: ``vm.unknown``"""
        with self.store.read() as tx:
            return known_vm(tx, tenant, name)

    def page(
        self, sort: str = "tenant", after: PageKey | None = None, most: int | None = None, **only: Unpack[VmFilter]
    ) -> tuple[tuple[Vm, ...], int]:
        """As :meth:`VmPages.page`, and how many all pages have."""
        with self.store.read() as tx:
            page = tx.vm_pages.page(sort, after, most, **only)
            return page, tx.vm_pages.how_many(**only) if len(page) == most else len(page)

    def unseen(self) -> dict[str, float | None]:
        """Hosts whose VMs nobody can say anything about now, and until when somebody could."""
        with self.store.read() as tx:
            return tx.hosts.silent()

    def list(self, tenants: Tenants) -> tuple[Vm, ...]:
        """Of these tenants (None: of all), by tenant and name."""
        return self.page(tenants=tenants)[0]
