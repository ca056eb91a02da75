# SPDX-License-Identifier: Apache-2.0
"""Security groups from the request to OVN's own northbound, what ovn-trace says then, and packets that pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from orchestrator.adapters.ovn.databases import OvnDatabases
from orchestrator.adapters.ovn.northbound import OvnNorthbound
from orchestrator.adapters.ovn.ovsdb import unreachable
from orchestrator.adapters.ovn.tracing import OvnTracer
from orchestrator.core.domain_xml.interface import mac_address
from orchestrator.core.errors import Conflict, InvalidInput, Retryable, Unknown
from orchestrator.core.hosts.bridges import Bridge
from orchestrator.core.northbound.groups import group_key, port_group
from orchestrator.core.northbound.rows import Existing, Operation, Placed, row_uuid
from orchestrator.core.overlay import NewOvnNetwork, port_id
from orchestrator.core.security_groups import NamedUse, SecurityRule
from orchestrator.core.vms.network import short_name
from orchestrator.core.vms.vm import Vm
from orchestrator.ports.overlay import Northbound, NorthboundSession
from orchestrator.services.network_paths import NetworkPath, NetworkPathService
from orchestrator.services.northbound import NorthboundKeeper, compare
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm, group_on
from tests.fakes.ovn_chassis import ovn_chassis
from tests.fakes.ovn_databases import RealOvn

POSTGRES = SecurityRule(direction="in", protocol="tcp", first_port=5432, last_port=5432, group="web")
WEB, DB = NamedUse(vm="web"), NamedUse(vm="db", network="blue")


@dataclass(frozen=True)
class Leaving:
    """A connection that ends when something is to be written."""

    session: NorthboundSession
    owns_names: bool = False

    def read(self, rows: Iterable[Placed]) -> Existing:
        return self.session.read(rows)

    def read_all(self, site: str, tables: Mapping[str, Sequence[str]]) -> Existing:
        return self.session.read_all(site, tables)

    def change(self, operations: Sequence[Operation]) -> None:
        raise unreachable(f"it went away before {len(operations)} operations")


@dataclass
class MaybeAway:
    """A northbound that may be away, or go away when it is written to."""

    ovn: RealOvn
    away: bool = False
    leaves: bool = False

    @contextmanager
    def open(self) -> Iterator[NorthboundSession]:
        where = "unix:/nowhere" if self.away else self.ovn.socket("northbound")
        with OvnNorthbound(endpoints=(where,), trust=lambda: None).open() as session:
            yield Leaving(session) if self.leaves else session


@dataclass
class Meanwhile:
    """A northbound in which something else happens once: after all was read, or before the first change."""

    northbound: Northbound
    when: str
    happens: list[Callable[[], object]]
    owns_names: bool = False

    @contextmanager
    def open(self) -> Iterator[NorthboundSession]:
        with self.northbound.open() as self._session:
            yield self

    def read(self, rows: Iterable[Placed]) -> Existing:
        return self._session.read(rows)

    def read_all(self, site: str, tables: Mapping[str, Sequence[str]]) -> Existing:
        existing = self._session.read_all(site, tables)
        self._now("read")
        return existing

    def change(self, operations: Sequence[Operation]) -> None:
        self._now("change")
        self._session.change(operations)

    def _now(self, what: str) -> None:
        while what == self.when and self.happens:
            self.happens.pop()()


@pytest.fixture
def northbound(ovn: RealOvn) -> MaybeAway:
    return MaybeAway(ovn)


@pytest.fixture
def plane(tmp_path: Path, northbound: MaybeAway) -> Iterator[ControlPlane]:
    """Two VMs, web and db, on a network over all hosts."""
    made = control_plane(tmp_path, northbound=northbound)
    for host in (T4_HOST, L40S_HOST):
        made.machine(host).bridges = (Bridge(name="br-int", kind="openvswitch"),)
        made.add_host(host)
    made.services.networks.add_overlay("blue", NewOvnNetwork(subnets=("10.0.0.0/24", "10.1.0.0/24")), "default")
    for name in ("web", "db"):
        made.services.vms.create(replace(create_vm(name, profile="GRID T4-2Q"), network="blue"))
    made.engine.drain()
    yield made
    made.store.close()


def _vm(plane: ControlPlane, name: str) -> Vm:
    return plane.services.vms.get("default", name)


def _grouped(plane: ControlPlane) -> None:
    """db lets in what comes from web to PostgreSQL."""
    groups = plane.services.security_groups
    groups.create("default", "web")
    groups.create("default", "db", [POSTGRES])
    groups.change_uses("default", "web", [WEB])
    groups.change_uses("default", "db", [DB])


def _paths(plane: ControlPlane, ovn: RealOvn) -> Callable[..., NetworkPath]:
    ovn.nbctl("--wait=sb", "--timeout=30", "sync")
    with plane.store.read() as tx:
        vms = tx.vms.list(tenant="default")
    for vm in vms:
        for number, _ in enumerate(vm.ports):
            _plug(ovn, vm.host, port_id(vm.id, number))
    tracer = OvnTracer(southbound=(ovn.socket("southbound"),), keys=tuple)
    south = OvnDatabases(northbound=(), southbound=(ovn.socket("southbound"),), trust=lambda: None)
    service = NetworkPathService(store=plane.store, tracer=tracer, overlay=south)
    return lambda sender, receiver, port=5432, protocol="tcp": service.explain(
        "default", sender, receiver, protocol, port
    )


def _plug(ovn: RealOvn, host: str, port: str) -> None:
    """As ovn-controller of the host tells it."""
    ovn.sbctl("--may-exist", "chassis-add", host, "geneve", "127.0.0.1")
    ovn.sbctl("--may-exist", "lsp-bind", port, host, "--", "set", "port_binding", port, "up=true")


def _said(path: NetworkPath) -> tuple[bool, list[str]]:
    return path.arrives, [f"{each.direction} {each.group}: {each.rule or 'refused'}" for each in path.judgements]


def _differ(plane: ControlPlane) -> list[str]:
    assert plane.world.northbound is not None
    with plane.world.northbound.open() as session:
        return [change.words for change in compare(plane.store, session)]


def _members(ovn: RealOvn, plane: ControlPlane, group: str) -> set[str]:
    name = port_group(*group_on(plane, group))
    uuids = ovn.nbctl("--bare", "--columns=ports", "find", "port_group", f'name="{name}"').split()
    return {ovn.nbctl("get", "logical_switch_port", uuid, "name").strip().strip('"') for uuid in uuids}


def test_a_card_without_a_group_is_in_the_default_one(plane: ControlPlane, ovn: RealOvn) -> None:
    ports = {name: port_id(_vm(plane, name).id, 0) for name in ("web", "db")}
    assert _members(ovn, plane, "default") == set(ports.values())
    assert _differ(plane) == []
    assert _said(_paths(plane, ovn)("web", "db")) == (
        True, ["out default: out any", "in default: in any from group default"],
    )  # fmt: skip
    _grouped(plane)
    assert {group: _members(ovn, plane, group) for group in ("default", "web", "db")} == {
        "default": set(), "web": {ports["web"]}, "db": {ports["db"]},
    }  # fmt: skip
    plane.services.security_groups.change_uses("default", "web", [], [WEB])
    assert _members(ovn, plane, "default") == {ports["web"]}


def test_what_passes_is_explained_by_the_rule_that_says_so(plane: ControlPlane, ovn: RealOvn) -> None:
    _grouped(plane)
    path = _paths(plane, ovn)
    assert _said(path("web", "db")) == (True, ["out web: out any", "in db: in tcp 5432 from group web"])
    assert _said(path("web", "db", 5433)) == (False, ["out web: out any", "in db: refused"])
    assert _said(path("web", "db", None, "icmp")) == (False, ["out web: out any", "in db: refused"])
    assert _said(path("db", "web")) == (False, ["out db: refused"])
    found, ports = path("web", "db"), [_vm(plane, name).ports[0].address for name in ("web", "db")]
    assert [found.network, found.sender, found.receiver] == ["blue", *ports]
    with pytest.raises(InvalidInput):
        path("web", "db", None)
    plane.services.vms.create(create_vm("alone", profile="GRID T4-2Q"))
    plane.engine.drain()
    with pytest.raises(Conflict) as refused:
        path("web", "alone")
    assert refused.value.code == "network.not_together"
    with pytest.raises(InvalidInput) as refused_itself:
        path("web", "web")
    assert refused_itself.value.code == "network.same_vm"
    plane.services.vms.stop("default", "db")
    plane.engine.drain()
    with pytest.raises(Conflict) as refused_stopped:
        path("web", "db")
    assert refused_stopped.value.code == "vm.not_running"


def test_a_card_that_no_host_has_set_up_is_reached_by_nobody(plane: ControlPlane, ovn: RealOvn) -> None:
    path, db = _paths(plane, ovn), _vm(plane, "db")
    for word, why in (
        ("up=false", f"{db.host} has not set the card of db up yet"),
        ("chassis=[]", f"no host has the card of db: OVN does not know {db.host}, or is not at work there"),
    ):
        ovn.sbctl("set", "port_binding", port_id(db.id, 0), word)
        assert (path("web", "db").arrives, path("web", "db").obstacles) == (False, (why,))


def test_a_vm_with_a_group_on_every_card_gets_none_where_nothing_keeps_to_it(plane: ControlPlane) -> None:
    plane.services.networks.add("nat", None, "default")
    _grouped(plane)
    with pytest.raises(Conflict) as refused:
        plane.services.network_cards.attach("default", "web", "nat")
    assert refused.value.code == "group.network_kind"
    assert "apply web --vm web --network blue" in str(refused.value.hint)
    one = NamedUse(vm="web", network="blue")
    plane.services.security_groups.change_uses("default", "web", [one], [WEB])
    plane.services.network_cards.attach("default", "web", "nat")
    plane.engine.drain()
    assert [short_name(name) for name in _vm(plane, "web").spec.networks] == ["blue", "nat"]
    assert plane.services.network_cards.attach("default", "db", "nat").operation is not None


def test_rules_come_and_go_in_ovn_with_the_change(plane: ControlPlane, ovn: RealOvn) -> None:
    _grouped(plane)
    groups = plane.services.security_groups
    pings = SecurityRule(direction="in", protocol="icmp", remote="10.0.0.0/15")
    range_of = SecurityRule(direction="in", protocol="udp", first_port=1000, last_port=2000, remote="0.0.0.0/0")
    for add, remove in (([pings, range_of], []), ([], [pings]), ([], [range_of, POSTGRES]), ([POSTGRES], [])):
        groups.change_rules("default", "db", add, remove)
        assert [words for words in _differ(plane) if "default" not in words] == []
        path = _paths(plane, ovn)
        assert path("web", "db", None, "icmp").arrives == (pings in add)
        assert path("web", "db", 1500, "udp").arrives == (range_of in groups.get("default", "db").group.rules)
        assert path("web", "db").arrives == (POSTGRES in groups.get("default", "db").group.rules)


def test_a_new_vm_has_the_groups_of_its_network_from_the_beginning(plane: ControlPlane, ovn: RealOvn) -> None:
    plane.services.security_groups.create("default", "all")
    plane.services.security_groups.change_uses("default", "all", [NamedUse(network="blue")])
    plane.services.vms.create(replace(create_vm("more", profile="GRID T4-2Q"), network="blue"))
    plane.engine.drain()
    assert len(_members(ovn, plane, "all")) == 3
    plane.services.vms.delete("default", "more")
    plane.engine.drain()
    assert len(_members(ovn, plane, "all")) == 2
    assert [words for words in _differ(plane) if "default/default" not in words] == []


def test_while_ovn_does_not_answer_nothing_is_changed(plane: ControlPlane, northbound: MaybeAway) -> None:
    _grouped(plane)
    groups = plane.services.security_groups
    northbound.away = True
    with pytest.raises(Retryable) as refused:
        groups.change_rules("default", "db", [], [POSTGRES])
    assert refused.value.code == "ovn.unreachable"
    assert groups.get("default", "db").group.rules == (POSTGRES,)
    assert "an operator" in (refused.value.hint or "")
    assert groups.describe("default", "db", "ours", {}).group.about.description == "ours"
    northbound.away, northbound.leaves = False, True
    with pytest.raises(Unknown) as stored:
        groups.change_rules("default", "db", [], [POSTGRES])
    assert stored.value.code == "ovn.not_in_effect"
    northbound.leaves = False
    assert groups.get("default", "db").group.rules == ()
    _repair(plane)
    assert _differ(plane) == []


def test_changes_that_last_leave_room_for_others(plane: ControlPlane) -> None:
    of_groups = plane.services.security_groups.in_ovn
    with ExitStack() as held:
        for number in range(16):
            held.enter_context(of_groups.changing("default" if number == 0 else f"red-{number}"))
            if number == 0:
                _busy("tenant default's", of_groups.changing("default"))
        _busy("16 changes", of_groups.changing("blue"))
    plane.services.security_groups.create("default", "later")
    plane.services.security_groups.change_uses("default", "later", [WEB])


def _busy(words: str, change: AbstractContextManager[object]) -> None:
    with pytest.raises(Retryable) as refused, change:
        pass
    assert (refused.value.code, words in refused.value.message) == ("ovn.busy", True)


def test_only_so_many_packets_are_traced_at_once_and_servers_are_not_named(ovn: RealOvn) -> None:
    def keys() -> Sequence[str]:
        """While it is asked for them a packet is being traced: until that is refused, another one."""
        tracer.trace("never", "ip4")
        return ()

    tracer = OvnTracer(southbound=(ovn.socket("southbound"),), keys=keys)
    for _ in range(2):  # each has given back its place
        with pytest.raises(Retryable) as refused:
            tracer.trace("never", "ip4")
        assert refused.value.code == "ovn.busy"
    with pytest.raises(Retryable) as failed:
        OvnTracer(southbound=("never:there",), keys=tuple).trace("never", "ip4")
    assert (failed.value.code, "never" in failed.value.message) == ("ovn.unreachable", False)
    assert "never:there" in (failed.value.details or "")


def _repair(plane: ControlPlane, when: str = "", *happens: Callable[[], object]) -> None:
    assert plane.world.northbound is not None
    northbound = Meanwhile(plane.world.northbound, when, list(happens))
    NorthboundKeeper(store=plane.store, northbound=northbound, clock=plane.world.clock, leads=lambda: True).repair()


def test_a_group_that_comes_into_use_while_all_is_compared_is_in_force(plane: ControlPlane, ovn: RealOvn) -> None:
    groups, web = plane.services.security_groups, {port_id(_vm(plane, "web").id, 0)}
    groups.create("default", "shut", [])
    groups.change_uses("default", "shut", [WEB])
    groups.change_uses("default", "shut", [], [WEB])
    _repair(plane, "change", lambda: groups.change_uses("default", "shut", [WEB]))
    assert _members(ovn, plane, "shut") == web
    assert _said(_paths(plane, ovn)("db", "web")) == (False, ["out default: out any", "in shut: refused"])
    groups.change_uses("default", "shut", [], [WEB])
    _repair(plane)
    assert "shut" not in ovn.nbctl("--bare", "--columns=name", "list", "port_group")


def test_a_vm_that_comes_while_all_is_compared_keeps_nothing_else_from_being_put_right(
    plane: ControlPlane, ovn: RealOvn
) -> None:
    ovn.nbctl("--all", "destroy", "dns")

    def comes() -> None:
        plane.services.vms.create(replace(create_vm("new", profile="GRID T4-2Q"), network="blue"))
        plane.engine.drain()

    _repair(plane, "read", comes)
    assert _vm(plane, "new").state == "running"
    assert len(ovn.nbctl("--bare", "--columns=_uuid", "list", "dns").split()) == 3
    assert _differ(plane) == []


DRIFT: Mapping[str, tuple[str, ...]] = {
    "no rules": ("clear", "port_group", "{db}", "acls"),
    "another port is in it": ("pg-set-ports", "{db}", "{web_port}"),
    "no port is in it": ("clear", "port_group", "{db}", "ports"),
    "one is lost": ("pg-del", "{web}"),
    "a rule says something else": ("set", "acl", "{rule}", "action=drop", "priority=3"),
    "a rule is another's": ("--type=port-group", "acl-del", "{db}", "to-lport"),
    "all are lost": ("--all", "destroy", "port_group"),
}


@pytest.mark.parametrize("what", sorted(DRIFT))
def test_what_somebody_else_changed_is_put_right(plane: ControlPlane, ovn: RealOvn, what: str) -> None:
    _grouped(plane)
    _repair(plane)  # the default group has no card any more
    assert _differ(plane) == []
    names = {name: port_group(*group_on(plane, name)) for name in ("web", "db")}
    names["rule"] = str(row_uuid("ACL", f"{group_key(*group_on(plane, 'db'))} {POSTGRES}"))
    ovn.nbctl("ls-add", "theirs", "--", "lsp-add", "theirs", "their-port", "--", "pg-add", "their-group", "their-port")
    ovn.nbctl(*(word.format(**names, web_port=port_id(_vm(plane, "web").id, 0)) for word in DRIFT[what]))
    assert _differ(plane) != []
    _repair(plane)
    assert _differ(plane) == []
    assert _said(_paths(plane, ovn)("web", "db")) == (True, ["out web: out any", "in db: in tcp 5432 from group web"])
    assert what == "all are lost" or "their-group" in ovn.nbctl("--bare", "--columns=name", "list", "port_group")


def test_packets_pass_as_the_rules_say_and_stop_when_they_go(plane: ControlPlane, ovn: RealOvn, tmp_path: Path) -> None:
    _grouped(plane)
    groups = plane.services.security_groups
    with ovn_chassis(tmp_path / "chassis", ovn, T4_HOST) as chassis:
        web, db = (
            chassis.plug(port_id(vm.id, 0), mac_address(vm.id, 0), f"{vm.ports[0].address}/8")
            for vm in (_vm(plane, "web"), _vm(plane, "db"))
        )
        db.serve(5432, 80)
        address = _vm(plane, "db").ports[0].address
        ovn.nbctl("--wait=hv", "--timeout=60", "sync")
        assert (web.reaches(address, 5432), web.reaches(address, 80)) == (True, False)
        for add, remove, wanted in (([HTTP], [], True), ([], [HTTP], False)):
            began = time.monotonic()
            groups.change_rules("default", "db", add, remove)
            while web.reaches(address, 80, 0.3) != wanted:
                assert time.monotonic() - began < 30
        assert web.reaches(address, 5432)


HTTP = SecurityRule(direction="in", protocol="tcp", first_port=80, last_port=80)
