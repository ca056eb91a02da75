# SPDX-License-Identifier: Apache-2.0
"""``vgpuctl vm move`` of VMs that run, between two lab hosts: what their guests keep in memory and in their vGPUs goes
along, and a move that fails leaves them where they are."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import pytest

from tests.lab.conftest import lab
from tests.lab.host_facts import facts, owners
from tests.lab.two_hosts import Site, two_hosts

pytestmark = pytest.mark.lab

_CONTENT_KIB: Final = 128 * 1024
"""It goes while the guest stands still, when no limit of bandwidth holds: emulated hosts send it in some seconds, and
in more the busier their machine is."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with two_hosts(tmp_path_factory.mktemp("site")) as one:
        for host in one.hosts.values():  # libvirt writes no more into what a guest prints once its disk was full
            host.run("mount -t tmpfs -o mode=0700 none /var/log/libvirt/qemu")
        yield one


def test_a_host_is_emptied_while_its_vms_run_and_their_guests_go_on(site: Site) -> None:
    product, kinds = site.product, ("mdev", "vendor", "instance")
    with ThreadPoolExecutor(len(kinds)) as pool:
        vms = dict(zip(kinds, pool.map(site.start, kinds), strict=True))
    counted = {name: site.count(name) for name in kinds}
    product.run("doctor")  # their host is observed with what its driver says of their vGPUs
    product.ok("host", "drain", "source", limit_s=900)
    for name, vm in vms.items():
        assert site.where(vm) == ["target running"]
        assert product.json("show-vm", name)["host"] == "target"
        assert site.count(name) > counted[name]
    assert [site.hosts["source"].run(f"ls /var/lib/vgpuctl-agent/{kind}") for kind in ("volumes", "seeds")] == ["", ""]
    assert not {"stop_vm", "move_vm_cold"} & {one["kind"] for one in product.json("operation", "list")}
    product.ok("host", "uncordon", "source")
    for name in kinds[1:]:
        product.ok("delete-vm", name)
    product.run("doctor")


@dataclass(frozen=True)
class Fault:
    """``source``, ``target``: what is done to that host, as its root; ``heal``: the same, once the move has ended or
    after ``heal_s``. ``refuses``: (host, phase) in which the vGPU's driver fails once each, from before the move begins
    on: it is tried three times."""

    name: str
    ends: frozenset[str] = frozenset({"done", "undone"})
    source: str = ""
    target: str = ""
    heal: str = ""
    heal_s: float = 0.0
    refuses: tuple[tuple[str, str], ...] = ()
    at_once: bool = False
    """Before it begins."""

    @property
    def is_in_its_middle(self) -> bool:
        """Which has to last long enough for that."""
        return not self.at_once and not self.refuses


_STAYS, _GOES = frozenset({"undone"}), frozenset({"done"})
_KILL = "systemctl kill --signal KILL {}"
_CUT, _JOIN = (f"iptables -w {act} INPUT -s 10.77.0.0/24 -j DROP" for act in ("-I", "-D"))
_FILL = (
    "cd /var/lib/vgpuctl-agent && for size in 1G 100M 10M 1M 100K 4K; do number=0; "
    "while fallocate -l $size filled-$size-$number 2>/dev/null; do number=$((number + 1)); done; done; true"
)
_EMPTY = "rm -f /var/lib/vgpuctl-agent/filled-*"
_PHASES: Final = {
    "saves": (("source", "save"),),
    "sends what changes, or begins to take it": (("source", "pre-copy"), ("target", "resume")),
    "sends the rest, or takes it": (("source", "stop-copy"), ("target", "load")),
}
CONTROLLER, CANCEL = "the controller is killed", "its user cancels it"
FAULTS = (
    Fault(CONTROLLER),
    Fault(CANCEL, _STAYS),
    Fault("the agent that it leaves is killed", source=_KILL.format("vgpuctl-agent")),
    Fault("the agent that it comes to is killed", target=_KILL.format("vgpuctl-agent")),
    Fault("libvirt that it leaves is killed", source=_KILL.format("libvirtd")),
    Fault("libvirt that it comes to is killed", target=_KILL.format("libvirtd")),
    Fault("hosts do not reach each other for a moment", _GOES, target=_CUT, heal=_JOIN, heal_s=3.0),
    Fault("hosts do not reach each other any more", target=_CUT, heal=_JOIN),
    Fault("the disk that it comes to is full", _STAYS, target=_FILL, heal=_EMPTY, at_once=True),
    Fault("the disk that it comes to fills", target=_FILL, heal=_EMPTY, heal_s=10.0),
    *(Fault(f"the device fails when it {what}", _GOES, refuses=phases) for what, phases in _PHASES.items()),
)


@pytest.fixture(scope="module")
def slow(site: Site) -> Site:
    """The VM's vGPU has so much in it that a move can be struck in its middle."""
    if not site.product.json("list-vms"):  # without the test above
        site.start("mdev")
    for name in site.hosts:
        lab("fault", name, "0", "migration", str(_CONTENT_KIB), "0", "0", "0x70001", "0x120001")
    return site


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: str(fault.name))
def test_whatever_fails_in_the_middle_it_runs_on_one_host_with_all_it_has(slow: Site, fault: Fault) -> None:
    vm = slow.product.json("show-vm", "mdev")
    source, counted = str(vm["host"]), slow.count("mdev")
    target = next(name for name in slow.hosts if name != source)
    hosts = {"source": slow.hosts[source], "target": slow.hosts[target]}
    strikes = [(hosts[end], command) for end in ("source", "target") if (command := getattr(fault, end))]
    for end, phase in fault.refuses:
        lab("fault", hosts[end].name, "0", "fault_create", phase)
    server = slow.product.serve_pid()
    for host, command in strikes if fault.at_once else ():
        host.run(command)
    try:
        operation = slow.begin("mdev", target, *(("--bandwidth", "1MiB") if fault.is_in_its_middle else ()))
        if fault.is_in_its_middle:
            slow.under_way(operation)
            strike(slow, fault.name, server, operation)
        for host, command in () if fault.at_once else strikes:
            host.run(command)
        time.sleep(fault.heal_s)
        ended = slow.ended(operation) if not fault.heal_s else ""
    finally:
        if fault.heal:
            hosts["target"].run(fault.heal)
    ended = ended or slow.ended(operation)
    assert ended in fault.ends
    for end, _ in fault.refuses:
        assert "fault_create none" in hosts[end].run("cat /sys/kernel/vgpu_lab/gpus/0/state")
    whole(slow, vm["id"], *((target, source) if ended == "done" else (source, target)), counted)


def strike(site: Site, what: str, server: int, operation: str) -> None:
    """What is done to no host."""
    if what == CONTROLLER:
        os.kill(server, signal.SIGKILL)
    elif what == CANCEL:
        site.product.ok("operation", "cancel", operation)


def whole(site: Site, vm: str, host: str, other: str, counted: int) -> None:
    """It runs there alone and its guest has gone on; the other host and the database have nothing else of it."""
    shown = site.product.json("show-vm", "mdev")
    assert (shown["host"], shown["state"]) == (host, "running")
    assert site.where(vm) == [f"{host} running"]
    assert site.count("mdev") > counted
    left = facts(site.hosts[other].run)
    assert left["mdevs"] == []
    assert [what for what, lines in left.items() if vm in str(lines)] == []
    assert site.hosts[other].run("ss -Hltn 'sport >= 49152 and sport <= 49215'") == ""
    assert vm not in owners(site.hosts[other].run)
    site.settled()
    claimed = [gpu["host"] for gpu in site.product.json("gpu", "map") if "T4" in gpu["model"] and gpu["cut"]]
    assert claimed == [host]
