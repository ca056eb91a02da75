# SPDX-License-Identifier: Apache-2.0
"""A network whose flows are on record, with real databases of OVN, and a flow that a host tells of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from orchestrator.adapters.ovn.northbound import OvnNorthbound
from orchestrator.core.domain_xml.interface import mac_address
from orchestrator.core.hosts.bridges import Bridge
from orchestrator.core.northbound.groups import group_key
from orchestrator.core.northbound.rows import row_uuid
from orchestrator.core.overlay import FlowLog, NewOvnNetwork, OvnNetworkChange
from orchestrator.core.readings.flows import Flow
from orchestrator.core.security_groups import NamedUse, SecurityRule
from orchestrator.core.vms.vm import Vm
from tests.fakes.control_plane import T4_HOST, ControlPlane, control_plane, create_vm, group_on
from tests.fakes.ovn_databases import RealOvn

NOW = 1_800_000_000.0
RULE = SecurityRule(direction="in", protocol="tcp", first_port=5432, last_port=5432, group="web")


@contextmanager
def logged_network(tmp_path: Path, ovn: RealOvn) -> Iterator[ControlPlane]:
    """web and db on a network over all hosts; db lets in what comes from web to PostgreSQL."""
    northbound = OvnNorthbound(endpoints=(ovn.socket("northbound"),), trust=lambda: None)
    made = control_plane(tmp_path, northbound=northbound)
    made.machine(T4_HOST).bridges = (Bridge(name="br-int", kind="openvswitch"),)
    made.add_host(T4_HOST)
    services = made.services
    services.networks.add_overlay("blue", NewOvnNetwork(subnets=("10.0.0.0/24",)), "default")
    for name in ("web", "db"):
        services.vms.create(replace(create_vm(name, profile="GRID T4-2Q"), network="blue"))
    made.engine.drain()
    for name, rules in (("web", None), ("db", [RULE])):
        services.security_groups.create("default", name, rules)
        services.security_groups.change_uses("default", name, [NamedUse(vm=name)])
    try:
        yield made
    finally:
        made.store.close()


def set_flow_log(plane: ControlPlane, what: FlowLog) -> None:
    plane.services.networks.change("blue", "default", None, {}, OvnNetworkChange(flow_log=what))


def vm_of(plane: ControlPlane, name: str) -> Vm:
    return plane.services.vms.get("default", name)


def refused_flow(plane: ControlPlane) -> Flow:
    """A refused packet at db's card."""
    rule = str(row_uuid("ACL", f"{group_key(*group_on(plane, 'db'))} drop in"))
    return Flow(
        at=NOW - 10, rule=rule, direction="in", refused=True, packets=3, card=mac_address(vm_of(plane, "db").id, 0),
        source="10.0.0.200", target=vm_of(plane, "db").ports[0].address, protocol="tcp", port=22,
    )  # fmt: skip
