# SPDX-License-Identifier: Apache-2.0
"""Flows of all networks that log them, each once, for whoever hands them on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from orchestrator.core.readings.flows import Flow
from orchestrator.core.vms.network import Network
from orchestrator.services.readings.kept import KeptReadings
from orchestrator.services.readings.networks import NetworkFlow, believed_flows, flow_cards, flow_rules, logs_flows
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

_Flows = Mapping[tuple[str, str], list[Flow]]
"""By host and card."""


@dataclass(frozen=True, kw_only=True)
class FlowOnRecord:
    """Of a tenant's network."""

    tenant: str
    network: str
    host: str
    seen: NetworkFlow


@dataclass(frozen=True, kw_only=True)
class FlowsOnRecord:
    """What came since."""

    flows: tuple[FlowOnRecord, ...]
    """The oldest first."""
    left_out: Mapping[str, int]
    """By host, flows that came and were not kept until now: more than there is room for."""
    until: Mapping[str, int]


@dataclass(kw_only=True)
class FlowFeed:
    """For one reader and one thread. ``is_ours``: whether this controller tells what a host logs, that no two do."""

    store: Store
    kept: KeptReadings
    is_ours: Callable[[str], bool]
    _until: Mapping[str, int] = field(default_factory=dict)

    def new(self) -> FlowsOnRecord:
        """The same again until :meth:`passed_on`, and what has come meanwhile."""
        new = self.kept.new_flows(self._until)
        ours = {host: of_host for host, of_host in new.items() if self.is_ours(host)}
        by_card: dict[tuple[str, str], list[Flow]] = defaultdict(list)
        for host, of_host in ours.items():
            for flow in of_host.flows:
                by_card[host, flow.card].append(flow)
        flows = self._on_record(by_card) if by_card else []
        return FlowsOnRecord(
            flows=tuple(sorted(flows, key=lambda each: each.seen.flow.at)),
            left_out={host: of_host.left_out for host, of_host in ours.items() if of_host.left_out},
            until={host: of_host.until for host, of_host in new.items()},
        )

    def passed_on(self, flows: FlowsOnRecord) -> None:
        """They are not told again."""
        self._until = flows.until

    def _on_record(self, by_card: _Flows) -> list[FlowOnRecord]:
        with self.store.read() as tx:
            logging = [network for network in tx.networks.list() if logs_flows(network)]
            tenants = {network.tenant for network in logging if network.tenant is not None}
            return [flow for tenant in sorted(tenants) for flow in self._of_tenant(tx, tenant, logging, by_card)]

    def _of_tenant(
        self, tx: Transaction, tenant: str, logging: list[Network], by_card: _Flows
    ) -> Iterator[FlowOnRecord]:
        vms, groups = tx.vms.list(tenant=tenant), tx.security_groups.list(tenant)
        for network in logging:
            if network.tenant == tenant:
                rules = flow_rules(self.store.site, network, groups, tx.networks.find)
                cards = flow_cards(network, (vm for vm in vms if network.name in vm.spec.networks))
                for card, vm in cards.by_mac.items():
                    for seen in believed_flows(by_card.get((vm.host, card), ()), vm.host, cards, rules):
                        yield FlowOnRecord(tenant=tenant, network=network.short, host=vm.host, seen=seen)
