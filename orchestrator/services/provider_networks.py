# SPDX-License-Identifier: Apache-2.0
"""Provider networks as operators make them, and which hosts of OVN have them."""

from __future__ import annotations

from dataclasses import dataclass, replace

from orchestrator.core.errors import Conflict, Retryable
from orchestrator.core.names import check_name
from orchestrator.core.overlay import OvnNetwork
from orchestrator.core.provider_networks import KnownChassis, NewProviderNetwork, check_apart, with_mapping
from orchestrator.core.vms.network import Network
from orchestrator.operations.steps.ports import no_ovn
from orchestrator.ports.clock import Clock, Ids
from orchestrator.ports.overlay import Overlay
from orchestrator.services.acting import actor
from orchestrator.services.networks import existing_of
from orchestrator.store.database import Store


@dataclass(frozen=True, kw_only=True)
class ProviderNetworkService:
    """``overlay`` None: the site has no OVN."""

    store: Store
    clock: Clock
    ids: Ids
    overlay: Overlay | None

    def add(self, name: str, new: NewProviderNetwork) -> Network:
        """A network of the site that ways out and floating addresses of all tenants may be of; their VMs may be on it
        once it is shared. The same again is answered with what is there.

        :raises InvalidInput: ``network.name_invalid``, and as :meth:`NewProviderNetwork.checked` does
        :raises Conflict: ``network.no_ovn``, ``network.exists``, ``network.subnet_overlaps``, ``network.bridge_taken``,
            ``host.no_mapping``: no host has it
        :raises Retryable: ``ovn.unreachable``"""
        check_name(name, what="network")
        made = new.checked(self.ids.new_uuid())
        wanted = Network(name=name, overlay=made)
        if self.overlay is None:
            raise no_ovn()
        if not with_mapping(read_chassis(self.store, self.overlay), new.physical):
            hint = "name it in vgpuctl_host_ovn_mappings of the inventory and run playbooks/prepare-host.yml"
            raise Conflict("host.no_mapping", f"no host has a bridge for {new.physical}", hint=hint)
        with self.store.begin() as tx:
            existing = existing_of(tx, name, None, lambda known: _is_like(known.overlay, made))
            if existing is not None:
                return existing
            check_apart(made, [known.overlay for known in tx.networks.list() if known.overlay is not None])
            tx.networks.add(wanted)
            tx.audit.append(
                at=self.clock.now(), actor=actor(), action="add_network", subject=name, outcome=wanted.place
            )  # fmt: skip
        return wanted


def _is_like(known: OvnNetwork | None, made: OvnNetwork) -> bool:
    return known is not None and replace(known, id=made.id) == made


def read_chassis(store: Store, overlay: Overlay) -> tuple[KnownChassis, ...]:
    """As OVN has them now, and kept for who places VMs and names gateways. Where its southbound has none, it was lost
    or is just made: they stay as they were known, so that nobody's way out is taken for that.

    :raises Retryable: ``ovn.unreachable``"""
    reading = overlay.read()
    if all(member.error is not None for member in reading.members if member.database == "southbound"):
        raise Retryable("ovn.unreachable", "OVN's southbound does not answer", hint="'vgpuctl network driver check'")
    now = tuple(
        KnownChassis(name=each.name, mappings=each.mappings, gateway=each.gateway) for each in reading.chassis
    )  # fmt: skip
    with store.read() as tx:
        known = tx.networks.chassis()
    if now and now != known:
        with store.begin() as tx:
            tx.networks.put_chassis(now)
    return now or known
