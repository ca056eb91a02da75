# SPDX-License-Identifier: Apache-2.0
"""What one guest's frames do to another guest: real guests on one host, and what its libvirt lets through."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lab.attacks import Card, attacks, honest
from tests.lab.enrolled import Enrolled

pytestmark = [pytest.mark.lab, pytest.mark.parametrize("enrolment", ["t4"], indirect=True)]

_SOURCE = Path(__file__).with_name("frames.c")
_KEY, _PROGRAM = "/run/guests-apart-key", "/run/guests-apart-frames"
_SSH = f"ssh -q -i {_KEY} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o ConnectTimeout=10"
_SECONDS = 400


@dataclass(frozen=True)
class Guest:
    """A running VM of the lab, reached through its host."""

    enrolled: Enrolled
    card: Card

    def run(self, command: str) -> str:
        return self.enrolled.shell(f"{_SSH} root@{self.card.address} {shlex.quote(command)}")

    def watch(self) -> None:
        """Take the program in and note what comes from now on."""
        self.enrolled.shell(f"{_SSH} root@{self.card.address} 'cat > /frames && chmod +x /frames' < {_PROGRAM}")
        self.run("setsid /frames watch eth0 > /seen 2>&1 < /dev/null &")

    def send(self, *frames: bytes) -> None:
        self.run(f"/frames send eth0 {' '.join(frame.hex() for frame in frames)}")

    def seen(self) -> set[str]:
        return set(self.run("cat /seen").split())


@pytest.fixture
def ready(enrolled: Enrolled) -> Enrolled:
    """With a key to the guests and the program on their host."""
    enrolled.host.send(Path(enrolled.public_key.removesuffix(".pub")), _KEY)
    enrolled.host.send(_SOURCE, f"{_PROGRAM}.c")
    enrolled.shell(f"chmod 600 {_KEY} && gcc -static -O1 -o {_PROGRAM} {_PROGRAM}.c")
    return enrolled


def started(enrolled: Enrolled, name: str, *options: str) -> Guest:
    """A VM that answers on ssh; the filter opens for its address only after the lease."""
    enrolled.product.ok(*enrolled.request(name, "--ssh-key", enrolled.public_key, *options))
    tenant = options[1] if "--tenant" in options else "default"
    deadline = time.monotonic() + _SECONDS
    while not (shown := enrolled.product.json("show-vm", name, "--tenant", tenant))["addresses"]:
        assert time.monotonic() < deadline, enrolled.shell(f"virsh dumpxml {shown['id']}")
        time.sleep(2)
    mac = enrolled.shell(f"virsh domiflist {shown['id']} | awk '/network/ {{print $5}}'").strip()
    guest = Guest(enrolled, Card(mac, shown["addresses"][0]))
    while "up" not in enrolled.shell(f"{_SSH} root@{guest.card.address} echo up || echo no"):
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
