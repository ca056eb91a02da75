# SPDX-License-Identifier: Apache-2.0
"""A request whose answer is a number."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.core.advice.outlook import NEVER_FITS
from orchestrator.core.errors import Reason
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.place import place_in
from orchestrator.core.placement.reasons import leading_reason
from orchestrator.core.placement.rules import affinity
from orchestrator.core.placement.views import Placement, Request
from orchestrator.services.fleet.index import Fleet, FleetIndex
from orchestrator.services.guests.drivers import GuestHost
from orchestrator.services.guests.runs import offered_roles
from orchestrator.services.vms.placement_request import place_named
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class FitQuery:
    """A request whose answer is a number: how many such VMs fit."""

    request: Request
    one_per_host: bool
    """No two VMs of its offering and tenant are on one host."""
    refused: Reason | None
    """Why its pool does not take its disk, or the roles that its offering asks for cannot be run in its guest."""

    def count(self, fleet: Fleet) -> int:
        """VMs that fit without moving any."""
        if self.refused is not None:
            return 0
        if not self.one_per_host:
            return fleet.each.room(self.request)
        taking = fleet.each.taking(replace(self.request, needs=affinity.without(self.request.needs)))
        apart = affinity.apart_from(self.request.needs)
        return sum(viewed.kind in taking and viewed.view.vms.isdisjoint(apart) for viewed in fleet.hosts)

    def why_none(self, fleet: Fleet, index: FleetIndex, profile: str, *, alone: bool) -> Reason:
        """Of a request of which :meth:`count` has none, as create says it. ``profile``: its name. ``alone``: it is
        asked of no other, so that there is time to say whether any host could ever have it."""
        if self.refused is not None:
            return self.refused
        if alone or self.request.whole_gpus:  # of a set that no host has, what is said of single GPUs misleads
            lasting = index.lasting_reason(self.request, asked=profile, place=place_named(self.request))
            if lasting is not None and lasting.code == NEVER_FITS:
                return lasting
        if affinity.apart_from(self.request.needs):  # hosts of one kind may have such a VM or not
            everywhere = ((host, 1) for host in index.engine.fleet.hosts)
            return leading_reason(index.engine, self.request, everywhere)
        return fleet.each.why_none(self.request)


def check_roles(tx: Transaction, offering: Offering, tenant: str, host: str) -> None:
    """:raises Conflict, NotFound: roles that the offering asks for cannot be run there, as create says it"""
    on = GuestHost(host=host, whole=offering.kind == "passthrough", about=f"such a VM of {tenant}")
    offered_roles(offering).check_possible(tx, on)


def check_roles_where_placed(tx: Transaction, engine: PlacementEngine, request: Request, offering: Offering) -> None:
    """On the host that a create would choose now; nothing where it would find none. Raises what that does."""
    placement = place_in(engine, request) if offering.provision else None
    if isinstance(placement, Placement):
        check_roles(tx, offering, request.tenant, placement.host_id)
