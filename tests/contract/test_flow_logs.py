# SPDX-License-Identifier: Apache-2.0
"""The flow log of a network from the request to what OVN's own ovn-controller logged of packets, and back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.adapters.ovn.northbound import OvnNorthbound
from orchestrator.agent.readings.flow_log import FlowLog
from orchestrator.core.domain_xml.interface import mac_address
from orchestrator.core.errors import Conflict, InvalidInput, NotFound
from orchestrator.core.hosts.bridges import Bridge
from orchestrator.core.northbound.groups import group_key
from orchestrator.core.northbound.rows import row_uuid
from orchestrator.core.overlay import FlowLog as Wanted
from orchestrator.core.overlay import NewOvnNetwork, OvnNetworkChange, port_id
from orchestrator.core.readings.flows import Flow
from orchestrator.core.readings.frame import HostFrame, frame_from_dict, frame_to_dict
from orchestrator.core.security_groups import NamedUse, SecurityRule
from orchestrator.core.vms.vm import Vm
from orchestrator.services.northbound import compare
from orchestrator.services.readings.kept import KeptReadings
from orchestrator.services.readings.networks import NetworkFlows, NetworkReadingService
from tests.fakes.control_plane import T4_HOST, ControlPlane, control_plane, create_vm, group_on
from tests.fakes.ovn_chassis import ovn_chassis
from tests.fakes.ovn_databases import RealOvn

Shown = tuple[str, str, str | None, int | None, bool, str, str]
NOW = 1_800_000_000.0
RULE = SecurityRule(direction="in", protocol="tcp", first_port=5432, last_port=5432, group="web")


@pytest.fixture
def plane(tmp_path: Path, ovn: RealOvn) -> Iterator[ControlPlane]:
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
    yield made
    made.store.close()


def _logs(plane: ControlPlane, what: Wanted) -> None:
    plane.services.networks.change("blue", "default", None, {}, OvnNetworkChange(flow_log=what))


def _vm(plane: ControlPlane, name: str) -> Vm:
    return plane.services.vms.get("default", name)


def _differ(plane: ControlPlane) -> list[str]:
    assert plane.world.northbound is not None
    with plane.world.northbound.open() as session:
        return [change.words for change in compare(plane.store, session) if "default/default" not in change.words]


def _told(plane: ControlPlane, *flows: Flow, taken_at: float = NOW, since_s: float = 3600.0) -> NetworkFlows:
    """When a host has sent these alone."""
    kept = KeptReadings(plane.world.clock)
    kept.receive(T4_HOST, frame_from_dict(frame_to_dict(HostFrame(taken_at, (), (), flows))))
    service = NetworkReadingService(readings=replace(plane.services.readings, kept=kept))
    return service.flows("default", "blue", since_s)


def _shown(told: NetworkFlows) -> list[Shown]:
    return sorted(
        (each.flow.direction, each.vm, each.other, each.flow.port, each.flow.refused, each.group, str(each.rule))
        for each in told.flows
    )


OUT = "out any"
SEEN: list[Shown] = [
    ("in", "db", "web", 80, True, "db", "None"), ("in", "db", "web", 5432, False, "db", str(RULE)),
    ("out", "web", "db", 80, False, "web", OUT), ("out", "web", "db", 5432, False, "web", OUT),
]  # fmt: skip

LOGS: tuple[tuple[Wanted, list[Shown]], ...] = (
    ("off", []), ("all", SEEN), ("refused", SEEN[:1]), ("allowed", SEEN[1:]),
)  # fmt: skip


def test_what_was_refused_and_allowed_is_told_by_the_rule_that_said_so(
    plane: ControlPlane, ovn: RealOvn, tmp_path: Path
) -> None:
    with ovn_chassis(tmp_path / "chassis", ovn, T4_HOST) as chassis:
        web, db = (
            chassis.plug(port_id(vm.id, 0), mac_address(vm.id, 0), f"{vm.ports[0].address}/8")
            for vm in (_vm(plane, "web"), _vm(plane, "db"))
        )
        db.serve(5432, 80)
        address, log = _vm(plane, "db").ports[0].address, FlowLog(tmp_path / "chassis/controller")
        ovn.nbctl("--wait=hv", "--timeout=60", "sync")
        assert log.read() == ()
        for what, wanted in LOGS:
            _logs(plane, what)
            assert _differ(plane) == []
            ovn.nbctl("--wait=hv", "--timeout=60", "sync")
            log.read()
            assert (web.reaches(address, 5432), web.reaches(address, 80)) == (True, False)
            time.sleep(0.5)
            assert _shown(_told(plane, *log.read(), taken_at=time.time())) == wanted, what
        _logs(plane, "off")
        assert ovn.nbctl("--bare", "--columns=name", "list", "meter").strip() == ""


def _flow(plane: ControlPlane) -> Flow:
    """A refused packet at db's card."""
    rule = str(row_uuid("ACL", f"{group_key(*group_on(plane, 'db'))} drop in"))
    return Flow(
        at=NOW - 10, rule=rule, direction="in", refused=True, packets=3, card=mac_address(_vm(plane, "db").id, 0),
        source="10.0.0.200", target=_vm(plane, "db").ports[0].address, protocol="tcp", port=22,
    )  # fmt: skip


def test_a_host_is_believed_of_its_own_cards_and_of_rules_that_exist(plane: ControlPlane) -> None:
    _logs(plane, "refused")
    flow, web = _flow(plane), mac_address(_vm(plane, "web").id, 1)
    told = _told(plane, flow, replace(flow, card=web), replace(flow, rule="0" * 36), replace(flow, at=NOW - 4000))
    assert _shown(told) == [("in", "db", None, 22, True, "db", "None")]
    assert (told.refused_packets, told.silent_hosts, told.flow_log) == (3, 0, "refused")
    assert _told(plane, flow, since_s=5).flows == ()
    assert plane.services.network_readings.flows("default", "blue", 3600.0).silent_hosts == 1
    _logs(plane, "allowed")
    assert _told(plane, flow).flows == ()
    _logs(plane, "off")
    assert _told(plane, flow).flow_log == "off"


def test_flow_logs_are_of_networks_over_all_hosts(plane: ControlPlane) -> None:
    networks, read = plane.services.networks, plane.services.network_readings
    networks.add("nat", None, "default")
    with pytest.raises(InvalidInput) as refused:
        networks.change("nat", "default", None, {}, OvnNetworkChange(flow_log="all"))
    assert refused.value.code == "network.of_ovn"
    with pytest.raises(NotFound):
        read.flows("default", "never", 3600.0)
    networks.add("office", None)
    with pytest.raises(Conflict) as shared:
        read.traffic("default", "office")
    assert shared.value.code == "network.shared"
