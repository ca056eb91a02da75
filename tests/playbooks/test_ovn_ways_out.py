# SPDX-License-Identifier: Apache-2.0
"""Ways out of networks of kind ovn and floating addresses, by real programs of OVN: three hosts, of which two lead to
an outside network, and what VMs and machines outside send each other."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from orchestrator.adapters.ovn.databases import OvnDatabases
from orchestrator.adapters.ovn.northbound import OvnNorthbound
from orchestrator.core.floating_addresses import FloatingAddress
from orchestrator.core.northbound.networks import Card, card_rows, network_rows
from orchestrator.core.northbound.outside import address_rows, rows_out
from orchestrator.core.northbound.rows import OvnRow, difference, operations_of
from orchestrator.core.overlay import OvnNetwork, Port, ProviderPlace, WayOut
from orchestrator.core.provider_networks import KnownChassis, gateways_of
from orchestrator.core.vms.network import Network
from orchestrator.core.vms.vm import Vm
from tests.contract.store.test_store import vm
from tests.playbooks.ovn_machines import Machines, namespaces_of
from tests.playbooks.test_ovn_traffic import UDP, Guest, Site, eventually, hosts_in_ovn

PROVIDER = ProviderPlace(physical="physnet1", vlan=None, gateway="192.0.2.1", first="192.0.2.100", last="192.0.2.199")
OUTSIDE = Network(name="outside", overlay=OvnNetwork(id="outside", subnets=("192.0.2.0/24",), provider=PROVIDER))
OUT = WayOut(network="outside", address="192.0.2.100")
BLUE = OvnNetwork(id="blue", subnets=("10.0.0.0/24",), out=OUT)
NETWORK = Network(name="acme.blue", overlay=BLUE)
WEB = Card(vm="web", name="web", number=0, addresses=("10.0.0.5",), hosts=("gpu-1",))
DB = Card(vm="db", name="db", number=0, addresses=("10.0.0.6",), hosts=("gpu-3",))
STRAIGHT = Card(vm="straight", name="straight", number=0, addresses=("192.0.2.150",), hosts=("gpu-2",))
GATEWAYS = ("gpu-2", "gpu-3")
CHASSIS = tuple(KnownChassis(name=name, mappings=("physnet1",), gateway=True) for name in GATEWAYS)
FLOATING = FloatingAddress(address="192.0.2.120", network="outside", tenant="acme", vm="web", card_network="acme.blue")


@dataclass(frozen=True)
class Outside:
    """``world``: a process on the outside network, as 192.0.2.1."""

    site: Site
    made: Machines
    world: Guest

    def write(self, *rows: OvnRow) -> None:
        ovn = self.site.ovn
        with OvnNorthbound(endpoints=(ovn.socket("northbound"),), trust=lambda: None).open() as session:
            session.change(operations_of(difference(rows, session.read(rows), "site")))

    def lead(self, name: str) -> None:
        """The floating address to that VM."""
        cards = {"web": WEB, "db": DB}
        known = {each: _with_port(each, card.addresses[0]) for each, card in cards.items()}
        self.write(*address_rows([replace(FLOATING, vm=name)], known, {NETWORK.name: NETWORK}))

    def seen_as(self, guest: Guest) -> str:
        """Whom the machine outside has a packet of the guest's from."""
        words = [*namespaces_of(self.world.holder), sys.executable, "-c"]
        listening = subprocess.Popen(
            [*words, f"{UDP}one.bind(('', 6900)); print(one.recvfrom(9)[1][0])"], stdout=subprocess.PIPE, text=True,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        for _ in range(4):
            time.sleep(0.5)
            guest.python(f"{UDP}one.sendto(b'here', ('{PROVIDER.gateway}', 6900))")
        return listening.communicate(timeout=30)[0].strip()


def _with_port(name: str, address: str) -> Vm:
    return replace(vm(name), id=name, ports=(Port(network=NETWORK.name, address=address),))


@pytest.fixture(scope="module")
def outside() -> Iterator[Outside]:
    with hosts_in_ovn(3) as (made, site):
        made.run("ip link add out type bridge; ip address add 192.0.2.1/24 dev out; ip link set out up")
        for name in GATEWAYS:
            machine = site.hosts[name]
            made.lead_outside(machine)
            machine.run("ovs-vsctl", "add-br", "br-ex", "--", "set", "bridge", "br-ex", "datapath_type=netdev",
                        "--", "add-port", "br-ex", "eth1", "--", "set", "open_vswitch", ".",
                        "external_ids:ovn-bridge-mappings=physnet1:br-ex",
                        "external_ids:ovn-cms-options=enable-chassis-as-gw")  # fmt: skip
        begun = Outside(site, made, Guest(WEB, made.world))
        begun.write(
            *network_rows(OUTSIDE, OUTSIDE.overlay or BLUE), *network_rows(NETWORK, BLUE),
            *rows_out(BLUE, OUTSIDE, CHASSIS),
            *(row for card in (WEB, DB) for row in card_rows(NETWORK, BLUE, card)),
            *card_rows(OUTSIDE, OUTSIDE.overlay or BLUE, STRAIGHT),
        )  # fmt: skip
        for card in (WEB, DB):
            guest = site.guests[card.vm] = site.plug(card.hosts[0], card)
            assert guest.run("ip route add default via 10.0.0.1").returncode == 0
        site.guests["straight"] = site.plug("gpu-2", STRAIGHT)
        assert eventually(lambda: site.guests["web"].reaches(PROVIDER.gateway), 60), site.hosts["gpu-2"].logs()
        yield begun


def test_what_vms_send_out_comes_from_the_networks_own_address(outside: Outside) -> None:
    assert outside.seen_as(outside.site.guests["web"]) == OUT.address
    assert outside.seen_as(outside.site.guests["db"]) == OUT.address
    assert not outside.world.reaches(WEB.addresses[0])


def test_a_vm_may_be_on_the_provider_network_itself(outside: Outside) -> None:
    straight = outside.site.guests["straight"]
    assert eventually(lambda: straight.reaches(PROVIDER.gateway))
    assert eventually(lambda: outside.world.reaches(STRAIGHT.addresses[0]))
    assert eventually(lambda: straight.reaches(OUT.address))


def test_a_floating_address_leads_to_one_vm_and_then_to_the_other(outside: Outside) -> None:
    outside.lead("web")
    assert eventually(lambda: outside.world.reaches(FLOATING.address))
    assert outside.seen_as(outside.site.guests["web"]) == FLOATING.address
    began = time.monotonic()
    outside.lead("db")
    assert eventually(lambda: outside.seen_as(outside.site.guests["db"]) == FLOATING.address, 10)
    assert time.monotonic() - began <= 10
    assert outside.site.guests["web"].run("ip link set eth0 down").returncode == 0
    assert outside.world.reaches(FLOATING.address)  # by the other one alone
    web = outside.site.guests["web"]
    web.takes(WEB.addresses[0])
    assert web.run("ip route add default via 10.0.0.1").returncode == 0
    assert outside.seen_as(web) == OUT.address


def test_the_southbound_tells_which_hosts_lead_outside(outside: Outside) -> None:
    ovn = outside.site.ovn
    reading = OvnDatabases(
        northbound=(ovn.socket("northbound"),), southbound=(ovn.socket("southbound"),), trust=lambda: None
    ).read()
    has = {each.name: (each.mappings, each.gateway) for each in reading.chassis}
    assert has == {"gpu-1": ((), False), **dict.fromkeys(GATEWAYS, (("physnet1",), True))}


def test_another_gateway_takes_over_what_a_lost_one_carried(outside: Outside) -> None:
    """The last test here: the host stays lost."""
    web, priorities = outside.site.guests["web"], gateways_of(CHASSIS, "physnet1", BLUE.id)
    carries = max(priorities, key=lambda name: priorities[name])
    number = outside.site.hosts[carries].name
    outside.made.run(f"ip link set {number} down; ip link set {number}o down")
    began = time.monotonic()
    assert eventually(lambda: web.reaches(PROVIDER.gateway), 30)
    assert time.monotonic() - began <= 20
    assert outside.seen_as(web) == OUT.address
