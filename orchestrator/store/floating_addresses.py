# SPDX-License-Identifier: Apache-2.0
"""Floating addresses of tenants, and the VMs that they lead to."""

from __future__ import annotations

from dataclasses import asdict

from sqlalchemy import delete, insert, select, update

from orchestrator.core.floating_addresses import FloatingAddress
from orchestrator.core.tenancy.quota import FLOATING_AMOUNTS
from orchestrator.store.events import Events
from orchestrator.store.networks import Networks
from orchestrator.store.statements import AnyRow, Statements
from orchestrator.store.tables import floating_addresses
from orchestrator.store.usage import TenantUsage


class FloatingAddresses:
    """Each is taken on its provider network too, where VMs and routers have theirs."""

    def __init__(self, connection: Statements, networks: Networks, tenants: TenantUsage, events: Events) -> None:
        self._db = connection
        self._networks = networks
        self._tenants = tenants
        self._events = events

    def add(self, floating: FloatingAddress) -> None:
        """:raises ClaimLost: it is taken"""
        self._networks.claim(floating.network, floating.address)
        self._db.execute(insert(floating_addresses).values(asdict(floating)))
        self._tenants.change(floating.tenant, {}, FLOATING_AMOUNTS)
        self._note(floating, "created")

    def update(self, floating: FloatingAddress) -> None:
        """Where it leads, by its address."""
        leads = {"vm": floating.vm, "card_network": floating.card_network}
        its = floating_addresses.c.address == floating.address
        self._db.execute(update(floating_addresses).where(its).values(leads))
        self._note(floating, "detached" if floating.vm is None else "attached")

    def remove(self, floating: FloatingAddress) -> None:
        """It is nobody's before OVN has let go (Networks.release). Gone already is fine."""
        its = floating_addresses.c.address == floating.address
        if self._db.execute(delete(floating_addresses).where(its)).rowcount:
            self._tenants.change(floating.tenant, FLOATING_AMOUNTS, {})
            self._networks.leave(floating.network, floating.address, floating.tenant)
            self._note(floating, "removed")

    def list(self, tenant: str | None = None, *, vm: str | None = None) -> tuple[FloatingAddress, ...]:
        """By address. ``tenant`` None: of all; ``vm``: those that lead there alone."""
        at = floating_addresses.c
        query = select(floating_addresses).order_by(at.tenant, at.address)
        if tenant is not None:
            query = query.where(at.tenant == tenant)
        if vm is not None:
            query = query.where(at.vm == vm)
        return tuple(map(_floating_of, self._db.execute(query)))

    def _note(self, floating: FloatingAddress, change: str) -> None:
        self._events.note("floating_address", floating.address, change, tenant=floating.tenant)


def _floating_of(row: AnyRow) -> FloatingAddress:
    """A VM that is gone leaves its address behind, which leads nowhere then."""
    return FloatingAddress(
        address=row.address, network=row.network, tenant=row.tenant, vm=row.vm,
        card_network=None if row.vm is None else row.card_network,
    )  # fmt: skip
