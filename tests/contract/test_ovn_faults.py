# SPDX-License-Identifier: Apache-2.0
"""Whatever happens to OVN, to a host or to the controller while networks are worked on: no card is unguarded, and after
the next comparison OVN is as the database says, without an address twice. Databases of OVN's own."""

from __future__ import annotations

import signal
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from orchestrator.adapters.ovn.northbound import OvnNorthbound
from orchestrator.adapters.ovn.ovsdb import OvsdbClient, unreachable
from orchestrator.core.errors import Retryable, VgpuctlError
from orchestrator.core.hosts.bridges import Bridge
from orchestrator.core.northbound.rows import Existing, Operation, Placed, row_uuid
from orchestrator.core.overlay import NewOvnNetwork, port_id
from orchestrator.core.security_groups import NamedUse, SecurityRule
from orchestrator.ports.overlay import NorthboundSession
from orchestrator.services.messages import MoveVm
from orchestrator.services.northbound import NorthboundKeeper, compare
from tests.fakes.control_plane import ControlPlane, control_plane, create_vm
from tests.fakes.fake_host import Crash, FakeHosts, no_fault
from tests.fakes.fake_machine import FakeMachine, t4
from tests.fakes.ovn_databases import RealOvn

TABLES: Final = ("logical_switch", "logical_router", "dhcp_options", "dns", "port_group")
HTTP = SecurityRule(direction="in", protocol="tcp", first_port=80, last_port=80)
Change = Callable[[Sequence[Operation]], None]


@dataclass
class StruckNorthbound:
    """A northbound that something happens to. ``where``: which server is asked instead."""

    ovn: RealOvn
    where: str | None = None
    at_change: list[Callable[[Change, Sequence[Operation]], None]] = field(default_factory=list)
    """Each is done once, instead of a change."""

    @contextmanager
    def open(self) -> Iterator[NorthboundSession]:
        where = self.where or self.ovn.socket("northbound")
        with OvnNorthbound(endpoints=(where,), trust=lambda: None).open() as session:
            yield _Struck(session, self.at_change)

    def empty(self) -> None:
        for table in TABLES:
            self.ovn.nbctl("--all", "destroy", table)


@dataclass(frozen=True)
class _Struck:
    session: NorthboundSession
    at_change: list[Callable[[Change, Sequence[Operation]], None]]

    @property
    def owns_names(self) -> bool:
        return self.session.owns_names

    def read(self, rows: Iterable[Placed]) -> Existing:
        return self.session.read(rows)

    def read_all(self, site: str, tables: Mapping[str, Sequence[str]]) -> Existing:
        return self.session.read_all(site, tables)

    def change(self, operations: Sequence[Operation]) -> None:
        act = self.at_change.pop(0) if self.at_change and operations else None
        if act is None:
            self.session.change(operations)
        else:
            act(self.session.change, operations)


@dataclass(frozen=True)
class Site:
    plane: ControlPlane
    northbound: StruckNorthbound
    tmp: Path

    def repair(self) -> None:
        NorthboundKeeper(
            store=self.plane.store, northbound=self.northbound, clock=self.plane.world.clock, leads=lambda: True
        ).repair()

    def carry_out(self, act: Callable[[], object]) -> None:
        """By controllers that follow each other: one that was killed is followed by the next."""
        with suppress(VgpuctlError, Crash):
            act()
        for _ in range(5):
            begun = list(self.plane.engine.waiting)
            try:
                self.plane.engine.drain()
            except Crash:
                for operation in begun:
                    self.plane.engine.submit(operation)
            else:
                return
        raise AssertionError("killed again and again")


@pytest.fixture
def site(tmp_path: Path, ovn: RealOvn, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """web runs, db is stopped, and old was deleted; green was deleted with its VM, and nobody has compared since."""
    monkeypatch.setattr("orchestrator.adapters.ovn.northbound._CONNECT_S", 0.2)
    northbound = StruckNorthbound(ovn)
    bridges = (Bridge(name="br-int", kind="openvswitch"),)
    hosts = FakeHosts({f"{name}.test": FakeMachine(machine_id=name, gpus=[t4()], bridges=bridges) for name in "ab"})
    plane = control_plane(tmp_path, hosts=hosts, northbound=northbound)
    for name in "ab":
        plane.add_host(name)
    plane.services.networks.add_overlay("blue", NewOvnNetwork(subnets=("10.0.0.0/29",)), "default")
    plane.services.security_groups.create("default", "web", [HTTP])
    for name in ("web", "db"):
        plane.services.vms.create(replace(create_vm(name, start=name == "web"), network="blue"))
    plane.engine.drain()
    yield Site(plane, northbound, tmp_path)
    plane.store.close()


def _lost(site: Site) -> None:
    site.northbound.ovn.nbctl("--all", "destroy", "dns", "--", "--all", "destroy", "dhcp_options")
    site.repair()


WORK: Final[Mapping[str, Callable[[Site], object]]] = {
    "create": lambda site: site.plane.services.vms.create(replace(create_vm("more"), network="blue")),
    "start": lambda site: site.plane.services.vms.start("default", "db"),
    "delete": lambda site: site.plane.services.vms.delete("default", "db"),
    "move": lambda site: site.plane.services.moving.move(
        MoveVm(name="db", tenant="default", cold=True, force=True)
    ),
    "a group's rule": lambda site: site.plane.services.security_groups.change_rules(
        "default", "default", [HTTP], []
    ),
    "a VM's group": lambda site: site.plane.services.security_groups.change_uses(
        "default", "web", [NamedUse(vm="web")]
    ),
    "the comparison": _lost,
}  # fmt: skip


def _refused(change: Change, _: Sequence[Operation]) -> None:
    change([{"op": "insert", "table": "Never", "row": {}}])


def _leaves(_: Change, operations: Sequence[Operation]) -> None:
    raise unreachable(f"it went away before {len(operations)} operations")


def _answer_lost(change: Change, operations: Sequence[Operation]) -> None:
    change(operations)
    raise unreachable("it went away before its answer")


def _half(change: Change, operations: Sequence[Operation]) -> None:
    """Somebody takes back the other half at once."""
    change(operations[: len(operations) // 2])
    raise unreachable("half of it is lost")


def _twice(change: Change, operations: Sequence[Operation]) -> None:
    change(operations)
    change(operations)


def _killed_before(_: Change, operations: Sequence[Operation]) -> None:
    raise Crash(len(operations))


def _killed_after(change: Change, operations: Sequence[Operation]) -> None:
    change(operations)
    raise Crash


@contextmanager
def _at_change(site: Site, act: Callable[[Change, Sequence[Operation]], None], times: int = 1) -> Iterator[None]:
    site.northbound.at_change += [act] * times
    yield
    site.northbound.at_change.clear()


@contextmanager
def _asked_at(site: Site, where: str) -> Iterator[None]:
    site.northbound.where = where
    yield
    site.northbound.where = None


@contextmanager
def _silent(site: Site) -> Iterator[None]:
    place = site.tmp / "silent"
    with socket.socket(socket.AF_UNIX) as listening, _asked_at(site, f"unix:{place}"):
        listening.bind(str(place))
        listening.listen(64)
        yield


@contextmanager
def _northd_stopped(site: Site) -> Iterator[None]:
    northd = site.northbound.ovn.processes["northd"]
    northd.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        northd.send_signal(signal.SIGCONT)


@contextmanager
def _agent_away(site: Site) -> Iterator[None]:
    site.plane.hosts.strike = lambda *_: Retryable("host.unreachable", "it is away")
    yield
    site.plane.hosts.strike = no_fault


@contextmanager
def _emptied(site: Site, *, before: bool) -> Iterator[None]:
    def act(change: Change, operations: Sequence[Operation]) -> None:
        for moment in (True, False):
            if moment == before:
                site.northbound.empty()
            if moment:
                change(operations)

    with _at_change(site, act):
        yield


FAULTS: Final[Mapping[str, Callable[[Site], Any]]] = {
    "OVN is away": lambda site: _asked_at(site, "unix:/nowhere"),
    "OVN is silent": _silent,
    "OVN refuses": lambda site: _at_change(site, _refused, 99),
    "OVN leaves": lambda site: _at_change(site, _leaves),
    "OVN leaves for good": lambda site: _at_change(site, _leaves, 99),
    "the answer is lost": lambda site: _at_change(site, _answer_lost),
    "half of it is lost": lambda site: _at_change(site, _half),
    "it is written twice": lambda site: _at_change(site, _twice),
    "OVN was emptied": lambda site: _emptied(site, before=True),
    "OVN is emptied then": lambda site: _emptied(site, before=False),
    "northd stands": _northd_stopped,
    "the agent is away": _agent_away,
    "killed before": lambda site: _at_change(site, _killed_before),
    "killed after": lambda site: _at_change(site, _killed_after),
}


PAIRS: Final = [
    (work, fault)
    for row, work in enumerate(WORK)
    for column, fault in enumerate(FAULTS)
    if work == "create" or (row + column) % 2
]
"""Each fault in the midst of a create, and of about half of the other works."""


@pytest.mark.parametrize(("work", "fault"), PAIRS)
def test_after_any_fault_ovn_is_as_the_database_says(site: Site, work: str, fault: str) -> None:
    with FAULTS[fault](site):
        site.carry_out(lambda: WORK[work](site))
        if fault != "half of it is lost":
            assert _unguarded(site) == []
    site.repair()
    assert _unguarded(site) == []
    site.carry_out(lambda: None)
    site.repair()
    with site.northbound.open() as session:
        assert [change.words for change in compare(site.plane.store, session)] == []
    ports = _rows(site, "Logical_Switch_Port", "type", "addresses")
    addresses = Counter(str(port["addresses"]).split()[-1] for port in ports if port["type"] != "router")
    with site.plane.store.read() as tx:
        stored = [port.address for vm in tx.vms.list(tenant="default") for port in vm.ports]
    assert (len(set(stored)), max(addresses.values())) == (len(stored), 1)


def test_a_row_that_ovn_refuses_keeps_no_other_from_being_written(site: Site, ovn: RealOvn) -> None:
    """Names of ports are unique over all switches (ovn-nb(5)): one of another's is in the way for good."""
    vm = site.plane.services.vms.get("default", "web").id
    name = port_id(vm, 0)
    site.northbound.empty()
    ovn.nbctl("ls-add", "theirs", "--", "lsp-add", "theirs", name)
    with pytest.raises(Retryable, match=f"OVN refuses this: .*{vm}/0") as refused:
        site.repair()
    assert (refused.value.code, name in str(refused.value.details)) == ("ovn.refused", True)
    with site.northbound.open() as session:
        assert {f"{vm}/0" in change.words for change in compare(site.plane.store, session)} == {True}
    ovn.nbctl("ls-del", "theirs")
    site.repair()
    with site.northbound.open() as session:
        assert compare(site.plane.store, session) == ()


def test_a_card_is_on_the_network_that_it_was_attached_to_last_alone(site: Site, ovn: RealOvn) -> None:
    cards = site.plane.services.network_cards
    for name, subnet in (("aside", "10.2.0.0/24"), ("east", "10.3.0.0/24"), ("west", "10.4.0.0/24")):
        site.plane.services.networks.add_overlay(name, NewOvnNetwork(subnets=(subnet,)), "default")

    web = str(row_uuid("Logical_Switch_Port", f"{site.plane.services.vms.get('default', 'web').id}/1"))

    def is_on() -> list[str]:
        switches = _rows(site, "Logical_Switch", "name", "ports")
        return sorted(switch["name"] for switch in switches if web in map(str, _several(switch["ports"])))

    for before, after in (("east", "aside"), ("aside", "west")):
        site.carry_out(partial(cards.attach, "default", "web", before))
        with _asked_at(site, "unix:/nowhere"):
            site.carry_out(partial(cards.detach, "default", "web", before))
        assert is_on() == [f"default.{before}"]
        site.carry_out(partial(cards.attach, "default", "web", after))
        assert is_on() == [f"default.{after}"]
        site.carry_out(partial(cards.detach, "default", "web", after))
    site.carry_out(lambda: cards.attach("default", "web", "east"))
    site.repair()
    ovn.nbctl("add", "logical_switch", "default.blue", "ports", str(web))
    site.repair()
    assert is_on() == ["default.east"]


def _unguarded(site: Site) -> list[str]:
    """Cards that nothing is kept from."""
    rules = {
        row["_uuid"]: row["direction"] for row in _rows(site, "ACL", "_uuid", "direction", "action")
        if row["action"] == "drop"
    }  # fmt: skip
    guarded = Counter(
        port
        for group in _rows(site, "Port_Group", "ports", "acls")
        if {rules.get(rule) for rule in _several(group["acls"])} >= {"from-lport", "to-lport"}
        for port in _several(group["ports"])
    )
    ports = _rows(site, "Logical_Switch_Port", "_uuid", "type", "name")
    return [port["name"] for port in ports if port["type"] != "router" and not guarded[port["_uuid"]]]


def _rows(site: Site, table: str, *columns: str) -> list[dict[str, Any]]:
    with OvsdbClient(site.northbound.ovn.socket("northbound"), None) as client:
        (rows,) = client.select("OVN_Northbound", (table, columns))
    return rows


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
