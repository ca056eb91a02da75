# SPDX-License-Identifier: Apache-2.0
"""What is attached to a domain that runs, and detached. libvirt's test driver can do neither, so a stand-in keeps what
is plugged in; the rest is libvirt's own."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from xml.etree import ElementTree as ET

import libvirt
import pytest

from orchestrator.core.actions.host_actions import ActionResult, DefineDomain, EnsureNetwork, StartDomain
from orchestrator.core.actions.volumes import (
    AttachVolume,
    CreateDataVolume,
    DetachVolume,
    GrowDataVolume,
    GrowDisk,
    PlugDevices,
)
from orchestrator.core.domain_xml.domain import SPARE_PORTS
from orchestrator.core.domain_xml.interface import mac_address
from orchestrator.core.errors import Conflict, Fatal, InvalidInput, NotFound
from orchestrator.core.hosts.domain import DiskLimits
from orchestrator.core.overlay import Port, port_id
from orchestrator.core.units import MIB
from tests.unit.agent.bench import Bench, domain_of
from tests.unit.agent.refusals import refused

SIZE = 64 * 1024**2
LIVE, CONFIG = libvirt.VIR_DOMAIN_AFFECT_LIVE, libvirt.VIR_DOMAIN_AFFECT_CONFIG


def file_of(number: int) -> str:
    return f"data{number}.3f2a91c0-7be4-4c55-9f9c-0f6bb5a3f1{number:02}.raw"


def _key(device: ET.Element) -> tuple[str, ...]:
    part, name = ("source", "file") if device.tag == "disk" else ("mac", "address")
    found = device.find(part)
    assert found is not None
    return device.tag, str(found.get(name))


@dataclass
class Plugged:
    """Devices in a running domain (LIVE) and its definition (CONFIG), once one of them was changed."""

    monkeypatch: pytest.MonkeyPatch
    roots: dict[int, ET.Element] = field(default_factory=dict)
    calls: list[tuple[str, int]] = field(default_factory=list)
    resized: list[tuple[str, int]] = field(default_factory=list)
    keeps: bool = False

    def begin(self, domain: Any) -> None:
        """From how libvirt has it. The test driver gives no addresses, so each device is behind the next port."""
        text = domain.XMLDesc()
        self.roots = {LIVE: ET.fromstring(text), CONFIG: ET.fromstring(text)}
        for root in self.roots.values():
            self._address(root)
        stand_ins: dict[str, Callable[..., object]] = {
            "XMLDesc": self._text,
            "attachDeviceFlags": self._attach,
            "detachDeviceFlags": self._detach,
            "blockResize": self._resize,
        }
        for name, stand_in in stand_ins.items():
            self.monkeypatch.setattr(libvirt.virDomain, name, _method(stand_in), raising=False)

    def _address(self, root: ET.Element) -> None:
        devices = root.find("devices")
        assert devices is not None
        ports = devices.findall("controller[@model='pcie-root-port']")
        behind = [one for one in devices if one.tag in {"interface", "rng", "input"} or _is_virtio(one)]
        for bus, port in enumerate(ports, start=1):
            port.set("index", str(bus))
        for bus, device in enumerate(behind, start=1):
            for old in device.findall("address"):
                device.remove(old)
            ET.SubElement(device, "address", type="pci", bus=f"0x{bus:02x}", slot="0x00")

    def _text(self, _domain: Any, flags: int = 0) -> str:
        return ET.tostring(self.roots[CONFIG if flags & libvirt.VIR_DOMAIN_XML_INACTIVE else LIVE], encoding="unicode")

    def _attach(self, _domain: Any, text: str, flags: int) -> None:
        self.calls.append(("attach", flags))
        for root in self._of(flags):
            devices, device = root.find("devices"), ET.fromstring(text)
            assert devices is not None
            assert _key(device) not in {_key(one) for one in devices if one.tag == device.tag}
            devices.append(device)
            self._address(root)

    def _detach(self, _domain: Any, text: str, flags: int) -> None:
        self.calls.append(("detach", flags))
        if flags & LIVE and self.keeps:
            return
        for root in self._of(flags):
            devices = root.find("devices")
            assert devices is not None
            gone = ET.fromstring(text)
            (present,) = [device for device in devices if device.tag == gone.tag and _key(device) == _key(gone)]
            devices.remove(present)

    def _resize(self, _domain: Any, target: str, size: int, _flags: int) -> None:
        self.resized.append((target, size))

    def _of(self, flags: int) -> list[ET.Element]:
        return [root for flag, root in self.roots.items() if flags & flag]

    def targets(self, flag: int) -> list[str]:
        return [str(one.get("dev")) for one in self.roots[flag].findall("devices/disk[@device='disk']/target")]

    def cards(self, flag: int) -> list[str]:
        return [str(one.get("network")) for one in self.roots[flag].findall("devices/interface/source")]


def _method(function: Callable[..., object]) -> Callable[..., object]:
    """A class passes its instance to functions alone."""

    def method(domain: object, *given: object) -> object:
        return function(domain, *given)

    return method


def _is_virtio(device: ET.Element) -> bool:
    target = device.find("target")
    disk = device.tag == "disk" and target is not None and target.get("bus") == "virtio"
    return disk or (device.tag, device.get("type")) == ("controller", "virtio-serial")


class Running:
    """A VM that runs, with volumes of its own that its domain does not have yet."""

    def __init__(self, bench: Bench, plugged: Plugged) -> None:
        self.bench, self.plugged, self.domain = bench, plugged, domain_of(bench.vm)
        for number in range(SPARE_PORTS + 1):
            bench.do(CreateDataVolume(volume=file_of(number), size_bytes=SIZE))
            bench.do(AttachVolume(vm=bench.vm, volume=file_of(number)))
        bench.do(DefineDomain(vm=bench.vm, domain=self.domain))
        bench.do(StartDomain(vm=bench.vm))
        plugged.begin(bench.libvirt.lookupByUUIDString(bench.vm))

    def plug(self, *numbers: int, networks: tuple[str, ...] = (), ports: tuple[Port, ...] = ()) -> ActionResult:
        wanted = replace(self.domain, data=tuple(map(file_of, numbers)), more_networks=networks, ports=ports)
        return self.bench.do(PlugDevices(vm=self.bench.vm, domain=wanted))


@pytest.fixture
def running(furnished: Bench, monkeypatch: pytest.MonkeyPatch) -> Running:
    return Running(furnished, Plugged(monkeypatch))


def test_volumes_come_and_go_in_the_running_domain_and_its_definition_at_once(running: Running) -> None:
    plugged = running.plugged
    assert running.plug(0, 1).changed
    assert plugged.calls == [("attach", LIVE | CONFIG)] * 2
    assert plugged.targets(LIVE) == plugged.targets(CONFIG) == ["vda", "vdb", "vdc"]
    assert not running.plug(0, 1).changed
    assert running.plug(1).changed
    assert plugged.calls[2:] == [("detach", LIVE), ("detach", CONFIG)]
    assert running.plug(1, 2).changed
    assert plugged.targets(LIVE) == ["vda", "vdc", "vdb"], "a name that is free"
    running.bench.do(DetachVolume(vm=running.bench.vm, volume=file_of(0)))


def test_what_was_done_by_half_is_done_to_its_end(running: Running) -> None:
    running.plug(0)
    devices = running.plugged.roots[CONFIG].find("devices")
    assert devices is not None
    devices.remove(next(disk for disk in devices.findall("disk") if file_of(0) in ET.tostring(disk, "unicode")))
    assert running.plug(0).changed
    assert running.plugged.calls[-1] == ("attach", CONFIG)


def test_a_guest_that_does_not_let_go_keeps_it_in_both(running: Running) -> None:
    running.plug(0)
    running.plugged.keeps = True
    error = refused("vm.device_kept", Fatal, running.plug)
    assert "did not let go" in error.message
    assert running.plugged.targets(LIVE) == running.plugged.targets(CONFIG) == ["vda", "vdb"]
    assert ("detach", CONFIG) not in running.plugged.calls


def test_without_a_free_port_nothing_is_begun(running: Running) -> None:
    assert ports_of(running) == SPARE_PORTS
    refused("vm.no_port", Conflict, lambda: running.plug(*range(SPARE_PORTS + 1)))
    assert running.plugged.calls == []
    assert running.plug(*range(SPARE_PORTS)).changed
    assert ports_of(running) == 0
    assert running.plug(*range(1, SPARE_PORTS + 1)).changed, "one comes into the place of another"


def ports_of(running: Running) -> int | None:
    found = running.bench.domains.find(running.bench.vm)
    assert found is not None
    return found.free_ports


def test_a_network_card_comes_with_its_own_address_and_filter(running: Running) -> None:
    running.bench.do(EnsureNetwork(name="default.inner", subnet="10.9.9.0/24"))
    assert running.plug(networks=("default.inner",)).changed
    assert running.plugged.cards(LIVE) == running.plugged.cards(CONFIG) == ["default", "default.inner"]
    card = running.plugged.roots[LIVE].findall("devices/interface")[-1]
    assert card.find(f"mac[@address='{mac_address(running.bench.vm, 1)}']") is not None
    assert card.find("filterref") is not None
    assert running.plug().changed
    assert running.plugged.cards(LIVE) == running.plugged.cards(CONFIG) == ["default"]


def test_a_card_on_a_network_over_all_hosts_comes_and_goes(running: Running) -> None:
    port = Port(network="default.wide", address="10.0.0.4")
    assert running.plug(networks=("default.wide",), ports=(port,)).changed
    card = running.plugged.roots[LIVE].findall("devices/interface")[-1]
    assert card.find(f"virtualport/parameters[@interfaceid='{port_id(running.bench.vm, 1)}']") is not None
    assert not running.plug(networks=("default.wide",), ports=(port,)).changed
    assert running.plug().changed
    assert running.plugged.cards(LIVE) == running.plugged.cards(CONFIG) == ["default"]


def test_what_somebody_plugged_in_by_hand_is_left_alone(running: Running) -> None:
    by_hand = "<interface type='network'><mac address='52:54:00:00:00:01'/><source network='default'/></interface>"
    for root in running.plugged.roots.values():
        devices = root.find("devices")
        assert devices is not None
        devices.append(ET.fromstring(by_hand))
    assert not running.plug().changed


def test_another_vms_volume_is_not_plugged_in(running: Running) -> None:
    running.bench.do(DetachVolume(vm=running.bench.vm, volume=file_of(0)))
    refused("vm.file_foreign", Conflict, lambda: running.plug(0))
    assert running.plugged.calls == []


def test_one_that_does_not_run_is_defined(furnished: Bench) -> None:
    furnished.do(CreateDataVolume(volume=file_of(0), size_bytes=SIZE))
    furnished.do(AttachVolume(vm=furnished.vm, volume=file_of(0)))
    furnished.do(DefineDomain(vm=furnished.vm, domain=domain_of(furnished.vm)))
    wanted = replace(domain_of(furnished.vm), data=(file_of(0),))
    assert furnished.do(PlugDevices(vm=furnished.vm, domain=wanted)).changed
    assert file_of(0) in furnished.domains.definition(furnished.vm)
    described = furnished.wanted.described(furnished.vm)
    assert described is not None
    assert described[0] == wanted


def limits_in(domain: libvirt.virDomain, flag: int) -> dict[str, dict[str, int]]:
    """What libvirt says of each disk: those of its numbers that are not 0."""
    said = {disk: domain.blockIoTune(disk, flag) for disk in ("vda", "vdb", "vdc")}
    return {disk: {name: number for name, number in of.items() if number} for disk, of in said.items()}


def test_limits_of_volumes_change_in_the_running_domain_and_its_definition(furnished: Bench) -> None:
    """libvirt's own test driver is told, and asked. It wants bursts wherever there is a limit, other than QEMU's."""
    of_offering = DiskLimits(iops=1000, iops_max=4000)
    files = (file_of(0), file_of(1))
    for file in files:
        furnished.do(CreateDataVolume(volume=file, size_bytes=SIZE))
        furnished.do(AttachVolume(vm=furnished.vm, volume=file))
    wanted = replace(domain_of(furnished.vm), data=files, disk_limits=of_offering)
    furnished.do(DefineDomain(vm=furnished.vm, domain=wanted))
    furnished.do(StartDomain(vm=furnished.vm))
    domain = furnished.libvirt.lookupByUUIDString(furnished.vm)
    all_alike = {"total_iops_sec": 1000, "total_iops_sec_max": 4000, "total_iops_sec_max_length": 10}
    size = 50 * 1024**2
    of_volume = DiskLimits(bytes_per_s=size, bytes_per_s_max=2 * size, iops=200, iops_max=300)
    lower_ones = {
        "total_bytes_sec": size, "total_bytes_sec_max": 2 * size, "total_bytes_sec_max_length": 10,
        "total_iops_sec": 200, "total_iops_sec_max": 300, "total_iops_sec_max_length": 10,
    }  # fmt: skip
    higher = DiskLimits(iops=5000, iops_max=6000)
    for own, told in ((of_volume, lower_ones), (higher, all_alike), (of_volume, lower_ones)):
        plug = PlugDevices(vm=furnished.vm, domain=replace(wanted, data_limits=(DiskLimits(), own)))
        assert furnished.do(plug).changed
        assert not furnished.do(plug).changed
        for flag in (LIVE, CONFIG):
            seen = limits_in(domain, flag)
            assert seen["vda"] == seen["vdb"] == all_alike
            assert {name: number for name, number in seen["vdc"].items() if number > 1} == told
    assert furnished.do(PlugDevices(vm=furnished.vm, domain=wanted)).changed
    assert limits_in(domain, LIVE)["vdc"] == all_alike


def test_a_running_guest_is_told_that_its_volume_is_larger(running: Running) -> None:
    running.plug(0, 1)
    path = running.bench.host.paths.data / file_of(1)
    grow = GrowDataVolume(volume=file_of(1), size_bytes=2 * SIZE, vm=running.bench.vm)
    assert running.bench.do(grow).changed
    assert (running.plugged.resized, path.stat().st_size) == ([("vdc", 2 * SIZE)], SIZE), "QEMU makes the file larger"
    running.bench.do(replace(grow, volume=file_of(2)))
    assert (running.bench.host.paths.data / file_of(2)).stat().st_size == 2 * SIZE, "the VM has it, the guest not yet"
    refused("volume.differs", Conflict, lambda: running.bench.do(replace(grow, volume=file_of(2), size_bytes=SIZE)))


def test_a_vms_own_disk_is_made_larger_by_qemu_while_it_runs(running: Running) -> None:
    bench, vm = running.bench, running.bench.vm
    grow = GrowDisk(vm=vm, volume=f"{vm}.qcow2", size_bytes=4 * MIB)
    assert bench.do(grow).changed
    assert running.plugged.resized == [("vda", 4 * MIB)]
    assert bench.storage.disk_bytes(grow.volume) == MIB, "QEMU writes it down"


def test_a_stopped_vms_own_disk_is_made_larger_and_none_shrinks(furnished: Bench) -> None:
    vm = furnished.vm
    grow = GrowDisk(vm=vm, volume=f"{vm}.qcow2", size_bytes=4 * MIB)
    furnished.do(DefineDomain(vm=vm, domain=domain_of(vm)))
    assert furnished.do(grow).changed
    assert furnished.storage.disk_bytes(grow.volume) == 4 * MIB
    assert not furnished.do(grow).changed
    assert furnished.storage.disk_bytes(grow.volume) == 4 * MIB
    refused("volume.differs", Conflict, lambda: furnished.do(replace(grow, size_bytes=2 * MIB)))
    refused("volume.missing", NotFound, lambda: furnished.do(replace(grow, volume="none.qcow2")))
    refused("volume.size_invalid", InvalidInput, lambda: furnished.do(replace(grow, size_bytes=2**60)))
    assert furnished.storage.disk_bytes(grow.volume) == 4 * MIB


@pytest.mark.parametrize("lies_on", ["backing_file={},backing_fmt=raw", "data_file={},data_file_raw=on"])
def test_a_disk_that_says_it_lies_on_a_file_of_the_host_is_not_made_larger(furnished: Bench, lies_on: str) -> None:
    """A guest that took its QEMU over writes any header: what runs as root opens and grows no other file for it."""
    disk, theirs = furnished.storage.disk_path(f"{furnished.vm}.qcow2"), furnished.host.paths.storage / "theirs"
    theirs.write_bytes(b"theirs")
    options = lies_on.format(theirs)
    create = ["qemu-img", "create", "-q", "-f", "qcow2", "-o", options, str(disk), str(MIB)]
    subprocess.run(create, check=True, capture_output=True)
    theirs.write_bytes(b"theirs")
    grow = GrowDisk(vm=furnished.vm, volume=disk.name, size_bytes=4 * MIB)
    refused("vm.file_foreign", Conflict, lambda: furnished.do(grow))
    assert theirs.read_bytes() == b"theirs"
