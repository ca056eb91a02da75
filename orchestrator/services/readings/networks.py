# SPDX-License-Identifier: Apache-2.0
"""What passes on a tenant's network: the sum of its cards' counters, and the flows that its log has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from orchestrator.core.domain_xml.interface import mac_address
from orchestrator.core.errors import NotFound
from orchestrator.core.northbound.groups import in_use, logged_rules
from orchestrator.core.overlay import FlowLog
from orchestrator.core.peering import Find
from orchestrator.core.readings.flows import KEPT_S, NO_CARD, Flow, LeftOut
from orchestrator.core.security_groups import DEFAULT_GROUP, SecurityGroup, SecurityRule
from orchestrator.core.vms.network import Network
from orchestrator.core.vms.vm import Vm
from orchestrator.services.networks import own_network
from orchestrator.services.readings.readings import ReadingService, VmReadings

MAX_SHOWN: Final = 1000
"""Flows of an answer, the newest."""
COUNTED: Final = tuple(f"{way}_{what}" for what in ("bytes", "packets", "drops") for way in ("received", "sent"))
"""Of a card, as quantities call it between ``vm_network_`` and ``_total``."""


@dataclass(frozen=True, kw_only=True)
class NetworkTraffic:
    """Counters of the cards on a network, together; each began when its VM was started last."""

    vms: tuple[str, ...]
    """Names of those of which something was read lately."""
    silent: tuple[str, ...]
    """Names of the others there: stopped, or their host is not heard."""
    numbers: Mapping[str, float]
    """By :data:`COUNTED`; what no card had is missing."""


@dataclass(frozen=True, kw_only=True)
class NetworkFlow:
    """In a tenant's words."""

    flow: Flow
    vm: str
    """Whose card it is that the packets reached or left."""
    other: str | None
    """The VM of the network that has the other address; None: none has."""
    group: str
    """Security group whose rule it was; of what no rule allowed one of the card's."""
    rule: SecurityRule | None
    """Which allowed or refused it; None: none allowed it."""


@dataclass(frozen=True, kw_only=True)
class NetworkFlows:
    flow_log: FlowLog
    flows: tuple[NetworkFlow, ...] = ()
    """The newest first."""
    refused_packets: int = 0
    """Of all of them together."""
    allowed_packets: int = 0
    silent_hosts: int = 0
    """Hosts with VMs of the network that are not heard: what they logged is missing."""
    left_out: int = 0
    """Of that time: more came than are kept or shown."""
    whole_since: float | None = None
    """From when on nothing is missing, in seconds since 1970 by hosts' clocks; None: of all of that time."""


@dataclass(frozen=True, kw_only=True)
class NetworkSums:
    """What is counted of a network."""

    name: str
    """What its tenant calls it."""
    bytes_per_s: Mapping[str, float]
    """``received`` and ``sent`` by its VMs, of their hosts' last two frames; what no card had is missing."""
    flows: NetworkFlows | None
    """Of the last hour; None: it has no flow log."""


@dataclass(frozen=True, kw_only=True)
class FlowCards:
    """Of one network: whose each hardware address is, and each IP address."""

    network: Network
    by_mac: Mapping[str, Vm] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class NetworkReadingService:
    """Reads only."""

    readings: ReadingService

    def traffic(self, tenant: str, name: str) -> NetworkTraffic:
        """:raises NotFound: ``network.unknown``, ``tenant.unknown``; :raises Conflict: ``network.shared``"""
        with self.readings.store.read() as tx:
            network = own_network(tx, tenant, name)
        heard, silent, numbers = list[str](), list[str](), defaultdict[str, float](float)
        for read in self.readings.of_tenant(tenant):
            if network.name not in read.vm.spec.networks:
                continue
            card = str(read.vm.spec.networks.index(network.name))
            own = next((item.reading for item in read.readings if item.reading.kind == "vm"), None)
            values = {what: None if own is None else own.get(f"vm_network_{what}_total", card) for what in COUNTED}
            (silent if set(values.values()) == {None} else heard).append(read.vm.spec.name)
            for what, value in values.items():
                if value is not None:
                    numbers[what] += value
        return NetworkTraffic(vms=tuple(heard), silent=tuple(silent), numbers=numbers)

    def flows(self, tenant: str, name: str, since_s: float) -> NetworkFlows:
        """Of the last ``since_s`` seconds by the hosts' clocks, at most :data:`MAX_SHOWN`.

        :raises NotFound: ``network.unknown``, ``tenant.unknown``; :raises Conflict: ``network.shared``"""
        store = self.readings.store
        with store.read() as tx:
            network = own_network(tx, tenant, name)
            if network.overlay is None or network.overlay.flow_log == "off":
                return NetworkFlows(flow_log="off")
            vms = [vm for vm in tx.vms.list(tenant=tenant) if network.name in vm.spec.networks]
            rules = flow_rules(store.site, network, tx.security_groups.list(tenant), tx.networks.find)
        cards = flow_cards(network, vms)
        seen, silent, left_out = list[NetworkFlow](), 0, list[LeftOut]()
        for host, received in self.readings.frames_with_flows({vm.host for vm in vms}).items():
            if received is None:
                silent += 1
                continue
            oldest = received.frame.taken_at - since_s
            seen += believed_flows((flow for flow in received.flows if flow.at >= oldest), host, cards, rules)
            own = (card for card, vm in cards.by_mac.items() if vm.host == host)
            known = (received.flows_left_out.get(card) for card in (NO_CARD, *own))
            left_out += [each for each in known if each is not None and each.at >= oldest]
        seen.sort(key=lambda each: each.flow.at, reverse=True)
        refused = sum(each.flow.packets for each in seen if each.flow.refused)
        allowed = sum(each.flow.packets for each in seen) - refused
        left_out += [LeftOut(each.flow.at, 1) for each in seen[MAX_SHOWN:]]
        return NetworkFlows(
            flow_log=network.overlay.flow_log, flows=tuple(seen[:MAX_SHOWN]), refused_packets=refused,
            allowed_packets=allowed, silent_hosts=silent, left_out=sum(each.flows for each in left_out),
            whole_since=max((each.at for each in left_out), default=None),
        )  # fmt: skip

    def sums(self, tenant: str, vms: Iterable[VmReadings]) -> Iterator[NetworkSums]:
        """Of each network of the tenant, whose VMs these are."""
        known = tuple(vms)
        with self.readings.store.read() as tx:
            networks = [network for network in tx.networks.list() if network.tenant == tenant]
        for network in networks:
            rates = defaultdict[str, float](float)
            for read in known:
                if read.received is not None and network.name in read.vm.spec.networks:
                    card = str(read.vm.spec.networks.index(network.name))
                    last = read.received.last_moment("vm", read.vm.id)
                    for way in ("received", "sent"):
                        rate = last.get((f"vm_network_{way}_bytes_total", card))
                        if rate is not None:
                            rates[way] += rate
            try:
                flows = self.flows(tenant, network.short, KEPT_S) if logs_flows(network) else None
            except NotFound:
                continue  # it went just now
            yield NetworkSums(name=network.short, bytes_per_s=rates, flows=flows)


def logs_flows(network: Network) -> bool:
    return network.overlay is not None and network.overlay.flow_log != "off"


def flow_rules(
    site: str, network: Network, groups: Sequence[SecurityGroup], find: Find
) -> Mapping[str, tuple[str, SecurityRule | None]]:
    """Of its tenant's ``groups``, as :func:`logged_rules`."""
    tenant = str(network.tenant)
    names = {DEFAULT_GROUP, *(group.name for group in groups)}
    return logged_rules(site, in_use(groups, {(tenant, name, network.name) for name in names}, find))


def flow_cards(network: Network, vms: Iterable[Vm]) -> FlowCards:
    """Of these VMs."""
    by_mac = {mac_address(vm.id, vm.spec.networks.index(network.name)): vm for vm in vms}
    names = {port.address: vm.spec.name for vm in by_mac.values() for port in vm.ports if port.network == network.name}
    return FlowCards(network=network, by_mac=by_mac, names=names)


def believed_flows(
    flows: Iterable[Flow], host: str, cards: FlowCards, rules: Mapping[str, tuple[str, SecurityRule | None]]
) -> Iterator[NetworkFlow]:
    """A host is believed of cards that it has, and of rules of now. What another network of the tenant wants on record
    is not shown here."""
    wanted = cards.network.overlay.flow_log if cards.network.overlay is not None else "off"
    for flow in flows:
        vm, judged = cards.by_mac.get(flow.card), rules.get(flow.rule)
        is_wanted = wanted in {"all", "refused" if flow.refused else "allowed"}
        if vm is not None and vm.host == host and judged is not None and is_wanted:
            other = cards.names.get(flow.source if flow.direction == "in" else flow.target)
            yield NetworkFlow(flow=flow, vm=vm.spec.name, other=other, group=judged[0], rule=judged[1])
