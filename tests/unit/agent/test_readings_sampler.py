# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.agent.kernel_log import KernelLog
from orchestrator.agent.ledger import Ledger
from orchestrator.agent.libvirt.domain_readings import DomainReadings
from orchestrator.agent.libvirt.domains import domain_key
from orchestrator.agent.readings.flow_log import FlowLog
from orchestrator.agent.readings.sampler import InstanceVms, Sampler
from orchestrator.agent.readings.tunnels import MeasuredTunnels
from orchestrator.agent.timing import RealTiming
from orchestrator.core.actions.gpu_cards import GpuCard
from orchestrator.core.errors import Retryable
from orchestrator.core.hosts.mig_layout import KEEPER
from orchestrator.core.readings.frame import HostFrame, Reading
from orchestrator.core.readings.quantities import BY_NAME, FATAL_XIDS
from tests.unit.agent.fake_sysfs import FakeSysfs

GPU, OTHER = "0000:41:00.0", "0000:c1:00.0"
UUIDS = {GPU: "GPU-1", OTHER: "GPU-2"}
VM, FOREIGN = "5f0a86b4-54f6-4f0c-9d3c-6d4e8a3c2b10", "6f0a86b4-54f6-4f0c-9d3c-6d4e8a3c2b11"
POWER = (("gpu_power_watts", ""),)


class Driver:
    """Reads one number of each GPU that it has."""

    def __init__(self) -> None:
        self.busy = False
        self.silent: dict[str, str] = {}
        self.forgotten = 0

    def read(self, gpus: Mapping[str, str]) -> tuple[Reading, ...] | None:
        if self.busy:
            return None
        return tuple(
            Reading("gpu", uuid, POWER, array("d", [70.0]), facts={"pci_address": gpu})
            if gpu not in self.silent
            else Reading("gpu", uuid, (), array("d"), silent=self.silent[gpu])
            for gpu, uuid in gpus.items()
        )

    def forget(self) -> None:
        self.forgotten += 1


class Hypervisor:
    """libvirt as far as it is asked: domains with their statistics, or no answer."""

    def __init__(self) -> None:
        self.domains: dict[str, dict[str, Any]] = {}
        self.down = False

    def call(self, function: Any, **_limits: float) -> Any:
        if self.down:
            raise Retryable("libvirt.unreachable", "libvirt is not running on the host")
        return function(self)

    def getAllDomainStats(self, _stats: int, _flags: int) -> list[tuple[_Domain, dict[str, Any]]]:  # noqa: N802
        return [(_Domain(uuid), stats) for uuid, stats in self.domains.items()]


class _Domain:
    def __init__(self, uuid: str) -> None:
        self._uuid = uuid

    def UUIDString(self) -> str:  # noqa: N802 - libvirt's name
        return self._uuid


class Scene:
    def __init__(self, root: Path) -> None:
        self.host = FakeSysfs(root)
        self.host.add_drivers("nvidia", "vfio-pci")
        for gpu in UUIDS:
            self.host.add_t4(gpu)
            self.host.bind(gpu, "nvidia")
        self.host.paths.kernel_log.parent.mkdir(exist_ok=True)
        self.records = 0
        self.says("Linux version 6.12.0")
        self.ledger = Ledger(self.host.paths.ledger, site="s", epoch=1, boot_id="boot-1")
        self.ledger.cards.saw([GpuCard(address=gpu, uuid=uuid, serial=None) for gpu, uuid in UUIDS.items()])
        self.driver, self.libvirt = Driver(), Hypervisor()
        self.sampler = Sampler(
            clock=lambda: 1_800_000_000.0,
            paths=self.host.paths,
            ledger=self.ledger,
            nvml=self.driver,
            kernel_log=KernelLog(self.host.paths, self.ledger),
            domains=DomainReadings(cast("Any", self.libvirt), self.ledger),
            flow_log=FlowLog(root / "var/log/ovn/ovn-controller.log"),
            tunnels=MeasuredTunnels(self.host.paths, RealTiming()),
        )

    def says(self, text: str) -> None:
        self.records += 1
        with self.host.paths.kernel_log.open("a") as file:
            file.write(f"3,{self.records},1000000,-;{text}\n")

    def read(self) -> HostFrame:
        frame = self.sampler.sample()
        assert frame is not None
        return frame

    def gpu(self, address: str) -> Reading:
        return next(reading for reading in self.read().readings if reading.id == UUIDS[address])


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.ledger.close()


def test_gpus_of_nvidias_driver_are_read_and_a_passed_through_one_is_silent_with_its_vm(scene: Scene) -> None:
    scene.host.bind(OTHER, "vfio-pci")
    scene.ledger.claim(f"gpu:{OTHER}", VM, until_reboot=True)
    assert (scene.gpu(GPU).get("gpu_power_watts"), scene.gpu(GPU).silent) == (70.0, "")
    passed = scene.gpu(OTHER)
    assert (passed.silent, passed.vm, passed.keys) == ("passed through", VM, ())


def test_a_gpu_that_another_driver_has_says_which(scene: Scene) -> None:
    scene.host.bind(OTHER, None)
    assert scene.gpu(OTHER).silent == "driver none has it"


def test_fatal_xids_are_told_from_nought_and_counted_even_of_a_gpu_that_is_silent(scene: Scene) -> None:
    before = scene.gpu(GPU)
    assert [before.get("gpu_xid_total", str(xid)) for xid in FATAL_XIDS] == [0.0] * len(FATAL_XIDS)
    for line in ("79, GPU has fallen off the bus.", "79, again", "31, of a guest"):
        scene.says(f"NVRM: Xid (PCI:0000:41:00): {line}")
    scene.driver.silent[GPU] = "the driver does not answer"
    after = scene.gpu(GPU)
    assert [after.get("gpu_xid_total", xid) for xid in ("79", "31", "48")] == [2.0, 1.0, 0.0]
    assert scene.gpu(OTHER).get("gpu_xid_total", "79") == 0


def test_a_host_that_is_being_changed_is_not_told_of(scene: Scene) -> None:
    scene.driver.busy = True
    assert scene.sampler.sample() is None


def test_another_driver_is_asked_everything_anew(scene: Scene) -> None:
    for _ in range(3):
        scene.read()
    assert scene.driver.forgotten == 1
    scene.host.text(scene.host.paths.root / "run/vgpuctl-driver", "another\n")
    scene.read()
    assert scene.driver.forgotten == 2


STATS: dict[str, Any] = {
    "state.state": 1, "cpu.time": 2_500_000_000, "balloon.maximum": 1024, "balloon.rss": 512, "vcpu.current": 4,
    "block.count": 1, "block.0.name": "vda", "block.0.rd.bytes": 10, "block.0.wr.bytes": 20, "block.0.rd.reqs": 1,
    "block.0.wr.reqs": 2, "block.0.rd.times": 5_000_000, "block.0.wr.times": 2_000_000_000,
    "net.count": 1, "net.0.name": "vnet7", "net.0.rx.bytes": 30, "net.0.rx.pkts": 3,
    "net.0.rx.errs": 0, "net.0.rx.drop": 1, "net.0.tx.bytes": 40, "net.0.tx.pkts": 4, "net.0.tx.errs": 0,
    "net.0.tx.drop": 0,
}  # fmt: skip


def test_vms_of_ours_are_told_of_in_base_units_and_no_others(scene: Scene) -> None:
    scene.ledger.claim(domain_key(VM), VM)
    scene.libvirt.domains = {VM: STATS, FOREIGN: STATS}
    (vm,) = (reading for reading in scene.read().readings if reading.kind == "vm")
    assert vm.id == VM
    assert dict(zip(vm.keys, vm.numbers, strict=True)) == {
        ("vm_cpu_seconds_total", ""): 2.5,
        ("vm_memory_maximum_bytes", ""): 1024 * 1024,
        ("vm_memory_resident_bytes", ""): 512 * 1024,
        ("vm_vcpus", ""): 4,
        ("vm_disk_read_bytes_total", "vda"): 10,
        ("vm_disk_written_bytes_total", "vda"): 20,
        ("vm_disk_reads_total", "vda"): 1,
        ("vm_disk_writes_total", "vda"): 2,
        ("vm_disk_read_seconds_total", "vda"): 0.005,
        ("vm_disk_write_seconds_total", "vda"): 2,
        ("vm_network_received_bytes_total", "0"): 30,
        ("vm_network_received_packets_total", "0"): 3,
        ("vm_network_received_errors_total", "0"): 0,
        ("vm_network_received_drops_total", "0"): 1,
        ("vm_network_sent_bytes_total", "0"): 40,
        ("vm_network_sent_packets_total", "0"): 4,
        ("vm_network_sent_errors_total", "0"): 0,
        ("vm_network_sent_drops_total", "0"): 0,
    }
    assert all(BY_NAME[name].has_label(label) for name, label in vm.keys)


def test_a_vm_that_tells_less_has_no_number_for_the_rest(scene: Scene) -> None:
    scene.ledger.claim(domain_key(VM), VM)
    scene.libvirt.domains = {VM: {"state.state": 5, "balloon.maximum": 1024}}
    (vm,) = (reading for reading in scene.read().readings if reading.kind == "vm")
    assert vm.keys == (("vm_memory_maximum_bytes", ""),)


def test_without_libvirt_gpus_are_told_of_and_why_vms_are_not(scene: Scene) -> None:
    scene.ledger.claim(domain_key(VM), VM)
    scene.libvirt.down = True
    frame = scene.read()
    assert frame.problems == ("libvirt is not running on the host",)
    assert [reading.kind for reading in frame.readings] == ["gpu", "gpu"]


@pytest.mark.parametrize(("holders", "vm"), [([], ""), ([VM], VM), ([KEEPER], ""), ([VM, FOREIGN], "")])
def test_a_gpu_instance_is_whose_it_is_alone(scene: Scene, holders: list[str], vm: str) -> None:
    for number, holder in enumerate(holders):
        scene.ledger.claim(f"gi:{GPU}:4" + (f":{holder}" if number else ""), holder, until_reboot=True)
    assert InstanceVms(scene.ledger).of(GPU, 4) == vm
    assert InstanceVms(scene.ledger).of(GPU, None) == ""
