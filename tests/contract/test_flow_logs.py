# SPDX-License-Identifier: Apache-2.0
"""The flow log of a network from the request to what OVN's own ovn-controller logged of packets, and back."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.agent.readings.flow_log import FlowLog
from orchestrator.api.reading_metrics import encoded, tenant_families
from orchestrator.core.domain_xml.interface import mac_address
from orchestrator.core.errors import Conflict, InvalidInput, NotFound
from orchestrator.core.overlay import FlowLog as Wanted
from orchestrator.core.overlay import OvnNetworkChange, port_id
from orchestrator.core.readings.flows import NO_CARD, Flow, LoggedFlows
from orchestrator.core.readings.frame import HostFrame, frame_from_dict, frame_to_dict
from orchestrator.services.northbound import compare
from orchestrator.services.readings.kept import KeptReadings
from orchestrator.services.readings.networks import NetworkFlows, NetworkReadingService
from tests.fakes.control_plane import T4_HOST, ControlPlane
from tests.fakes.flow_logs import NOW, RULE, logged_network, refused_flow, set_flow_log, vm_of
from tests.fakes.frames import vm_reading
from tests.fakes.ovn_chassis import ovn_chassis
from tests.fakes.ovn_databases import RealOvn
from tools.tree import ROOT

Shown = tuple[str, str, str | None, int | None, bool, str, str]


@pytest.fixture
def plane(tmp_path: Path, ovn: RealOvn) -> Iterator[ControlPlane]:
    with logged_network(tmp_path, ovn) as made:
        yield made


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
            for vm in (vm_of(plane, "web"), vm_of(plane, "db"))
        )
        db.serve(5432, 80)
        address, log = vm_of(plane, "db").ports[0].address, FlowLog(tmp_path / "chassis/controller")
        ovn.nbctl("--wait=hv", "--timeout=60", "sync")
        assert log.read() == LoggedFlows()
        for what, wanted in LOGS:
            set_flow_log(plane, what)
            assert _differ(plane) == []
            ovn.nbctl("--wait=hv", "--timeout=60", "sync")
            log.read()
            assert (web.reaches(address, 5432), web.reaches(address, 80)) == (True, False)
            time.sleep(0.5)
            assert _shown(_told(plane, *log.read().flows, taken_at=time.time())) == wanted, what
        set_flow_log(plane, "off")
        assert ovn.nbctl("--bare", "--columns=name", "list", "meter").strip() == ""


def test_a_host_is_believed_of_its_own_cards_and_of_rules_that_exist(plane: ControlPlane) -> None:
    set_flow_log(plane, "refused")
    flow, web = refused_flow(plane), mac_address(vm_of(plane, "web").id, 1)
    told = _told(plane, flow, replace(flow, card=web), replace(flow, rule="0" * 36), replace(flow, at=NOW - 4000))
    assert _shown(told) == [("in", "db", None, 22, True, "db", "None")]
    assert (told.refused_packets, told.silent_hosts, told.flow_log) == (3, 0, "refused")
    assert _told(plane, flow, since_s=5).flows == ()
    assert plane.services.network_readings.flows("default", "blue", 3600.0).silent_hosts == 1
    set_flow_log(plane, "allowed")
    assert _told(plane, flow).flows == ()
    set_flow_log(plane, "off")
    assert _told(plane, flow).flow_log == "off"


def test_an_answer_says_since_when_it_is_whole(plane: ControlPlane) -> None:
    set_flow_log(plane, "refused")
    kept, flow = KeptReadings(plane.world.clock), refused_flow(plane)
    service = NetworkReadingService(readings=replace(plane.services.readings, kept=kept))

    def told(since_s: float, *flows: Flow, at: float, **left_out: int) -> tuple[int, float | None]:
        cards = {"db": flow.card, "any": NO_CARD, "web": mac_address(vm_of(plane, "web").id, 1)}
        counts = {cards[name]: count for name, count in left_out.items()}
        kept.receive(T4_HOST, frame_from_dict(frame_to_dict(HostFrame(at, (), (), flows, (), counts))))
        answer = service.flows("default", "blue", since_s)
        return answer.left_out, answer.whole_since

    assert told(60, at=NOW) == (0, NOW)  # when the host was heard first
    assert told(60, at=NOW + 100, web=7) == (0, None)  # of a card on no network of that name
    assert told(3600, flow, at=NOW + 110, db=3) == (3, NOW + 110)
    assert told(3600, at=NOW + 120, any=2) == (5, NOW + 120)
    assert told(60, at=NOW + 200) == (0, None)
    many = [replace(flow, at=NOW + 210 + number / 1000, port=1 + number) for number in range(500)]
    for begin in (0, 1000, 2000):
        told(60, *(replace(each, port=begin + (each.port or 0)) for each in many), at=NOW + 211)
    assert told(60, at=NOW + 212) == (500, NOW + 210.166)


def test_a_tenants_metrics_have_the_sums_of_its_networks(plane: ControlPlane) -> None:
    set_flow_log(plane, "refused")
    plane.services.networks.add("quiet", None, "default")
    kept, flow, frames = plane.services.readings.kept, refused_flow(plane), []
    for at, count in ((NOW, 1000.0), (NOW + 10, 3000.0)):
        cards = [
            vm_reading(vm_of(plane, name).id, {("vm_network_sent_bytes_total", card): count * factor})
            for name, card, factor in (("db", "0", 1), ("web", "0", 2))
        ]
        frames.append(HostFrame(at, tuple(cards), (), (flow,), (), {flow.card: 4}))
    for frame in frames:
        kept.receive(T4_HOST, frame)
    readings = plane.services.readings
    vms = readings.of_tenant("default")
    sums = plane.services.network_readings.sums("default", vms)
    page, _ = encoded(tenant_families("here", "default", vms, sums), "")
    lines = [line for line in page.decode().splitlines() if line.startswith("vgpuctl_network")]
    blue = 'network="blue",site="here",tenant="default"'
    assert lines == [
        f'vgpuctl_network_bytes_per_second{{direction="sent",{blue}}} 600.0',
        f'vgpuctl_network_flow_packets{{{blue},verdict="allowed"}} 0.0',
        f'vgpuctl_network_flow_packets{{{blue},verdict="refused"}} 6.0',
        f"vgpuctl_network_flows_left_out{{{blue}}} 8.0",
    ]
    written = set(re.findall(r"`(vgpuctl_network_[a-z_]+)", (ROOT / "docs/reference/metrics.md").read_text()))
    assert written == {line.partition("{")[0] for line in lines}


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
