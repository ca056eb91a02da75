# SPDX-License-Identifier: Apache-2.0
"""Rules that refuse, from the request to OVN's own northbound: what ovn-trace says, packets, and the flow log."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from orchestrator.adapters.ovn.databases import OvnDatabases
from orchestrator.adapters.ovn.northbound import OvnNorthbound
from orchestrator.adapters.ovn.tracing import OvnTracer
from orchestrator.agent.readings.flow_log import FlowLog
from orchestrator.core.domain_xml.interface import mac_address
from orchestrator.core.hosts.bridges import Bridge
from orchestrator.core.northbound.groups import GroupOnNetwork, in_use, logged_rules, rows_of_groups
from orchestrator.core.overlay import NewOvnNetwork, OvnNetworkChange, port_id
from orchestrator.core.security_groups import ANYWHERE, NamedUse, SecurityGroup, SecurityRule
from orchestrator.core.vms.vm import Vm
from orchestrator.services.network_paths import NetworkPathService
from orchestrator.services.northbound import compare
from tests.fakes.control_plane import T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.ovn_chassis import Guest, ovn_chassis
from tests.fakes.ovn_databases import RealOvn

SQL = SecurityRule(direction="in", protocol="tcp", first_port=5432, last_port=5432, group="web")
HTTP = SecurityRule(direction="in", protocol="tcp", first_port=80, last_port=80)
NO_SQL = replace(SQL, group=None, remote="10.0.0.0/24", refuse=True)
NOTHING_OUT, NOTHING_IN = replace(ANYWHERE, refuse=True), SecurityRule(direction="in", refuse=True)
_ECHO: Final = """
import socket
listening = socket.create_server(("0.0.0.0", 5432))
print("ready", flush=True)
connection = listening.accept()[0]
while word := connection.recv(9):
    connection.sendall(word)
"""
_TALK: Final = """
import socket, sys
connection = socket.create_connection((sys.argv[1], 5432), timeout=2)
for line in sys.stdin:
    connection.sendall(b"word")
    try:
        print(connection.recv(9) == b"word", flush=True)
    except TimeoutError:
        print(False, flush=True)
"""


@pytest.fixture
def plane(tmp_path: Path, ovn: RealOvn) -> Iterator[ControlPlane]:
    """Two VMs on a network over all hosts; db lets in SQL and HTTP, and the group shut on it has no rule."""
    northbound = OvnNorthbound(endpoints=(ovn.socket("northbound"),), trust=lambda: None)
    made = control_plane(tmp_path, northbound=northbound)
    made.machine(T4_HOST).bridges = (Bridge(name="br-int", kind="openvswitch"),)
    made.add_host(T4_HOST)
    made.services.networks.add_overlay("blue", NewOvnNetwork(subnets=("10.0.0.0/24",)), "default")
    for name in ("web", "db"):
        made.services.vms.create(replace(create_vm(name, profile="GRID T4-2Q"), network="blue"))
    made.engine.drain()
    for name, vm, rules in (("web", "web", None), ("db", "db", [SQL, HTTP]), ("shut", "db", [])):
        made.services.security_groups.create("default", name, rules)
        made.services.security_groups.change_uses("default", name, [NamedUse(vm=vm)])
    yield made
    made.store.close()


def _vm(plane: ControlPlane, name: str) -> Vm:
    return plane.services.vms.get("default", name)


def _rules(plane: ControlPlane, ovn: RealOvn, wait: str = "hv") -> Callable[..., None]:
    def change(group: str, *add: SecurityRule, remove: tuple[SecurityRule, ...] = ()) -> None:
        plane.services.security_groups.change_rules("default", group, add, remove)
        ovn.nbctl(f"--wait={wait}", "--timeout=60", "sync")

    return change


def test_what_one_group_refuses_passes_by_no_other_and_is_explained(plane: ControlPlane, ovn: RealOvn) -> None:
    change, southbound = _rules(plane, ovn, "sb"), (ovn.socket("southbound"),)
    change("db")
    ovn.sbctl("chassis-add", T4_HOST, "geneve", "127.0.0.1")
    for name in ("web", "db"):
        port = port_id(_vm(plane, name).id, 0)
        ovn.sbctl("lsp-bind", port, T4_HOST, "--", "set", "port_binding", port, "up=true")
    paths = NetworkPathService(
        store=plane.store, tracer=OvnTracer(southbound=southbound, keys=tuple),
        overlay=OvnDatabases(northbound=(), southbound=southbound, trust=lambda: None),
    )  # fmt: skip

    def said(port: int) -> tuple[bool, list[str]]:
        path = paths.explain("default", "web", "db", "tcp", port)
        return path.arrives, [f"{each.direction} {each.group}: {each.rule}" for each in path.judgements]

    allowed = True, ["out web: out any", f"in db: {SQL}"]
    assert said(5432) == allowed
    change("shut", NO_SQL)
    assert said(5432) == (False, ["out web: out any", "in shut: refuse in tcp 5432 from 10.0.0.0/24"])
    assert said(80) == (True, ["out web: out any", "in db: in tcp 80"])
    change("web", NOTHING_OUT)
    assert said(80) == (False, ["out web: refuse out any"])
    change("web", remove=(NOTHING_OUT,))
    change("shut", remove=(NO_SQL,))
    assert said(5432) == allowed
    assert plane.world.northbound is not None
    with plane.world.northbound.open() as session:
        assert [each.words for each in compare(plane.store, session) if "default/default" not in each.words] == []


def test_no_rule_keeps_a_guest_from_its_address() -> None:
    shut = SecurityGroup(tenant="red", name="shut", rules=(ANYWHERE, NOTHING_OUT))
    rows = rows_of_groups("s", [GroupOnNetwork(group=shut, network="net")])
    ordered = sorted(((row.columns["priority"], row.key) for row in rows if row.table == "ACL"), reverse=True)
    assert [key.removeprefix("s red/shut net ") for _, key in ordered[:3]] == ["address", "refuse out any", "out any"]


@contextmanager
def _talk(web: Guest, db: Guest, address: str) -> Iterator[Callable[[], bool]]:
    """An open connection: whether a word on it is answered."""
    inside = [
        ["nsenter", f"--target={guest.holder}", "--net", "--mount", "--", sys.executable, "-c", *words]
        for guest, words in ((db, [_ECHO]), (web, [_TALK, address]))
    ]
    with subprocess.Popen(inside[0], stdout=subprocess.PIPE, text=True) as echo:
        assert echo.stdout is not None
        assert echo.stdout.readline() == "ready\n"
        with subprocess.Popen(inside[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as talk:
            assert talk.stdin is not None
            assert talk.stdout is not None

            def answered() -> bool:
                print(file=talk.stdin, flush=True)
                return talk.stdout is not None and talk.stdout.readline() == "True\n"

            yield answered
            talk.kill()
        echo.kill()


def test_packets_stop_where_a_rule_refuses_and_answers_pass(plane: ControlPlane, ovn: RealOvn, tmp_path: Path) -> None:
    change = _rules(plane, ovn)
    plane.services.networks.change("blue", "default", None, {}, OvnNetworkChange(flow_log="refused"))
    with ovn_chassis(tmp_path / "chassis", ovn, T4_HOST) as chassis:
        web, db = (
            chassis.plug(port_id(vm.id, 0), mac_address(vm.id, 0), f"{vm.ports[0].address}/24")
            for vm in (_vm(plane, "web"), _vm(plane, "db"))
        )
        db.serve(80)
        address, log = _vm(plane, "db").ports[0].address, FlowLog(tmp_path / "chassis/controller")
        change("web", NOTHING_IN)
        with _talk(web, db, address) as answered:
            assert answered()
            assert web.reaches(address, 80)
            log.read()
            change("shut", NO_SQL)
            assert not answered()
        assert (web.reaches(address, 5432), web.reaches(address, 80)) == (False, True)
        time.sleep(0.5)
        with plane.store.read() as tx:
            used = [("default", name, "default.blue") for name in ("web", "db", "shut")]
            groups = in_use(tx.security_groups.list("default"), used, tx.networks.find)
        rules = logged_rules(plane.store.site, groups)
        flows = {(flow.direction, flow.port, flow.refused, rules[flow.rule]) for flow in log.read().flows}
        assert flows == {("in", 5432, True, ("shut", NO_SQL))}
