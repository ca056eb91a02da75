# SPDX-License-Identifier: Apache-2.0
"""VMs with a vGPU move between two lab hosts by ``virsh migrate --live`` alone: what the lab's driver does.
Two mediated devices of one VM, a virtual function, and a MIG-backed vGPU."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from orchestrator.agent.build_zipapp import build_agent
from tests.lab.conftest import LabHost, lab, listed

pytestmark = pytest.mark.lab

NAMES: Final = ("source", "target")
SPEAKS_WITHIN_S: Final = 240.0
WRITTEN: Final = "5eed1e57"
"""What the guest keeps in its vGPU (lab/guest/smallest.S)."""
_GPUS: Final = "/sys/kernel/vgpu_lab/gpus"
_MDEVS: Final = ("11111111-2222-4333-8444-555555555501", "11111111-2222-4333-8444-555555555502")
_VF: Final = "/sys/bus/pci/devices/{gpu}/virtfn0"
_ONLY_OLDER: Final = "1024 0 0 0x70001 0x110001"
_AS_LOADED: Final = "1024 0 0 0x70001 0x120001"
_DOMAIN: Final = """<domain type='kvm'>
  <name>{name}</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
  <os><type arch='x86_64' machine='q35'>hvm</type></os>
  <features><acpi/><apic/><smm state='off'/></features><cpu mode='host-passthrough'/>
  <devices>
    <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='/var/tmp/counting.qcow2'/>
      <target dev='vda' bus='virtio'/><readonly/></disk>
    <controller type='usb' model='none'/><memballoon model='none'/>
    <serial type='file'><source path='/var/tmp/{name}.log'/></serial>
    {devices}
  </devices>
</domain>"""
_OF_MDEV: Final = """<hostdev mode='subsystem' type='mdev' model='vfio-pci'>
      <source><address uuid='{}'/></source></hostdev>"""
_OF_VF: Final = """<hostdev mode='subsystem' managed='no' type='pci'>
      <source><address domain='0x0000' bus='0x{}' slot='0x00' function='0x1'/></source></hostdev>"""
_AGENT: Final = "/tmp/agent.pyz"
_AS_AGENT: Final = """
import json
from orchestrator.agent.nvml.reading import Nvml
from orchestrator.agent.nvml.vgpu_metadata import compatibilities
nvml = Nvml()
gpu = next(iter(nvml.read().gpus.values()))
print(json.dumps({}))
"""
"""What our agent, which is not installed there, would do."""


@dataclass(frozen=True)
class Kind:
    """``made``: how its vGPUs come to be on a host; ``gpu``: its number in the scenario."""

    name: str
    gpu: int
    made: str
    devices: str


MDEVS: Final = Kind(
    "mdevs", 0,
    "".join(f"echo {uuid} >/sys/class/mdev_bus/{{gpu}}/mdev_supported_types/nvidia-231/create; " for uuid in _MDEVS),
    "".join(map(_OF_MDEV.format, _MDEVS)),
)  # fmt: skip
_FUNCTIONS: Final = "/usr/lib/nvidia/sriov-manage -e {gpu}; "
VENDOR: Final = Kind(
    "vendor", 1, f"{_FUNCTIONS} echo 1155 >{_VF}/nvidia/current_vgpu_type", _OF_VF.format("02")
)  # fmt: skip
MIG_BACKED: Final = Kind(
    "instance", 2,
    f"echo mode 1 >{_GPUS}/2/mig_command; {_FUNCTIONS} echo gi 14 -1 >{_GPUS}/2/mig_command; "
    f"echo 700 >{_VF}/nvidia/current_vgpu_type", _OF_VF.format("03"),
)  # fmt: skip


class Moves:
    """From the one host to the other, by its root's key."""

    def __init__(self, source: LabHost, target: LabHost, agent: Path) -> None:
        self.source, self.target = source, target
        image = Path(lab("guest-image", "--counting").strip())
        for host in (source, target):
            host.send(image, "/var/tmp/counting.qcow2")
            host.send(agent, _AGENT)
        self._to = target.run("ip -4 -o address | grep -o '10[.]77[.][0-9.]*' | head -1").strip()
        key = source.run(
            "[ -f .ssh/id_ed25519 ] || ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519; "
            f"ssh-keyscan -t ed25519 {self._to} 2>/dev/null >.ssh/known_hosts; cat .ssh/id_ed25519.pub"
        ).strip()
        target.run(f"echo '{key}' >>.ssh/authorized_keys")

    def start(self, kind: Kind) -> None:
        """Its vGPUs on both hosts, its VM on the one; its guest counts."""
        for host in (self.source, self.target):
            host.run(kind.made.format(gpu=host.run(f"sed -n 's/^bdf //p' {_GPUS}/{kind.gpu}/state").strip()))
        text = _DOMAIN.format(name=kind.name, devices=kind.devices)
        self.source.run(f"cat >/tmp/{kind.name}.xml <<'END'\n{text}\nEND\nvirsh create /tmp/{kind.name}.xml")
        self.count(kind, 3)

    def move(self, kind: Kind) -> bool:
        """Whether virsh says that it did."""
        words = f"virsh migrate --live {kind.name} qemu+ssh://root@{self._to}/system --migrateuri tcp://{self._to}"
        said = self.source.run(f"{words} 2>/tmp/refused && echo moved || cat /tmp/refused", limit_s=600)
        return said.endswith("moved\n")

    def count(self, kind: Kind, more: int = 2) -> None:
        """The guest goes on counting by one, wherever it is, and its register reads as it was written."""
        end, before = time.monotonic() + SPEAKS_WITHIN_S, len(self._said(kind))
        while len(said := self._said(kind)) < before + more:
            assert time.monotonic() < end, said
            time.sleep(1)
        assert said == [f"{number:08x} {WRITTEN}" for number in range(len(said))]

    def _said(self, kind: Kind) -> list[str]:
        """The whole lines that it has counted, on the one host and then on the other."""
        logs = [host.run(f"tr -d '\\r' </var/tmp/{kind.name}.log || true") for host in (self.source, self.target)]
        _, _, counted = "".join(logs).partition("vgpu-guest ready\n")
        return counted.split("\n")[:-1]

    def where(self, kind: Kind) -> list[str]:
        """The hosts that have a domain of it, and its state there."""
        asked = f"virsh domstate {kind.name} 2>/dev/null || true"
        return [f"{host.name} {state}" for host in (self.source, self.target) if (state := host.run(asked).strip())]

    def compatibility(self) -> list[list[int]]:
        """What an agent on the target is answered of the vGPUs that run on the source: states, limits of each."""
        vgpus = self._ask(self.source, "[vgpu.metadata for vgpu in gpu.open_vgpus]")
        answers = f"compatibilities([[vgpu, gpu.metadata] for vgpu in {vgpus}], nvml.change)"
        return list(self._ask(self.target, f"[[answer.states, answer.limits] for answer in {answers}]"))

    @staticmethod
    def _ask(host: LabHost, expression: str) -> Any:
        return json.loads(host.run(f"PYTHONPATH={_AGENT} python3 - <<'END'\n{_AS_AGENT.format(expression)}\nEND"))


@pytest.fixture(scope="module")
def moves(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Moves]:
    agent = tmp_path_factory.mktemp("agent") / "agent.pyz"
    build_agent(agent)
    before = set(listed())
    lab("up", "--scenario", "lab/scenarios/two-alike.yaml")
    hosts = listed()
    try:
        yield Moves(hosts["source"], hosts["target"], agent)
    finally:
        if ended := [name for name in NAMES if name not in before]:
            lab("down", *ended)


def test_a_move_that_fails_in_any_phase_leaves_the_vm_and_its_vgpus_where_they_are(moves: Moves) -> None:
    moves.start(MDEVS)
    assert moves.compatibility() == [[15, 0]] * 2
    for host, phase in [
        ("source", "save"), ("source", "pre-copy"), ("source", "stop-copy"), ("target", "resume"), ("target", "load"),
    ]:  # fmt: skip
        lab("fault", host, "0", "fault_create", phase)
        assert not moves.move(MDEVS), phase
        assert moves.where(MDEVS) == ["source running"], phase
        moves.count(MDEVS)
    lab("fault", "target", "0", "migration", *_ONLY_OLDER.split())
    assert moves.compatibility() == [[1, 1]] * 2  # cold, by the host's driver
    assert not moves.move(MDEVS)
    assert "version 0x120001 is refused" in moves.target.run("dmesg")
    lab("fault", "target", "0", "migration", *_AS_LOADED.split())
    assert moves.move(MDEVS)
    assert moves.where(MDEVS) == ["target running"]
    moves.count(MDEVS)


@pytest.mark.parametrize("kind", [VENDOR, MIG_BACKED], ids=lambda kind: str(kind.name))
def test_a_vm_on_a_virtual_function_moves_with_what_it_changes_meanwhile(moves: Moves, kind: Kind) -> None:
    for host in NAMES:
        lab("fault", host, str(kind.gpu), "migration", "8192", "512", "7", "0x70001", "0x120001")
    moves.start(kind)
    assert moves.move(kind)
    assert moves.where(kind) == ["target running"]
    moves.count(kind)
