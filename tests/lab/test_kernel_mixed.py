# SPDX-License-Identifier: Apache-2.0
"""Whole GPUs on a lab host: given to a guest and back, with the groups and resets that a real host has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest

from tests.lab.conftest import LabHost, lab
from tests.lab.gpu_host import gpu_address

pytestmark = pytest.mark.lab

_DOMAIN = """<domain type='kvm'>
  <name>{name}</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <features><acpi/><apic/><smm state='off'/></features><cpu mode='host-passthrough'/>
  <devices>
    <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/var/tmp/smallest.qcow2'/>
      <target dev='vda' bus='virtio'/><readonly/></disk>
    <controller type='usb' model='none'/><memballoon model='none'/>
    <serial type='file'><source path='/var/tmp/{name}.log'/></serial>
    <hostdev mode='subsystem' type='pci' managed='yes'><source>
      <address domain='0x{domain}' bus='0x{bus}' slot='0x{slot}' function='0x{function}'/></source></hostdev>
  </devices>
</domain>"""


class WholeGpus:
    def __init__(self, host: LabHost) -> None:
        self.host = host
        self.t4 = gpu_address(host.run, "Tesla T4")
        self.a40 = gpu_address(host.run, "NVIDIA A40")
        self.l40s = gpu_address(host.run, "NVIDIA L40S")
        host.send(Path(lab("guest-image", "--smallest").strip()), "/var/tmp/smallest.qcow2")

    def start(self, name: str, address: str) -> str:
        """What virsh said."""
        domain, bus, rest = address.split(":")
        slot, function = rest.split(".")
        text = _DOMAIN.format(name=name, domain=domain, bus=bus, slot=slot, function=function)
        self.host.run(f"cat >/var/tmp/{name}.xml <<'END'\n{text}\nEND")
        return self.host.run(f"rm -f /var/tmp/{name}.log; virsh create /var/tmp/{name}.xml 2>&1 || true", limit_s=600)

    def serial(self, name: str, word: str) -> str:
        """The serial port's text once it has a word; fails after five minutes."""
        deadline = monotonic() + 300
        while monotonic() < deadline:
            text = self.host.run(f"cat /var/tmp/{name}.log")
            if word in text:
                return text
            sleep(1)
        raise AssertionError(text)

    def driver(self, address: str) -> str:
        return self.host.run(f"basename $(readlink /sys/bus/pci/devices/{address}/driver)").strip()

    def names(self) -> list[str]:
        return [row.split(" (")[0].partition(": ")[2] for row in self.host.run("nvidia-smi -L").splitlines()]


@pytest.fixture(scope="module")
def gpus(mixed: LabHost) -> Iterator[WholeGpus]:
    gpus = WholeGpus(mixed)
    yield gpus
    gpus.host.run("for name in $(virsh list --name); do virsh destroy $name; done")


ALL = ["Tesla T4", "NVIDIA A40", "NVIDIA L40S", "NVIDIA A100 80GB PCIe"]


def test_a_guest_gets_the_whole_gpu_and_gives_it_back_at_the_power_button(gpus: WholeGpus) -> None:
    assert "created" in gpus.start("whole", gpus.l40s)
    assert "10de:26b9" in gpus.serial("whole", "vgpu-guest ready")
    assert gpus.driver(gpus.l40s) == "vfio-pci"
    assert gpus.names() == [name for name in ALL if name != "NVIDIA L40S"]
    gpus.host.run("virsh shutdown whole; while virsh domid whole; do sleep 0.5; done")
    assert gpus.driver(gpus.l40s) == "nvidia"
    assert gpus.names() == ALL


def test_gpus_behind_one_switch_share_a_group_that_is_given_whole_or_not_at_all(gpus: WholeGpus) -> None:
    group = gpus.host.run(f"ls /sys/bus/pci/devices/{gpus.t4}/iommu_group/devices").split()
    assert {gpus.t4, gpus.a40} <= set(group)
    said = gpus.start("shared", gpus.t4)
    assert "created" not in said
    assert "viable" in said or "busy" in said
    assert gpus.names() == ALL


def test_a_gpu_is_reset_by_its_function_or_by_its_bus(gpus: WholeGpus) -> None:
    methods = gpus.host.run(f"cat /sys/bus/pci/devices/{gpus.l40s}/reset_method").split()
    assert methods == ["flr", "bus"]
    groups = gpus.host.run(f"ls /sys/bus/pci/devices/{gpus.l40s}/iommu_group/devices").split()
    assert groups == [gpus.l40s]


def test_config_space_itself_says_nvidia(gpus: WholeGpus) -> None:
    words = gpus.host.run(f"od -An -tx1 -N4 /sys/bus/pci/devices/{gpus.l40s}/config")
    assert words.split() == ["de", "10", "b9", "26"]
    said = gpus.host.run(f"virsh nodedev-dumpxml pci_{gpus.l40s.translate(str.maketrans(':.', '__'))}")
    assert "<class>0x030200</class>" in said
