# SPDX-License-Identifier: Apache-2.0
"""How soon a change of a security group is in effect: 1,000 cards in one group, 100 chassis, of which one is at work
with two guests. One sends a packet to the other each 2 ms, to ports that rules open in turn."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median, quantiles
from typing import Final

from orchestrator.adapters.ovn.northbound import OvnNorthbound
from orchestrator.core.domain_xml.interface import mac_address
from orchestrator.core.hosts.bridges import Bridge
from orchestrator.core.overlay import NewOvnNetwork, Port, port_id
from orchestrator.core.security_groups import NamedUse, SecurityRule
from orchestrator.core.vms.vm import Vm
from orchestrator.services.northbound import NorthboundKeeper
from tests.fakes.control_plane import T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.ovn_chassis import Guest, OvnChassis, ovn_chassis
from tests.fakes.ovn_databases import RealOvn, real_ovn

CHASSIS, CARDS, CHANGES = 100, 1000, 40
FIRST_PORT: Final = 10_000
GROUP: Final = "all"
_SEND: Final = """
import select, socket, sys, time
one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
one.setsockopt(socket.SOL_SOCKET, 11, 1)  # SO_NO_CHECK
print("ready", flush=True)
while port := sys.stdin.readline():
    while not select.select([sys.stdin], [], [], 0.002)[0]:
        one.sendto(b"word", (sys.argv[1], int(port)))
"""
_HEAR: Final = """
import socket, sys, time
print("ready", flush=True)
while port := sys.stdin.readline():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("0.0.0.0", int(port)))
        print("bound", flush=True)
        one.recv(9)
        print(time.time(), flush=True)
"""


def measure(root: Path) -> dict[str, float]:
    """Seconds until the answer, and until the first packet that the new rule lets in."""
    with real_ovn(root) as ovn, _site(root, ovn) as plane, ovn_chassis(root / "gpu", ovn, T4_HOST) as chassis:
        first, second = (plane.services.vms.get("default", name) for name in ("web", "web-1"))
        guests = [_plugged(chassis, vm) for vm in (first, second)]
        ovn.nbctl("--wait=sb", "--timeout=60", "sync")
        with (
            _told(guests[0], _SEND, second.ports[0].address) as send,
            _told(guests[1], _HEAR) as hear,
        ):
            turns = [_turn(plane, send, hear, FIRST_PORT + number) for number in range(CHANGES)]
    answered, effective = (sorted(each) for each in zip(*turns, strict=True))
    return {
        "answered_s": median(answered), "answered_p95_s": quantiles(answered, n=20)[-1],
        "effective_s": median(effective), "effective_p95_s": quantiles(effective, n=20)[-1],
        "load": os.getloadavg()[0],
    }  # fmt: skip


def _turn(
    plane: ControlPlane, send: subprocess.Popen[str], hear: subprocess.Popen[str], port: int
) -> tuple[float, float]:
    for process in (hear, send):
        print(port, file=process.stdin, flush=True)
    assert hear.stdout is not None
    assert hear.stdout.readline() == "bound\n"
    time.sleep(0.5)
    began = time.time()
    rule = SecurityRule(direction="in", protocol="udp", first_port=port, last_port=port)
    plane.services.security_groups.change_rules("default", GROUP, [rule])
    answered = time.time()
    return answered - began, float(hear.stdout.readline()) - began


@contextmanager
def _site(root: Path, ovn: RealOvn) -> Iterator[ControlPlane]:
    """One VM is made by the product; the others are its row under other names, and other hosts'."""
    northbound = OvnNorthbound(endpoints=(ovn.socket("northbound"),), trust=lambda: None)
    made = control_plane(root, northbound=northbound)
    made.machine(T4_HOST).bridges = (Bridge(name="br-int", kind="openvswitch"),)
    made.add_host(T4_HOST)
    services = made.services
    services.networks.add_overlay("blue", NewOvnNetwork(subnets=("10.0.0.0/16",)), "default")
    services.security_groups.create("default", GROUP)
    services.security_groups.change_uses("default", GROUP, [NamedUse(network="blue")])
    services.vms.create(replace(create_vm("web"), network="blue", addresses={"blue": "10.0.0.9"}))
    made.engine.drain()
    with made.store.begin() as tx:
        (host,), (web,) = tx.hosts.list(), tx.vms.list()
        for number in range(1, CHASSIS):
            ovn.sbctl("chassis-add", f"gpu-{number}", "geneve", f"192.0.2.{number}")
            tx.hosts.add(replace(host, name=f"gpu-{number}", address=f"gpu-{number}.test", machine_id=f"m-{number}"))
        for number in range(1, CARDS):
            on = T4_HOST if number == 1 else f"gpu-{number % (CHASSIS - 1) + 1}"
            port = Port(network="default.blue", address=f"10.0.{number // 250 + 1}.{number % 250 + 1}")
            spec = replace(web.spec, name=f"web-{number}")
            tx.vms.add(replace(web, id=f"{number:08d}{web.id[8:]}", host=on, spec=spec, ports=(port,)))
        cards = [(vm.host, port_id(vm.id, 0)) for vm in tx.vms.list()]
    NorthboundKeeper(store=made.store, northbound=northbound, clock=made.world.clock, leads=lambda: True).repair()
    ovn.nbctl("--wait=sb", "--timeout=60", "sync")
    ovn.sbctl(*(word for host, card in cards if host != T4_HOST for word in ("--", "lsp-bind", card, host)))
    yield made
    made.store.close()


def _plugged(chassis: OvnChassis, vm: Vm) -> Guest:
    return chassis.plug(port_id(vm.id, 0), mac_address(vm.id, 0), f"{vm.ports[0].address}/16")


@contextmanager
def _told(guest: Guest, script: str, *words: str) -> Iterator[subprocess.Popen[str]]:
    """A program in the guest that is told a port by a line."""
    inside = ["nsenter", f"--target={guest.holder}", "--net", "--mount", "--", sys.executable, "-c", script, *words]
    with subprocess.Popen(inside, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as begun:
        assert begun.stdout is not None
        assert begun.stdout.readline() == "ready\n"
        yield begun
        begun.kill()
