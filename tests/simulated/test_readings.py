# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import pytest
from cryptography.fernet import Fernet

from orchestrator.catalogue.catalogue import shipped
from orchestrator.core.hosts.host import Host
from orchestrator.core.readings.frame import HostFrame, frame_from_dict, frame_to_dict
from orchestrator.server.settings import load_settings
from orchestrator.server.simulated import simulated_hosts
from orchestrator.sim.fleet import enrolled, new_machine
from orchestrator.sim.hardware import gpu_kind
from orchestrator.sim.hosts_link import HostsLink
from orchestrator.sim.in_memory import new_host, record_enrolled
from orchestrator.sim.kernel import VFIO
from orchestrator.sim.machine import Domain, SimulatedMachine, claim
from orchestrator.sim.machine_link import MachineLink
from orchestrator.sim.observing import snapshot_of
from orchestrator.sim.readings import frame_of
from tests.fakes.new_database import new_store

T = TypeVar("T")
SITE = "site-1"
VM = "5f0a86b4-54f6-4f0c-9d3c-6d4e8a3c2b10"
MDEV = "6f0a86b4-54f6-4f0c-9d3c-6d4e8a3c2b11"
HOUR = 3600.0
FLEET = """\
groups:
  - {name: live, count: 1, gpu_model: Tesla T4, gpus_per_host: 2, vcpus: 32, memory_gib: 128}
  - {name: silent, count: 1, gpu_model: Tesla T4, gpus_per_host: 2, vcpus: 32, memory_gib: 128, readings: silent}
  - {name: slow, count: 1, gpu_model: Tesla T4, gpus_per_host: 2, vcpus: 32, memory_gib: 128, readings: slow}
"""


def with_a_vm(model: str = "Tesla T4") -> SimulatedMachine:
    """Two GPUs, and one VM that has run for an hour with a vGPU on the first."""
    machine = enrolled(new_machine(1, [gpu_kind(shipped(), model)] * 2), SITE)
    machine.now = HOUR
    gpu = machine.kernel.gpus[0]
    vgpu_type = machine.kernel.creatable(gpu)[0]
    machine.kernel.create_mdev(gpu.parents()[0], vgpu_type.name, MDEV)
    claim(machine, f"domain:{VM}", VM)
    machine.domains[VM] = Domain(name="train", devices=(MDEV,), running=True, vcpus=4)
    return machine


def test_a_running_vm_has_readings_and_so_has_its_vgpu() -> None:
    machine = with_a_vm()
    frame = frame_of(machine)
    of = {(reading.kind, reading.id): reading for reading in frame.readings}
    vgpu, vm = of["vgpu", MDEV], of["vm", VM]
    assert (vgpu.vm, vgpu.gpu) == (VM, machine.uuid_of(machine.kernel.gpus[0]))
    assert vgpu.get("vgpu_licensed") == 1
    assert 0 < (vgpu.get("vgpu_sm_ratio") or 0) <= 1
    assert vm.get("vm_vcpus") == 4
    busy, idle = (of["gpu", machine.uuid_of(gpu)] for gpu in machine.kernel.gpus)
    assert busy.get("gpu_memory_used_bytes") == vgpu.get("vgpu_memory_used_bytes")
    assert idle.get("gpu_utilization_ratio") == 0
    machine.domains[VM].running = False
    assert ("vgpu", MDEV) not in {(reading.kind, reading.id) for reading in frame_of(machine).readings}


def test_numbers_are_of_the_state_and_the_moment_alone_and_counters_only_grow() -> None:
    machine, same = with_a_vm(), with_a_vm()
    before = frame_of(machine)
    assert before == frame_of(same)
    assert frame_from_dict(frame_to_dict(before)) == before, "no quantity is one that a controller leaves out"
    machine.now += 10
    for old, new in zip(before.readings, frame_of(machine).readings, strict=True):
        counters = [(of.name, label, number) for of, label, number in old.values() if of.kind == "counter"]
        assert all((new.get(name, label) or 0) >= number for name, label, number in counters)


def test_a_gpu_that_was_passed_through_is_silent_with_its_vm() -> None:
    machine = enrolled(new_machine(1, [gpu_kind(shipped(), "L40S")]), SITE)
    gpu = machine.kernel.gpus[0]
    machine.kernel.switch_functions(gpu, on=False)
    machine.kernel.bind(gpu, VFIO)
    claim(machine, f"gpu:{gpu.address}", VM)
    (reading,) = frame_of(machine).readings
    assert (reading.silent, reading.vm, len(reading.numbers)) == ("passed through", VM, 0)


def test_gpu_instances_have_readings_of_their_own_and_their_gpu_tells_no_utilisation() -> None:
    machine = enrolled(new_machine(1, [gpu_kind(shipped(), "A100 PCIe 40GB")]), SITE)
    gpu = machine.kernel.gpus[0]
    gpu.mig = True
    gpu.instances[3] = (gpu.kind.profiles[0].name, 0)
    whole, instance = frame_of(machine).readings
    assert instance.id == f"{machine.uuid_of(gpu)}/3"
    assert whole.get("gpu_utilization_ratio") is None
    assert instance.get("gpu_instance_memory_total_bytes") is not None


class _Direct(MachineLink):
    """To one machine, without a way between."""

    def __init__(self, machine: SimulatedMachine) -> None:
        super().__init__(site=SITE)
        self.machine = machine
        self.period_s = 0.01

    def _call(self, host: Host, name: str, work: Callable[[SimulatedMachine], T]) -> T:
        return work(self.machine)


def test_a_host_in_memory_is_watched_until_its_link_ends() -> None:
    link = _Direct(with_a_vm())
    watch = link.watch(new_host("h", "h.test", None, (), 0.0))
    for sent in (next(watch), next(watch)):
        assert isinstance(sent, HostFrame)
    link.ended.set()
    assert list(watch) == []


def test_hosts_in_a_process_of_their_own_send_readings_as_the_fleet_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(FLEET)
    with simulated_hosts(fleet, load_settings(state=tmp_path)) as socket:
        link = HostsLink(socket, site=SITE, period_s=0.05)
        link.enrol(())
        for name in ("live-0", "slow-0"):
            watch = link.watch(new_host(name, f"{name}.test", None, (), 0.0))
            for sent in (next(watch), next(watch)):
                assert isinstance(sent, HostFrame)
                assert [reading.kind for reading in sent.readings] == ["gpu", "gpu"]
        silent = link.watch(new_host("silent-0", "silent-0.test", None, (), 0.0))
        link.close()
        assert list(silent) == []


def test_hosts_that_are_enrolled_together_are_known_with_the_limits_of_their_gpus(tmp_path: Path) -> None:
    machine = enrolled(new_machine(1, [gpu_kind(shipped(), "L40S")] * 2), SITE)
    snapshot = snapshot_of(machine)
    with closing(new_store(tmp_path / "site.sqlite", Fernet.generate_key())) as store:
        record_enrolled(store, [("l40s-1", "l40s-1.test", snapshot)], HOUR)
        with store.read() as tx:
            known = tx.power.all()
    assert {key: [power.least, power.default, power.most, power.now] for key, power in known.items()} == {
        ("l40s-1", gpu.address): [
            gpu.power_min_watts, gpu.power_default_watts, gpu.power_max_watts, gpu.power_limit_watts
        ]
        for gpu in snapshot.gpus
    }  # fmt: skip
    assert all(power.least < power.most for power in known.values())
