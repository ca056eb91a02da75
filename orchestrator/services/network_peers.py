# SPDX-License-Identifier: Apache-2.0
"""Which networks of kind ovn are joined: both tenants say so, or an operator does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.core.errors import InvalidInput
from orchestrator.core.names import check_name
from orchestrator.core.overlay import NetworkPeer, OvnNetwork, PeerState
from orchestrator.core.peering import check_apart, check_routes_fit, free_link, peer_of, with_peer
from orchestrator.core.vms.network import Network, own_name, short_name, tenant_of, unknown_network
from orchestrator.services.acting import actor
from orchestrator.services.networks import NetworkService
from orchestrator.services.tenancy.tenants import known_tenant
from orchestrator.services.vms.ports import check_converted
from orchestrator.store.transaction import Transaction


def change_peers(
    networks: NetworkService, name: str, tenant: str, join: Sequence[str], leave: Sequence[str], *, operator: bool
) -> Network:
    """Join a network of the tenant with these, ``NAME`` of its own or ``TENANT/NAME``, and leave those. With another
    tenant's it is joined once that one has said so, too. ``operator``: the caller speaks for both.

    :raises NotFound: ``network.unknown``, ``tenant.unknown``
    :raises InvalidInput: ``network.name_invalid``, ``network.of_ovn``, ``network.peer_itself``
    :raises Conflict: ``network.peer_overlaps``, ``network.too_many_peers``, ``network.converting``
    :raises Retryable: ``ovn.unreachable``, ``ovn.busy``; :raises Unknown: ``ovn.not_in_effect``"""
    coming, going = ([_on_hosts(word, tenant) for word in words] for words in (join, leave))
    with networks.store.read() as tx:
        others = _concerned(tx, own_name(tenant, name), coming, going, operator=operator) - {tenant}
    with networks.in_ovn.changing(tenant, *sorted(others)), networks.store.begin() as tx:
        known_tenant(tx, tenant)
        own = tx.networks.find(own_name(tenant, name))
        if own is None:
            raise unknown_network(name, [known.short for known in tx.networks.list() if known.tenant == tenant])
        for peer in coming:
            _join(tx, tx.networks.get(own.name), peer, speaks_for_it=operator or tenant_of(peer) == tenant)
        for peer in going:
            _leave(tx, tx.networks.get(own.name), peer)
        words = ", ".join([*(f"+{word}" for word in join), *(f"-{word}" for word in leave)])
        tx.audit.append(
            at=networks.clock.now(), actor=actor(), action=f"set_network_peers {words}", subject=f"{tenant}/{name}",
            outcome="done",
        )  # fmt: skip
        return tx.networks.get(own.name)


def _concerned(tx: Transaction, name: str, coming: Sequence[str], going: Sequence[str], *, operator: bool) -> set[str]:
    """Tenants of the networks that become joined or were: what is asked alone is nothing in OVN, and holds nobody. Who
    says so in between is in OVN with the next comparison."""
    own = tx.networks.find(name)
    if own is None or own.overlay is None:
        return set()
    known = (tx.networks.find(peer) for peer in coming)
    others = {
        other.tenant for other in known
        if other is not None and (operator or _has_agreed(peer_of(other.overlay, name, own.overlay.id)))
    }  # fmt: skip
    left = {tenant_of(peer.network) for peer in own.overlay.peers if peer.state == "joined" and peer.network in going}
    return {tenant for tenant in others | left if tenant is not None}


def _has_agreed(theirs: NetworkPeer | None) -> bool:
    return theirs is not None and theirs.state != "offered"


def _join(tx: Transaction, own: Network, peer: str, *, speaks_for_it: bool) -> None:
    """What is not there, and is not the caller's to know, is asked as what is."""
    overlay = _overlay(own)
    check_converted(tx, own)
    if peer == own.name:
        hint = "name another one: 'vgpuctl network list' shows them"
        raise InvalidInput("network.peer_itself", f"network {own.short} is joined with itself already", hint=hint)
    other = tx.networks.find(peer)
    if speaks_for_it and other is None:
        raise unknown_network(short_name(peer), [known.short for known in tx.networks.list()])
    if other is None or (other.overlay is None and not speaks_for_it):
        tx.networks.update(with_peer(own, NetworkPeer(network=peer, id="", state="asked"), peer))
        return
    its = _overlay(other)
    if speaks_for_it:
        check_converted(tx, other)
    theirs = peer_of(its, own.name, overlay.id)
    state: PeerState = "joined"
    if not speaks_for_it and not _has_agreed(theirs):
        state = "asked"
    else:
        check_apart(own, other, tx.networks.find)
    before = peer_of(overlay, other.name, its.id)
    if before is not None and before.state == "joined":
        return
    link = free_link((own, other)) if state == "joined" else 0
    mine = NetworkPeer(network=other.name, id=its.id, state=state, link=link)
    tx.networks.update(with_peer(own, mine, other.name))
    offered: PeerState = "joined" if state == "joined" else "offered"
    tx.networks.update(with_peer(other, replace(mine, network=own.name, id=overlay.id, state=offered), own.name))
    if state == "joined":
        for each in (own, other):
            check_routes_fit(tx.networks.get(each.name), tx.networks.find)


def _leave(tx: Transaction, own: Network, peer: str) -> None:
    """Either side may. Not joined is fine."""
    tx.networks.update(with_peer(own, None, peer))
    other = tx.networks.find(peer)
    if other is not None and own.overlay is not None and peer_of(other.overlay, own.name, own.overlay.id) is not None:
        tx.networks.update(with_peer(other, None, own.name))


def _overlay(network: Network) -> OvnNetwork:
    if network.overlay is None:
        hint = "networks of kind ovn are joined: 'vgpuctl network list' has the kinds"
        raise InvalidInput("network.of_ovn", f"network {network.short} is of kind {network.kind}", hint=hint)
    return network.overlay


def _on_hosts(word: str, tenant: str) -> str:
    owner, _, name = word.rpartition("/")
    check_name(name, what="network")
    return own_name(check_name(owner, what="network") if owner else tenant, name)
