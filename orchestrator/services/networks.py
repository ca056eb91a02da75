# SPDX-License-Identifier: Apache-2.0
"""Networks that VMs are put on: of a tenant alone, or of the site and for every tenant; ours, or a bridge of hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from ipaddress import IPv4Network

from orchestrator.core.errors import Conflict, Denied, InvalidInput, NotFound
from orchestrator.core.hosts.bridges import NO_BRIDGE, OPEN_VSWITCH, Uplink, bridge_of, check_uplink, why_not
from orchestrator.core.labels import show_changes
from orchestrator.core.names import check_name
from orchestrator.core.overlay import NO_CHANGE, NewOvnNetwork, OvnNetworkChange
from orchestrator.core.peering import check_grown
from orchestrator.core.tenancy.quota import network_amounts
from orchestrator.core.vms.network import (
    DEFAULT_NAME,
    DEFAULT_RANGE,
    MAX_OF_TENANT,
    Network,
    check_no_host,
    check_of_tenant,
    free_subnet,
    host_networks,
    own_name,
    parse_subnet,
    unknown_network,
)
from orchestrator.core.vms.vm import Vm
from orchestrator.operations.steps.ports import no_ovn
from orchestrator.ports.clock import Clock, Ids
from orchestrator.services.acting import actor
from orchestrator.services.begin import conversions
from orchestrator.services.changes_in_ovn import ChangesInOvn
from orchestrator.services.fleet.index import FleetIndex
from orchestrator.services.tenancy.quotas import more_within_quota
from orchestrator.services.tenancy.tenants import known_tenant
from orchestrator.services.vms.ports import check_converted
from orchestrator.services.ways_out import check_ends, check_leads_nowhere, is_seen, leads_alike, way_out
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

_SHOWN = 10
"""VMs named in a refusal."""


@dataclass(frozen=True, kw_only=True)
class NetworkService:
    """Networks are made on a host when its first VM needs them. A name is one of at most one network that a tenant
    may use: of its own and the shared ones no two are called the same."""

    store: Store
    clock: Clock
    index: FleetIndex
    subnets: IPv4Network = DEFAULT_RANGE
    """What tenants' subnets are out of."""
    ids: Ids
    in_ovn: ChangesInOvn

    def add(self, name: str, subnet: str | None, tenant: str | None = None, *, operator: bool = True) -> Network:
        """A libvirt NAT network of a tenant; None: of the site, and shared. ``subnet`` as ``10.88.1.0/24``, None: the
        next free one. The same again is answered with what is there. ``operator``: the caller may choose any private
        subnet, for a tenant too.

        :raises InvalidInput: ``network.name_invalid``, ``network.subnet_invalid``; :raises NotFound: ``tenant.unknown``
        :raises Conflict: ``network.exists``, ``network.subnet_overlaps``, ``network.too_many``, ``network.too_large``,
            ``network.subnet_of_hosts``
        """
        check_name(name, what="network")
        with self.store.begin() as tx:
            if tenant is not None:
                known_tenant(tx, tenant)
            existing = existing_of(
                tx, name, tenant, lambda known: known.subnet is not None and subnet in {None, known.subnet}
            )
            return existing or self._add(tx, name, subnet, tenant, operator=operator)

    def _add(self, tx: Transaction, name: str, subnet: str | None, tenant: str | None, *, operator: bool) -> Network:
        if subnet is None:
            chosen = free_subnet(_taken(tx), self.subnets)
        else:
            chosen = parse_subnet(subnet, _subnets(tx))
            check_no_host(chosen, _host_addresses(tx))
        if tenant is None:
            network = Network(name=name, subnet=chosen, shared=True)
        else:
            network = Network(name=own_name(tenant, name), subnet=chosen)
            _check_number(tx, network)
            if not operator:
                check_of_tenant(chosen, _subnets(tx, tenant), self.subnets)
        tx.networks.add(network)
        self._note(tx, "add_network", network, chosen)
        return network

    def add_overlay(self, name: str, overlay: NewOvnNetwork, tenant: str, out: str | None = None) -> Network:
        """A network of kind ovn, over all hosts, of that tenant alone. Its rows come into OVN with its first VM. The
        same again is answered with what is there. ``out``: provider network that leads out of it by NAT.

        :raises InvalidInput: ``network.name_invalid``, ``network.subnet_invalid``, ``network.mtu_invalid``,
            ``network.dns_invalid``
        :raises NotFound: ``tenant.unknown``, ``network.no_provider``; :raises NoCapacity: ``network.full``
        :raises Conflict: ``network.exists``, ``network.no_ovn``, ``network.too_many``, ``network.subnet_overlaps``"""
        check_name(name, what="network")
        if self.in_ovn.northbound is None:
            raise no_ovn()
        made = overlay.checked(self.ids.new_uuid())
        with self.store.begin() as tx:
            known_tenant(tx, tenant)
            existing = existing_of(tx, name, tenant, lambda known: leads_alike(known.overlay, overlay, out))
            if existing is not None:
                return existing
            leading = made if out is None else replace(made, out=way_out(tx, out, made, tenant))
            wanted = Network(name=own_name(tenant, name), overlay=leading)
            _check_number(tx, wanted)
            tx.networks.add(wanted)
            self._note(tx, "add_network", wanted, wanted.place)
        return wanted

    def add_bridged(
        self, name: str, uplink: Uplink, dhcp_servers: tuple[str, ...] = (), tenant: str | None = None
    ) -> Network:
        """A network on a bridge that hosts have; ``tenant``: whose alone it is, None: of the site, and shared. Hosts
        without the bridge take no VM of it. The same again is answered with what is there.

        :raises InvalidInput: ``network.name_invalid``, ``network.bridge_invalid``, ``network.vlan_invalid``,
            ``network.dhcp_server_invalid``
        :raises NotFound: ``tenant.unknown``
        :raises Conflict: ``network.exists``, ``network.too_many``, ``network.bridge_taken``; ``host.no_bridge``,
            ``host.openvswitch``: no host can take a VM of it
        """
        check_name(name, what="network")
        check_uplink(uplink, dhcp_servers)
        self._check_on_a_host(uplink)
        wanted = Network(
            name=name if tenant is None else own_name(tenant, name),
            shared=tenant is None,
            uplink=uplink,
            dhcp_servers=dhcp_servers,
        )
        with self.store.begin() as tx:
            if tenant is not None:
                known_tenant(tx, tenant)
            existing = existing_of(tx, name, tenant, lambda known: replace(known, shared=wanted.shared) == wanted)
            if existing is not None:
                return existing
            if tenant is not None:
                _check_number(tx, wanted)
            _check_bridge_free(tx, uplink)
            tx.networks.add(wanted)
            self._note(tx, "add_network", wanted, wanted.place)
        return wanted

    def _check_on_a_host(self, uplink: Uplink) -> None:
        """Of a site that has no host yet nothing is known."""
        with self.index.current() as index:
            answers = [bridge_of(host.facts.bridges, uplink) for host in index.fleet().hosts]
        codes = [answer for answer in answers if isinstance(answer, str)]
        if not answers or len(codes) < len(answers):
            return
        code = OPEN_VSWITCH if OPEN_VSWITCH in codes else NO_BRIDGE
        hint = "'vgpuctl host show HOST' names the bridges of a host; they are made there, not by vgpuctl"
        raise Conflict(code, f"no host can take VMs of {uplink}: {why_not(code, uplink)}", hint=hint)

    def make_default(self, tx: Transaction, tenant: str) -> None:
        """Its first card there needs it.

        :raises NotFound: ``tenant.unknown``; :raises Conflict: ``network.too_many``, ``network.subnets_used_up``
        """
        known_tenant(tx, tenant)
        if tx.networks.find(own_name(tenant, DEFAULT_NAME)) is None:
            self._add(tx, DEFAULT_NAME, None, tenant, operator=False)

    def get(self, name: str, *, everybody: bool) -> Network:
        """A network of the site. ``everybody``: also one that is not shared.

        :raises NotFound: ``network.unknown``"""
        with self.store.read() as tx:
            network = _of_site(tx, name, everybody=everybody)
            if not (is_seen(network) or everybody):
                raise _unknown(tx, name, None)
            return network

    def of(self, tx: Transaction, tenant: str, names: tuple[str, ...]) -> tuple[Network, ...]:
        """Where a VM of the tenant goes that names these. :raises NotFound: ``network.unknown``"""
        return tuple(network_for(tx, tenant, name, self.subnets) for name in names)

    def usable(self, tenant: str, name: str) -> Network:
        """What the tenant calls so, of its own or shared.

        :raises NotFound: ``network.unknown``, ``tenant.unknown``"""
        with self.store.read() as tx:
            known_tenant(tx, tenant)
            return _usable(tx, tenant, name)

    def list(self, tenants: tuple[str, ...] | None = None) -> tuple[Network, ...]:
        """What these tenants may use (None: all there are), by name: the site's first, then by tenant."""
        with self.store.read() as tx:
            networks = tx.networks.list()
        seen = (network for network in networks if tenants is None or is_seen(network) or network.tenant in tenants)
        return tuple(sorted(seen, key=lambda network: (network.tenant or "", network.short)))

    def share(self, name: str, *, shared: bool) -> Network:
        """Whether tenants may put VMs on a network of the site. VMs that are there stay, each apart from the others.

        :raises NotFound: ``network.unknown``; :raises Conflict: ``network.exists``: a tenant has one of that name
        """
        with self.store.begin() as tx:
            known = _of_site(tx, name)
            if known.shared == shared:
                return known
            if shared:
                _check_name_free(tx, name, None)
            network = replace(known, shared=shared)
            tx.networks.update(network)
            self._note(tx, "share_network" if shared else "unshare_network", network, "done")
        return network

    def change(
        self,
        name: str,
        tenant: str | None,
        description: str | None,
        labels: Mapping[str, str | None],
        change: OvnNetworkChange = NO_CHANGE,
    ) -> Network:
        """A network of the tenant, None: of the site. None as a description: it stays, as a label's value: it goes.
        ``change``: of one of kind ovn; guests hear of it when they ask for their addresses again.

        :raises NotFound: ``network.unknown``, ``tenant.unknown``
        :raises InvalidInput: ``label.…``, ``network.of_ovn``, ``network.subnet_invalid``, ``network.mtu_invalid``,
            ``network.dns_invalid``, ``network.dhcp_invalid``; :raises Conflict: ``network.subnet_overlaps``,
            ``network.peer_overlaps``, ``network.too_many_peers``, ``network.joined``, ``network.converting``
        :raises Retryable: ``ovn.unreachable``, ``ovn.busy``; :raises Unknown: ``ovn.not_in_effect``"""
        in_effect = nullcontext() if tenant is None or change == NO_CHANGE else self.in_ovn.changing(tenant)
        with in_effect, self.store.begin() as tx:
            existing = _of_site(tx, name) if tenant is None else own_network(tx, tenant, name)
            network = replace(existing, about=existing.about.changed(description, labels))
            if change != NO_CHANGE:
                if existing.overlay is None:
                    raise InvalidInput(
                        "network.of_ovn", f"of a network of kind {existing.kind} description and labels change",
                        hint="'vgpuctl network create --help' has what is said of networks of kind ovn",
                    )  # fmt: skip
                check_converted(tx, existing)
                network = replace(network, overlay=change.made_of(existing.overlay))
                check_ends(tx, network.overlay)
                check_grown(existing, network, tx.networks.find)
            if (network, network.about) != (existing, existing.about):
                tx.networks.update(network)
                changes = ", ".join(filter(None, (show_changes(description, labels), str(change))))
                self._note(tx, f"set_network {changes}", network, "done")
        return network

    def delete(self, name: str, tenant: str | None = None, *, operator: bool = True) -> None:
        """A network of the tenant, None: of the site. Hosts drop it when they need its subnet, or are given back.

        :raises NotFound: ``network.unknown``; :raises Conflict: ``network.in_use`` with the VMs that are on it
        """
        with self.store.begin() as tx:
            network = _of_site(tx, name) if tenant is None else own_network(tx, tenant, name)
            if network.uplink is not None and not operator:
                raise Denied(
                    "network.bridged", f"network {name} is a bridge of hosts", hint="an operator gives and takes it"
                )
            vms = [vm for vm in tx.vms.list(tenant=network.tenant) if network.name in vm.spec.networks]
            if vms:
                raise _in_use(network, vms)
            check_leads_nowhere(tx, network)
            tx.networks.remove(network.name)
            self._note(tx, "delete_network", network, network.place)

    def _note(self, tx: Transaction, action: str, network: Network, outcome: str) -> None:
        subject = network.short if network.tenant is None else f"{network.tenant}/{network.short}"
        tx.audit.append(at=self.clock.now(), actor=actor(), action=action, subject=subject, outcome=outcome)


def network_for(tx: Transaction, tenant: str, name: str, subnets: IPv4Network = DEFAULT_RANGE) -> Network:
    """Where a VM of the tenant goes that names this network. Its default one may still have to be made, out of
    ``subnets``.

    :raises NotFound: ``network.unknown``: there is none that is its own or shared"""
    try:
        return _usable(tx, tenant, name)
    except NotFound:
        if name != DEFAULT_NAME:
            raise
        return Network(name=own_name(tenant, name), subnet=free_subnet(_taken(tx), subnets))


def _subnets(tx: Transaction, tenant: str | None = None) -> tuple[str, ...]:
    """Of that tenant; None: all. That of a conversion stays taken until nothing has to get it back."""
    ranges = {(network.tenant, network.subnet) for network in tx.networks.list()}
    ranges |= {(each.tenant, str(tx.operations.get(each.id).inputs["subnet"])) for each in conversions(tx)}
    return tuple(subnet for owner, subnet in ranges if subnet is not None and (tenant is None or owner == tenant))


def _host_addresses(tx: Transaction) -> tuple[str, ...]:
    return tuple(host.address for host in tx.hosts.list())


def _taken(tx: Transaction) -> tuple[str, ...]:
    """What no new subnet may overlap."""
    return (*_subnets(tx), *host_networks(_host_addresses(tx)))


def _usable(tx: Transaction, tenant: str, name: str) -> Network:
    """One and the same refusal for what is not there and for what is another's."""
    own = tx.networks.find(own_name(tenant, name))
    if own is not None:
        return own
    of_site = tx.networks.find(name)
    if of_site is not None and of_site.shared and of_site.tenant is None:
        return of_site
    raise _unknown(tx, name, tenant)


def own_network(tx: Transaction, tenant: str, name: str) -> Network:
    """:raises NotFound: ``network.unknown``, ``tenant.unknown``; :raises Conflict: ``network.shared``"""
    network = _usable(tx, known_tenant(tx, tenant).name, name)
    if network.tenant is None:
        hint = f"an operator changes it, with --shared, and deletes it: 'vgpuctl network delete {name} --shared'"
        raise Conflict("network.shared", f"network {name} is shared: it is the site's", hint=hint)
    return network


def _of_site(tx: Transaction, name: str, *, everybody: bool = True) -> Network:
    """``everybody``: who asks may know of all networks, and is told whose one of that name is."""
    network = tx.networks.find(name)
    if network is not None and network.tenant is None:
        return network
    if not everybody:
        raise _unknown(tx, name, None)
    networks = tx.networks.list()
    owners = [str(candidate.tenant) for candidate in networks if candidate.short == name]
    if owners:
        hint = f"tenant {owners[0]} has one: --tenant {owners[0]}"
        raise NotFound("network.unknown", f"no network of the site is called {name[:63]!a}", hint=hint)
    raise unknown_network(name, dict.fromkeys(candidate.short for candidate in networks))


def existing_of(tx: Transaction, name: str, tenant: str | None, is_same: Callable[[Network], bool]) -> Network | None:
    """The network that is asked for again. :raises Conflict: ``network.exists``: another one has the name"""
    existing = tx.networks.find(name if tenant is None else own_name(tenant, name))
    if existing is None:
        _check_name_free(tx, name, tenant)
    elif not is_same(existing):
        raise _exists(name)
    return existing


def _check_name_free(tx: Transaction, name: str, tenant: str | None) -> None:
    """:raises Conflict: ``network.exists``"""
    for other in tx.networks.list():
        meets = other.tenant is not None if tenant is None else other.shared
        if other.short == name and meets:
            raise _exists(name)


def _check_bridge_free(tx: Transaction, uplink: Uplink) -> None:
    """:raises Conflict: ``network.bridge_taken``: two networks that are one would keep no tenants apart"""
    for other in tx.networks.list():
        if other.uplink == uplink:
            whose = other.short if other.tenant is None else f"{other.short} of tenant {other.tenant}"
            hint = "a bridge is one network: take another VLAN, or remove that network first"
            raise Conflict("network.bridge_taken", f"{uplink} is network {whose} already", hint=hint)


def _check_number(tx: Transaction, network: Network) -> None:
    """:raises Conflict: ``network.too_many``; :raises QuotaExceeded: ``quota.exceeded``"""
    tenant = str(network.tenant)
    more_within_quota(tx, tenant, network_amounts(network))
    if sum(known.tenant == tenant for known in tx.networks.list()) >= MAX_OF_TENANT:
        hint = f"delete one that no VM is on; 'vgpuctl network list --tenant {tenant}' shows them"
        message = f"tenant {tenant} has {MAX_OF_TENANT} networks, and no tenant has more"
        raise Conflict("network.too_many", message, hint=hint)


def _exists(name: str) -> Conflict:
    return Conflict(
        "network.exists",
        f"there is already a network {name}: of the tenant with another subnet, or one that it would be confused with",
        hint="choose another name; 'vgpuctl network list' shows them",
    )


def _in_use(network: Network, vms: list[Vm]) -> Conflict:
    names = [vm.spec.name if network.tenant else vm.full_name for vm in vms]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    message = f"VMs are on network {network.short}: {', '.join(names[:_SHOWN])}{more}"
    return Conflict("network.in_use", message, hint="delete them first")


def _unknown(tx: Transaction, name: str, tenant: str | None) -> NotFound:
    """``tenant``: whose networks may be named beside the shared ones."""
    usable = [
        each.short for each in tx.networks.list() if each.shared or (tenant is not None and each.tenant == tenant)
    ]
    return unknown_network(name, usable)
