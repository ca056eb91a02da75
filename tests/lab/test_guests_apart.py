# SPDX-License-Identifier: Apache-2.0
"""What one guest's frames do to another guest: real guests on one host, and what its libvirt lets through."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab.attacks import COMPILED, SOURCE, Card, attacks, honest
from tests.lab.enrolled import Enrolled

pytestmark = [pytest.mark.lab, pytest.mark.parametrize("enrolment", ["t4"], indirect=True)]

_KEY, _PROGRAM = "/run/guests-apart-key", "/run/guests-apart-frames"
_SSH = f"ssh -q -i {_KEY} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ConnectTimeout=10"
_SECONDS = 400


@dataclass(frozen=True)
class Guest:
    """A running VM of the lab, reached through its host."""

    enrolled: Enrolled
    card: Card
    through: str = ""
    """What the host's command begins with, where the host itself has no way to the guest."""

    def run(self, command: str) -> str:
        return self.enrolled.shell(f"{self.through} {_SSH} root@{self.card.address} {shlex.quote(command)}")

    def watch(self) -> None:
        """Take the program in and note what comes from now on."""
        takes = f"root@{self.card.address} 'cat > /frames && chmod +x /frames'"
        self.enrolled.shell(f"{self.through} {_SSH} {takes} < {_PROGRAM}")
        self.run("setsid /frames watch eth0 > /seen 2>&1 < /dev/null &")

    def send(self, *frames: bytes) -> None:
        self.run(f"/frames send eth0 {' '.join(frame.hex() for frame in frames)}")

    def seen(self) -> set[str]:
        return set(self.run("cat /seen").split())


@pytest.fixture
def ready(enrolled: Enrolled) -> Enrolled:
    """With a key to the guests and the program on their host."""
    enrolled.host.send(Path(enrolled.public_key.removesuffix(".pub")), _KEY)
    enrolled.host.send(SOURCE, f"{_PROGRAM}.c")
    enrolled.shell(f"chmod 600 {_KEY} && {COMPILED.format(program=_PROGRAM)}")
    return enrolled


def started(enrolled: Enrolled, name: str, *options: str, through: str = "") -> Guest:
    """A VM that answers on ssh; the filter opens for its address only after the lease."""
    enrolled.product.ok(*enrolled.request(name, "--ssh-key", enrolled.public_key, *options))
    tenant = options[1] if "--tenant" in options else "default"
    deadline = time.monotonic() + _SECONDS
    while not (shown := enrolled.product.json("show-vm", name, "--tenant", tenant))["addresses"]:
        assert time.monotonic() < deadline, enrolled.shell(f"virsh dumpxml {shown['id']}")
        time.sleep(2)
    mac = enrolled.shell(f"virsh domiflist {shown['id']} | awk '/:/ {{print $5}}'").strip()
    guest = Guest(enrolled, Card(mac, shown["addresses"][0]), through)
    while "up" not in enrolled.shell(f"{through} {_SSH} root@{guest.card.address} echo up || echo no"):
        assert time.monotonic() < deadline, enrolled.shell(f"virsh dumpxml {shown['id']}")
        time.sleep(2)
    guest.watch()
    return guest


def gateway_of(guest: Guest) -> str:
    return guest.run("ip route | awk '/default/ {print $3}'").strip()


def arrives(sender: Guest, receiver: Guest, name: str) -> bool:
    """Frames of one sender come in their order: what was sent before this one and is not there will not come."""
    deadline = time.monotonic() + _SECONDS
    while name not in receiver.seen() and time.monotonic() < deadline:
        sender.send(honest(name, sender.card, receiver.card))
    return name in receiver.seen()


@pytest.mark.fault("F129")
def test_a_guest_is_nobody_else_on_its_network_and_on_no_other(ready: Enrolled) -> None:
    product = ready.product
    product.ok("tenant", "create", "red")
    for tenant in ("default", "red"):  # on one GPU: what is shown is the network's doing
        product.ok("tenant", "set", tenant, "--isolation", "none")
    one, two = started(ready, "one"), started(ready, "two")
    gateway = gateway_of(one)
    assert arrives(one, two, "hello")
    one.send(*attacks(one.card, two.card, gateway).values())
    assert arrives(one, two, "afterwards")
    assert two.seen() == {"hello", "afterwards"}
    assert one.run(f"ping -c 1 -w 60 {gateway} > /dev/null && echo well").strip() == "well"

    other = started(ready, "other", "--tenant", "red")
    one.run(f"for try in 1 2 3; do echo probe:across | nc -u -w 1 {other.card.address} 4000; done || true")
    ready.shell(f"for try in 1 2 3; do echo probe:from-its-host > /dev/udp/{other.card.address}/4000; done")
    assert other.seen() == {"from-its-host"}
    product.ok("delete-vm", "other", "--tenant", "red")
    product.ok("tenant", "delete", "red", "--yes")


@pytest.mark.fault("F129")
@pytest.mark.soak
def test_guests_on_a_shared_network_reach_their_host_and_not_each_other(ready: Enrolled) -> None:
    ready.product.ok("network", "add", "everybody")
    on = ("--network", "everybody")
    one, two = started(ready, "one", *on), started(ready, "two", *on)
    one.send(honest("hello", one.card, two.card), *attacks(one.card, two.card, gateway_of(one)).values())
    ready.shell(f"for try in 1 2 3; do echo probe:from-its-host > /dev/udp/{two.card.address}/4000; done")
    assert two.seen() == {"from-its-host"}
    assert one.run(f"ping -c 1 -w 60 {gateway_of(one)} > /dev/null && echo well").strip() == "well"
    ready.clear()
    ready.product.ok("network", "delete", "everybody", "--shared", "--yes")


_SITE = """
modprobe -a 8021q veth bridge
ip netns add site && ip link add up0 type veth peer name site0 netns site
ip link add br0 type bridge && ip link set up0 master br0
ip link add link br0 name br0.120 type vlan id 120
ip link add br120 type bridge && ip link set br0.120 master br120
for one in up0 br0 br0.120 br120; do ip link set $one up; done
ip -n site link add link site0 name site0.120 type vlan id 120
for one in lo site0 site0.120; do ip -n site link set $one up; done
ip -n site address add 192.0.2.1/24 dev site0 && ip -n site address add 198.51.100.1/24 dev site0.120
ip netns exec site iptables -t mangle -A POSTROUTING -p udp --sport 67 -j CHECKSUM --checksum-fill
ip netns exec site dnsmasq --port=0 --conf-file=/dev/null --user=root --bind-interfaces --except-interface=lo \
  --interface=site0 --interface=site0.120 --dhcp-leasefile=/run/site.leases --pid-file=/run/site.pid \
  --dhcp-range=192.0.2.100,192.0.2.120,1h --dhcp-range=198.51.100.100,198.51.100.120,1h
for one in site0 site0.120; do
  ip netns exec site setsid FRAMES watch $one > /run/seen-$one 2>&1 < /dev/null &
done
sleep 1"""
"""The site's own network, behind a bridge of the host: a machine of it in a network namespace that gives out addresses,
without a tag and with the tag 120, and notes what comes."""
_NO_SITE = """
for pid in $(ip netns pids site); do kill $pid; done
ip netns delete site; for one in br120 br0.120 br0; do ip link delete $one; done"""


@pytest.fixture
def site(ready: Enrolled) -> Iterator[Enrolled]:
    ready.shell(_SITE.replace("FRAMES", _PROGRAM))
    ready.product.ok("doctor")  # the host is observed with its bridges
    yield ready
    ready.clear()
    ready.shell(_NO_SITE)


def site_card(enrolled: Enrolled, interface: str, address: str) -> Card:
    mac = enrolled.shell(f"ip netns exec site cat /sys/class/net/{interface}/address").strip()
    return Card(mac, address)


@pytest.mark.fault("F129")
@pytest.mark.soak
def test_a_guest_on_a_bridge_or_vlan_of_its_host_is_itself_there_and_nowhere_else(site: Enrolled) -> None:
    product, through = site.product, "ip netns exec site"
    product.ok("network", "add", "office", "--bridge", "br0", "--dhcp-server", "192.0.2.1")
    product.ok("network", "add", "tagged", "--bridge", "br0", "--vlan", "120", "--dhcp-server", "198.51.100.1")
    one = started(site, "one", "--network", "office", through=through)
    two = started(site, "two", "--network", "tagged", through=through)
    assert one.card.address.startswith("192.0.2.")
    assert two.card.address.startswith("198.51.100.")
    for guest, interface, address in ((one, "site0", "192.0.2.1"), (two, "site0.120", "198.51.100.1")):
        there = site_card(site, interface, address)
        guest.send(*attacks(guest.card, there, address).values())
        deadline = time.monotonic() + _SECONDS
        while "hello" not in site.shell(f"cat /run/seen-{interface}") and time.monotonic() < deadline:
            guest.send(honest("hello", guest.card, there))
        assert set(site.shell(f"cat /run/seen-{interface}").split()) == {"hello"}
    site.clear()
    for name in ("office", "tagged"):
        product.ok("network", "remove", name, "--yes")
    assert "br120" in site.shell("ls /sys/class/net")
