# SPDX-License-Identifier: Apache-2.0
"""Packets of IPv6 between cards on two hosts of OVN, by the rows that we write."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from orchestrator.adapters.ovn.northbound import OvnNorthbound
from orchestrator.core.domain_xml.interface import mac_address
from orchestrator.core.northbound.groups import GroupOnNetwork, members_of, rows_of_groups
from orchestrator.core.northbound.joined import rows_joined
from orchestrator.core.northbound.networks import Card, card_rows, network_rows
from orchestrator.core.northbound.rows import OvnRow, difference, operations_of, removal
from orchestrator.core.overlay import NetworkPeer, OvnNetwork
from orchestrator.core.peering import subnets_of_peers
from orchestrator.core.security_groups import SecurityGroup, parse_rule
from orchestrator.core.vms.network import Network
from tests.fakes.ovn_chassis import NO_OFFLOAD
from tests.playbooks.ovn_machines import namespaces_of
from tests.playbooks.test_ovn_traffic import Guest, Site, eventually, hosts_in_ovn

BLUE, RED = (
    Network(
        name=f"{tenant}.net",
        overlay=OvnNetwork(
            id=tenant, subnets=(f"10.0.{number}.0/24", f"fd00:{number}::/64"),
            peers=(NetworkPeer(network=f"{other}.net", id=other, state="joined"),),
        ),
    )
    for number, tenant, other in ((1, "blue", "red"), (2, "red", "blue"))
)  # fmt: skip
NETWORKS = {network.name: network for network in (BLUE, RED)}
WEB = Card(vm="web", name="web", number=0, addresses=("10.0.1.5", "fd00:1::5"), hosts=("gpu-1",))
DB = Card(vm="db", name="db", number=0, addresses=("10.0.1.6", "fd00:1::6"), hosts=("gpu-2",))
FAR = Card(vm="far", name="far", number=0, addresses=("10.0.2.7", "fd00:2::7"), hosts=("gpu-2",))
"""On the network that the other one is joined with."""
ALL, NONE, ECHO, UDP_IN = (
    SecurityGroup(tenant="blue", name="own", rules=tuple(parse_rule(text) for text in rules))
    for rules in (
        ["in any", "out any"],
        ["out any"],
        ["out any", "in icmp from fd00:1::/64"],
        ["out any", "in udp 6800 from fd00:1::5/128"],
    )
)
_PING = """
import os, socket, struct, sys
address, limit_s = sys.argv[1], float(sys.argv[2])
one = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.getprotobyname("ipv6-icmp"))
one.settimeout(limit_s)
own = os.getpid() & 0xFFFF
one.sendto(struct.pack("!BBHHH", 128, 0, 0, own, 1), (address, 0))
while True:
    answer, sender = one.recvfrom(2000)
    if answer[0] == 129 and struct.unpack("!H", answer[4:6])[0] == own:
        print("heard")
        break
    if answer[0] == 1:
        print("unreachable")
        break
"""
_ASK = """
import socket, sys
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.setsockopt(socket.SOL_SOCKET, 11, 1)  # SO_NO_CHECK
one.settimeout(4)
name = b"".join(bytes([len(part)]) + part.encode() for part in sys.argv[1].split("."))
one.sendto(bytes.fromhex("000101000001000000000000") + name + bytes.fromhex("00001c0001"), ("10.0.1.1", 53))
print(socket.inet_ntop(socket.AF_INET6, one.recv(512)[-16:]))
"""
_OVERHEAR = """
import socket
one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x86DD))
one.settimeout(8)
print("ready", flush=True)
while b"heard" not in one.recv(2000):
    pass
print("heard")
"""
_RECEIVE = """
import socket
one = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
one.settimeout(8)
one.bind(("::", 6800))
print("ready", flush=True)
print(one.recv(9).decode())
"""


def ping(guest: Guest, address: str, limit_s: float = 1) -> str:
    return guest.python(_PING, address, str(limit_s)).stdout.strip()


def write(site: Site, group: SecurityGroup, *, gone: tuple[OvnRow, ...] = ()) -> tuple[OvnRow, ...]:
    """Both networks and their cards, those of the first in this group; the rows of the group."""
    groups = rows_of_groups("site", [GroupOnNetwork(group=group, network="blue")])
    rows = [*groups]
    guarded = {card.vm: replace(card, groups=members_of("site", "blue", ["own"], "blue")) for card in (WEB, DB)}
    for network, cards in ((BLUE, [guarded["web"], guarded["db"]]), (RED, [FAR])):
        assert network.overlay is not None
        rows += network_rows(network, network.overlay, subnets_of_peers(network, NETWORKS.get))
        rows += [row for card in cards for row in card_rows(network, network.overlay, card)]
    rows += [row for network in (BLUE, RED) for row in rows_joined(network, NETWORKS.get)]
    with OvnNorthbound(endpoints=(site.ovn.socket("northbound"),), trust=lambda: None).open() as session:
        old = removal(row for row in gone if row.uuid not in {each.uuid for each in groups})
        session.change((*old, *operations_of(difference(rows, session.read(rows), "site"))))
    site.ovn.nbctl("--wait=hv", "--timeout=30", "sync")
    return groups


def knows(guest: Guest, name: str) -> bool:
    return guest.python(_ASK, name).stdout.strip() == DB.addresses[1]


def leased(guest: Guest, root: Path) -> str:
    """What DHCPv6 tells it, as dhclient writes it down."""
    lease = root / f"{guest.card.vm}.lease"
    done = guest.run(
        f"touch {lease}; dhclient -6 -1 -d -v -lf {lease} -pf {lease}.pid -sf /bin/true eth0 >/dev/null 2>&1 & "
        f"for n in $(seq 150); do grep -q domain-search {lease} && break; sleep 0.1; done; kill $!; cat {lease}"
    )
    return done.stdout


def configured(guest: Guest, address: str) -> None:
    """As DHCPv6 tells it: one address, without a subnet; the rest routers advertise."""
    done = guest.run(
        f"ip -6 address flush dev eth0 scope global; ip -6 address add {address}/128 dev eth0 nodad; "
        "sysctl -q net.ipv6.conf.eth0.accept_ra=1"
    )
    assert done.returncode == 0, done.stderr
    assert guest.python(NO_OFFLOAD).returncode == 0


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with hosts_in_ovn(2) as (_, begun):
        write(begun, ALL)
        for card in (WEB, DB, FAR):
            guest = begun.guests[card.vm] = begun.plug(card.hosts[0], card)
            configured(guest, card.addresses[1])
        web = begun.guests["web"]
        assert eventually(lambda: ping(web, "fd00:1::6") == "heard"), begun.hosts["gpu-1"].logs()
        yield begun


def test_vms_meet_over_hosts_and_joined_networks(site: Site) -> None:
    web = site.guests["web"]
    assert ping(web, "fd00:1::6") == "heard"
    assert mac_address("db") in web.run("ip -6 neighbour").stdout
    assert eventually(lambda: ping(web, "fd00:2::7") == "heard", 10), web.run("ip -6 route").stdout


def test_what_leads_outside_is_refused_at_once(site: Site) -> None:
    assert ping(site.guests["web"], "2001:db8::1", 5) == "unreachable"


def test_an_address_that_is_anothers_does_not_pass(site: Site) -> None:
    web = site.guests["web"]
    try:
        configured(web, "fd00:1::9")
        assert ping(web, "fd00:1::6") == ""
    finally:
        configured(web, "fd00:1::5")
    assert eventually(lambda: ping(web, "fd00:1::6") == "heard")


def test_a_card_is_given_its_own_address_and_its_prefix_and_names_are_known(site: Site) -> None:
    web = site.guests["web"]
    lease = leased(web, site.ovn.root)
    assert "iaaddr fd00:1::5 {" in lease, lease
    assert "option dhcp6.name-servers fd00:1::1;" in lease
    assert 'option dhcp6.domain-search "net.blue.internal.";' in lease
    routes = web.run("ip -6 route").stdout
    assert "fd00:1::/64 dev eth0 proto kernel" in routes
    assert re.search("default via fe80::.* proto ra .* mtu 1442", routes), routes
    for name in ("db", "db.net.blue.internal"):
        assert eventually(partial(knows, web, name), 10), name


def test_rules_open_and_close_and_neighbours_are_found_whatever_they_say(site: Site) -> None:
    web, db = site.guests["web"], site.guests["db"]
    rows = write(site, NONE, gone=rows_of_groups("site", [GroupOnNetwork(group=ALL, network="blue")]))
    try:
        assert ping(web, "fd00:1::6") == ""
        web.run("ip -6 neighbour flush dev eth0")
        ping(web, "fd00:1::6")
        assert mac_address("db") in web.run("ip -6 neighbour").stdout
        rows = write(site, ECHO, gone=rows)
        assert ping(web, "fd00:1::6") == "heard"
        assert hears(web, db) == ""
        rows = write(site, UDP_IN, gone=rows)
        assert ping(web, "fd00:1::6") == ""
        assert hears(web, db) == "heard"
    finally:
        write(site, ALL, gone=rows)


def test_a_guest_answers_nobody_as_a_dhcp_server(site: Site) -> None:
    web, db = site.guests["web"], site.guests["db"]
    assert [hears(web, db, from_port=port) for port in (548, 547)] == ["heard", ""]


def test_a_guest_that_others_take_for_a_router_reads_nothing_of_theirs(site: Site) -> None:
    web, db = site.guests["web"], site.guests["db"]
    own = db.run("ip -6 -o address show dev eth0 scope link").stdout.split()[3].partition("/")[0]
    assert web.run(f"ip -6 route add fd00:9::/64 via {own} dev eth0").returncode == 0
    assert hears(web, db, _OVERHEAR) == "heard"
    assert hears(web, db, _OVERHEAR, to="fd00:9::1") == ""


def hears(sender: Guest, receiver: Guest, how: str = _RECEIVE, *, from_port: int = 0, to: str = "fd00:1::6") -> str:
    """What arrives there, of what is sent to UDP port 6800 of that address."""
    words = [*namespaces_of(receiver.holder), sys.executable, "-c", how]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as listening:
        assert listening.stdout is not None
        listening.stdout.readline()
        for _ in range(3):
            sender.python(
                "import socket\none = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)\n"
                f"one.bind(('::', {from_port}))\none.sendto(b'heard', ('{to}', 6800))"
            )
            time.sleep(0.5)
        return listening.stdout.read().strip()
