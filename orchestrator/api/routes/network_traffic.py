# SPDX-License-Identifier: Apache-2.0
"""What passes on a tenant's network."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query

from orchestrator.api.routes.security_groups import SecurityRuleAnswer
from orchestrator.api.schemas.base import AnswerBody, NameInPath, TenantInPath
from orchestrator.api.services import ServicesOf
from orchestrator.core.overlay import FlowLog
from orchestrator.core.readings.flows import KEPT_S
from orchestrator.core.security_groups import Direction
from orchestrator.services.readings.networks import NetworkFlow, NetworkFlows, NetworkTraffic


class NetworkTrafficAnswer(AnswerBody):
    """Counters of the cards on a network, together; each began when its VM was started last."""

    vms: tuple[str, ...]
    """Names of VMs of which something was read lately."""
    silent: tuple[str, ...]
    """Names of the others there: stopped, or their host is not heard."""
    received_bytes: float | None
    """By VMs; null: no card was read."""
    sent_bytes: float | None
    """By VMs."""
    received_packets: float | None
    """By VMs."""
    sent_packets: float | None
    """By VMs."""
    received_drops: float | None
    """Packets to VMs that were dropped."""
    sent_drops: float | None
    """Packets of VMs that were dropped."""

    @classmethod
    def of(cls, traffic: NetworkTraffic) -> NetworkTrafficAnswer:
        numbers = {name: traffic.numbers.get(name) for name in cls.model_fields if name not in {"vms", "silent"}}
        return cls(vms=traffic.vms, silent=traffic.silent, **numbers)


class NetworkFlowAnswer(AnswerBody):
    """Packets that were alike but for the port that they came from."""

    at: datetime
    """Of the last of them, by the host's clock."""
    direction: Direction
    """in: they came to the VM; out: from it."""
    vm: str
    """Name of the VM."""
    other: str | None
    """The VM of the network that has the other address; null: none has."""
    source: str
    """IP address."""
    target: str
    """IP address."""
    protocol: str
    """tcp, udp, icmp or another, as Open vSwitch calls it."""
    port: int | None
    """Of the target, of TCP and UDP."""
    refused: bool
    """No rule allowed it, or one refused it."""
    group: str
    """Security group of the rule; of what no rule allowed one of the card's."""
    rule: SecurityRuleAnswer | None
    """Which allowed or refused it; null: no rule allowed it."""
    packets: int
    """At least: of many OVN logs a part."""

    @classmethod
    def of(cls, seen: NetworkFlow) -> NetworkFlowAnswer:
        flow, rule = seen.flow, seen.rule
        return cls(
            at=datetime.fromtimestamp(flow.at, UTC), direction=flow.direction, vm=seen.vm, other=seen.other,
            source=flow.source, target=flow.target, protocol=flow.protocol, port=flow.port, refused=flow.refused,
            group=seen.group, rule=None if rule is None else SecurityRuleAnswer.copied(rule), packets=flow.packets,
        )  # fmt: skip


class NetworkFlowsAnswer(AnswerBody):
    """What the flow log of a network has."""

    flow_log: FlowLog
    """What it takes."""
    flows: tuple[NetworkFlowAnswer, ...]
    """The newest first, 1,000 at most."""
    refused_packets: int
    """Of all of that time."""
    silent_hosts: int
    """Hosts with VMs of the network that are not heard: what they logged is missing."""
    left_out: int
    """Flows of that time that are missing: more came than are kept or shown."""
    whole_since: datetime | None
    """From when on none is missing, by the hosts' clocks; null: of all of that time."""

    @classmethod
    def of(cls, flows: NetworkFlows) -> NetworkFlowsAnswer:
        return cls(
            flow_log=flows.flow_log, flows=tuple(map(NetworkFlowAnswer.of, flows.flows)),
            refused_packets=flows.refused_packets, silent_hosts=flows.silent_hosts, left_out=flows.left_out,
            whole_since=None if flows.whole_since is None else datetime.fromtimestamp(flows.whole_since, UTC),
        )  # fmt: skip


router = APIRouter(prefix="/tenants/{tenant}/networks/{name}", tags=["networks"])


@router.get("/traffic")
def traffic(tenant: TenantInPath, name: NameInPath, services: ServicesOf) -> NetworkTrafficAnswer:
    """Get a network's traffic. What the cards of its VMs have received and sent, together."""
    return NetworkTrafficAnswer.of(services.network_readings.traffic(tenant, name))


@router.get("/flows")
def flows(
    tenant: TenantInPath, name: NameInPath, services: ServicesOf,
    since_s: Annotated[float, Query(gt=0, le=KEPT_S, description="Of the last so many seconds")] = KEPT_S,
) -> NetworkFlowsAnswer:  # fmt: skip
    """Get a network's flows. What its flow log has of connections, and by which rules they were judged."""
    return NetworkFlowsAnswer.of(services.network_readings.flows(tenant, name, since_s))
