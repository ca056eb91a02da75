# SPDX-License-Identifier: Apache-2.0
"""Packets between cards on two hosts of OVN, by the rows that we write: Open vSwitch in user space, cards in network
namespaces."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from orchestrator.adapters.ovn.northbound import OvnNorthbound
from orchestrator.core.domain_xml.interface import mac_address
from orchestrator.core.northbound.networks import Card, card_rows, network_rows
from orchestrator.core.northbound.rows import difference, operations_of
from orchestrator.core.overlay import OvnNetwork, port_id
from orchestrator.core.vms.network import Network
from tests.fakes.ovn_databases import RealOvn, real_ovn
from tests.playbooks.ovn_machines import Machine, Machines, machines, namespaces_of

SUBNETS = ("10.0.0.0/24", "10.0.1.0/24")
BLUE, RED = ((Network(name=f"{tenant}.net"), OvnNetwork(id=tenant, subnets=SUBNETS)) for tenant in ("blue", "red"))
WEB = Card(vm="web", name="web", number=0, addresses=("10.0.0.5",), hosts=("gpu-1",))
DB = Card(vm="db", name="db", number=0, addresses=("10.0.0.6",), hosts=("gpu-2",))
FAR = Card(vm="far", name="far", number=0, addresses=("10.0.1.7",), hosts=("gpu-2",))
OTHER = Card(vm="other", name="db", number=0, addresses=("10.0.0.6",), hosts=("gpu-1",))
LONELY = Card(vm="lonely", name="lonely", number=0, addresses=("10.0.0.8",), hosts=("gpu-2",))
"""The last two are the other tenant's, in the same range."""


_PING = """
import os, socket, struct, sys
own = os.getpid() % 0x4000  # what was asked before under one id goes on where it went, whatever NAT says by now
sent = struct.pack("!BBHHH", 8, 0, 0xFFFF - (0x0800 + own + 1), own, 1)
one = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
one.settimeout(1)
one.sendto(sent, (sys.argv[1], 0))
while True:
    answer, (sender, _) = one.recvfrom(100)
    if sender == sys.argv[1] and answer[20] == 0:
        print("heard")
        break
"""
UDP = """
import socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.setsockopt(socket.SOL_SOCKET, 11, 1)  # SO_NO_CHECK
one.settimeout(4)
"""


@dataclass(frozen=True)
class Guest:
    """``holder``: a process in its network namespace, where its card is ``eth0``."""

    card: Card
    holder: int

    def run(self, script: str, limit_s: int = 60) -> subprocess.CompletedProcess[str]:
        words = [*namespaces_of(self.holder), "sh", "-c", script]
        return subprocess.run(words, capture_output=True, text=True, timeout=limit_s)

    def reaches(self, address: str) -> bool:
        """By an ICMP echo: what has a checksum that the network card is to write would be wrong here."""
        return self.python(_PING, address).stdout == "heard\n"

    def python(self, script: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = [*namespaces_of(self.holder), sys.executable, "-c", script, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def takes(self, address: str, mac: str | None = None) -> None:
        """With a route to what is beyond its subnet, as DHCP tells it."""
        router = address.rpartition(".")[0] + ".1"
        mac = mac_address(self.card.vm) if mac is None else mac
        done = self.run(
            "ip address flush dev eth0; ip neighbour flush dev eth0; ip link set eth0 down; "
            f"ip link set eth0 address {mac} up; ip address add {address}/24 dev eth0; "
            f"ip route add 10.0.0.0/8 via {router}"
        )
        assert done.returncode == 0, done.stderr


@dataclass(frozen=True)
class Site:
    ovn: RealOvn
    hosts: dict[str, Machine]
    guests: dict[str, Guest]

    def write(self, network: tuple[Network, OvnNetwork], *cards: Card) -> None:
        with OvnNorthbound(endpoints=(self.ovn.socket("northbound"),), trust=lambda: None).open() as session:
            known = [replace(card, owned=session.owns_names) for card in cards]
            rows = [*network_rows(*network), *(row for card in known for row in card_rows(*network, card))]
            session.change(operations_of(difference(rows, session.read(rows), "site")))

    def plug(self, host: str, card: Card) -> Guest:
        """A card into that host's integration bridge, as libvirt does."""
        machine, tap = self.hosts[host], f"{card.vm}-{host[-1]}"
        words = [
            *namespaces_of(machine.holder),
            "unshare",
            "--net",
            "sh",
            "-c",
            "ip link set lo up; echo $$; exec sleep 900",
        ]
        began = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert began.stdout is not None
        inner = began.stdout.readline().strip()
        machine.run("ip", "link", "add", tap, "type", "veth", "peer", "name", "eth0", "netns", inner)
        machine.run("ip", "link", "set", tap, "up")
        port = f"external_ids:iface-id={port_id(card.vm, card.number)}"
        machine.run("ovs-vsctl", "add-port", "br-int", tap, "--", "set", "interface", tap, port)
        guest = Guest(card, _child(began.pid))
        guest.takes(card.addresses[0])
        return guest


def _child(pid: int) -> int:
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(children[0])
    return pid


def eventually(holds: Callable[[], bool], limit_s: float = 30.0) -> bool:
    until = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True


def begin(machine: Machine, name: str, southbound: str) -> None:
    """A host of OVN: its address is on a bridge in user space, where the tunnels of that datapath begin."""
    machine.run("sh", str(machine.root / "unpacks/openvswitch-switch"))
    machine.run("ovs-vsctl", "add-br", "br-phy", "--", "set", "bridge", "br-phy", "datapath_type=netdev",
                "--", "add-port", "br-phy", "eth0")  # fmt: skip
    machine.run("sh", "-c", f"ip address flush dev eth0; ip address add {machine.address}/24 dev br-phy; "
                "ip link set br-phy up")  # fmt: skip
    ids = {"system-id": name, "ovn-remote": southbound, "ovn-encap-type": "geneve", "ovn-encap-ip": machine.address}
    machine.run(
        "ovs-vsctl", "set", "open_vswitch", ".", *(f'external_ids:{key}="{value}"' for key, value in ids.items())
    )
    machine.run("ovn-controller", "--pidfile", "--detach", f"--log-file={machine.root / 'log/controller'}")


@contextmanager
def hosts_in_ovn(hosts: int) -> Iterator[tuple[Machines, Site]]:
    """So many, named gpu-1 and so on, without guests."""
    with tempfile.TemporaryDirectory(prefix="ovn") as directory, machines(Path(directory)) as made:
        (Path(directory) / "central").mkdir()
        with real_ovn(Path(directory) / "central") as ovn:
            begun = {f"gpu-{number}": made.add(number + 10) for number in range(1, hosts + 1)}
            for name, machine in begun.items():
                begin(machine, name, ovn.socket("southbound"))
            yield made, Site(ovn, begun, {})


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with hosts_in_ovn(2) as (_, begun):
        begun.write(BLUE, WEB, DB, FAR)
        begun.write(RED, OTHER, LONELY)
        for card in (WEB, DB, FAR, OTHER, LONELY):
            begun.guests[card.vm] = begun.plug(card.hosts[0], card)
        assert eventually(lambda: begun.guests["web"].reaches(DB.addresses[0])), begun.hosts["gpu-1"].logs()
        yield begun


def test_vms_of_a_network_meet_over_hosts_and_subnets_and_others_do_not(site: Site) -> None:
    web, other = site.guests["web"], site.guests["other"]
    assert web.reaches(DB.addresses[0])
    assert eventually(lambda: web.reaches(FAR.addresses[0]), 10)
    assert mac_address("db") in web.run("ip neighbour").stdout  # not the other tenant's of that address
    assert eventually(lambda: other.reaches(LONELY.addresses[0]))
    assert not web.reaches(LONELY.addresses[0])
    assert not other.reaches(WEB.addresses[0])


def test_an_address_that_is_anothers_does_not_pass(site: Site) -> None:
    web = site.guests["web"]
    try:
        web.takes("10.0.0.9")
        assert not web.reaches(DB.addresses[0])
        web.takes(WEB.addresses[0], mac="52:54:00:00:00:01")
        assert not web.reaches(DB.addresses[0])
    finally:
        web.takes(WEB.addresses[0])
    assert eventually(lambda: web.reaches(DB.addresses[0]))


def test_dhcp_gives_a_card_its_own_address_and_names_are_known(site: Site) -> None:
    web = site.guests["web"]
    lease = f"{site.ovn.root}/lease"
    done = web.run(
        f"touch {lease}; dhclient -1 -d -v -lf {lease} -pf {lease}.pid -sf /bin/true eth0 & "
        f"for n in $(seq 100); do grep -q renew {lease} && break; sleep 0.1; done; kill $!; cat {lease}"
    )
    assert "fixed-address 10.0.0.5;" in done.stdout, done.stdout + done.stderr
    assert {"option interface-mtu 1442;", "option domain-name-servers 10.0.0.1;"} <= set(
        re.findall(r"option [a-z-]+ [0-9.]+;", done.stdout)
    )
    question = "000101000001000000000000" + "02646200" + "00010001"  # db, A
    asked = (
        f"{UDP}one.sendto(bytes.fromhex('{question}'), ('10.0.0.1', 53)); print(socket.inet_ntoa(one.recv(512)[-4:]))"
    )
    assert eventually(lambda: web.python(asked).stdout.strip() == DB.addresses[0], 10)


def test_resolvers_of_guests_know_names_and_are_not_put_off_by_what_is_not_there(site: Site) -> None:
    web, settings = site.guests["web"], site.ovn.root / "resolv.conf"
    settings.write_text("nameserver 10.0.0.1\nsearch net.blue.internal\n")
    assert web.run("ethtool -K eth0 tx off").returncode == 0  # checksums that the datapath in user space writes not
    for name in ("db", "db.net.blue.internal"):
        asked = f"mount --bind {settings} /etc/resolv.conf && timeout 4 getent ahosts {name}"
        known = web.run(f"unshare --mount sh -c '{asked}'")
        assert known.stdout.startswith(f"{DB.addresses[0]} "), (name, known)


def test_questions_for_other_names_go_to_the_server_that_guests_are_told(site: Site) -> None:
    words = [*namespaces_of(site.guests["db"].holder), sys.executable, "-u", "-c"]
    serves = f"{UDP}one.settimeout(30); one.bind(('', 53)); print('there'); one.sendto(b'asked', one.recvfrom(512)[1])"
    with subprocess.Popen([*words, serves], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "there\n"
        question = "000101000001000000000000" + "07" + b"example".hex() + "00001c0001"  # AAAA
        asked = (
            f"{UDP}one.sendto(bytes.fromhex('{question}'), ('{DB.addresses[0]}', 53)); print(one.recv(512).decode())"
        )
        assert site.guests["web"].python(asked).stdout == "asked\n"


def test_a_guest_answers_nobody_as_a_dhcp_server(site: Site) -> None:
    for port, passes in ((66, True), (67, False)):
        words = [*namespaces_of(site.guests["db"].holder), sys.executable, "-c"]
        listening = subprocess.Popen(
            [*words, f"{UDP}one.settimeout(12); one.bind(('', 6800)); print(one.recv(9).decode())"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        while listening.poll() is None:
            time.sleep(0.5)
            site.guests["web"].python(f"{UDP}one.bind(('', {port})); one.sendto(b'heard', ('{DB.addresses[0]}', 6800))")
        assert (listening.communicate(timeout=30)[0].strip() == "heard") is passes, port


def test_a_card_that_moves_is_reached_where_it_goes(site: Site) -> None:
    web, there = site.guests["web"], site.guests["db"]
    site.write(BLUE, replace(DB, hosts=("gpu-2", "gpu-1")))
    here = site.plug("gpu-1", DB)
    site.write(BLUE, replace(DB, hosts=("gpu-1",)))
    assert there.run("ip link set eth0 down").returncode == 0
    assert eventually(lambda: web.reaches(DB.addresses[0]))
    assert here.reaches(WEB.addresses[0])


def test_traffic_goes_on_without_the_central_server_and_when_its_northbound_is_lost(site: Site) -> None:
    web = site.guests["web"]
    for name in ("northd", "northbound", "southbound"):
        site.ovn.end(name)
    time.sleep(3)
    assert web.reaches(DB.addresses[0])
    assert web.reaches(FAR.addresses[0])
