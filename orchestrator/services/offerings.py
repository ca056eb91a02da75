# SPDX-License-Identifier: Apache-2.0
"""The offerings that a site adds itself."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from orchestrator.catalogue.offering_files import mistakes_in
from orchestrator.catalogue.profiles import Profiles, shipped_profiles
from orchestrator.core.errors import Conflict, InvalidInput, NotFound, Reason
from orchestrator.core.names import check_name
from orchestrator.core.offerings.offering import Offering
from orchestrator.ports.clock import Clock
from orchestrator.services.acting import actor
from orchestrator.services.fleet.index import FleetIndex
from orchestrator.services.tenancy.tenants import known_tenant
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class OfferingService:
    """Offerings of the site: put, look, remove. What a VM was made under stays as it is as long as there is one."""

    store: Store
    index: FleetIndex
    clock: Clock

    def put(self, offering: Offering, *, look_up: bool) -> Offering:
        """Add it, or replace the one of that name; the same again is fine.

        ``look_up``: whether the names it has must be in the tables.

        :raises InvalidInput: ``offering.name_invalid``, ``offering.invalid`` with every mistake
        :raises NotFound: ``tenant.unknown``: its hosts are to be kept for that one
        :raises Conflict: ``offering.name_taken``, ``offering.in_use``
        """
        check_name(offering.name, what="offering")
        shipped = shipped_profiles()
        mistakes = tuple(
            Reason(code="offering.invalid", message=reason, subjects=(field,))
            for field, reason in mistakes_in(offering, shipped.catalogue, look_up=look_up)
        )
        if mistakes:
            raise InvalidInput(
                "offering.invalid",
                f"offering {offering.name}: {mistakes[0].message}",
                hint="docs/reference/offerings.md says what goes together",
                reasons=mistakes[1:] and mistakes,
            )
        with self.index.current() as fleet:
            types = fleet.known.types
        with self.store.begin() as tx:
            existing = next((known for known in tx.offerings.list() if known.name == offering.name), None)
            if existing == offering:
                return offering
            if offering.kept_for is not None:
                known_tenant(tx, offering.kept_for)
            if existing is None:
                _check_free(shipped, offering, types)
            else:
                _check_unused(tx, offering.name, "changed", hint="add it under another name")
            tx.offerings.put(offering)
            self._note(tx, "set_offering", offering.name)
        return offering

    def list(self, tenants: Collection[str] | None = None) -> tuple[Offering, ...]:
        """Those that the site added and that these tenants have (None: all), by name."""
        with self.store.read() as tx:
            offerings = tx.offerings.list()
        return tuple(
            offering
            for offering in offerings
            if tenants is None or offering.kept_for is None or offering.kept_for in tenants
        )

    def remove(self, name: str) -> None:
        """:raises NotFound: ``offering.unknown``; :raises Conflict: ``offering.in_use``, ``offering.shipped``"""
        with self.store.begin() as tx:
            if name not in {offering.name for offering in tx.offerings.list()}:
                if name in shipped_profiles().offerings:
                    raise Conflict(
                        "offering.shipped",
                        f"offering {name} comes with vgpuctl and stays",
                        hint=f"'vgpuctl profile show {name}' tells what it gives",
                    )
                raise NotFound(
                    "offering.unknown",
                    f"this site has no offering {name[:63]!a} of its own",
                    hint="'vgpuctl profile list' shows what there is; those that are shipped stay",
                )
            _check_unused(tx, name, "removed", hint="delete them first")
            tx.offerings.remove(name)
            self._note(tx, "remove_offering", name)

    def _note(self, tx: Transaction, action: str, subject: str) -> None:
        tx.audit.append(at=self.clock.now(), actor=actor(), action=action, subject=subject, outcome="done")


def _check_free(shipped: Profiles, offering: Offering, types: frozenset[str]) -> None:
    taken = shipped.taken(offering, host_types=types)
    if taken is not None:
        raise Conflict("offering.name_taken", f"the name is taken: {taken}", hint="choose another name")


def _check_unused(tx: Transaction, name: str, verb: str, *, hint: str) -> None:
    users = [vm.full_name for vm in tx.vms.list() if vm.spec.profile == name]
    if users:
        raise Conflict(
            "offering.in_use",
            f"offering {name} cannot be {verb}: {len(users)} VMs have it: {', '.join(users[:5])}",
            hint=hint,
        )
