# SPDX-License-Identifier: Apache-2.0
"""Frames as agents send them."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.readings.frame import HostFrame, Key, Reading, arranged
from orchestrator.core.vms.vm import Vm

GIB = 1024.0**3
GPU_NUMBERS: Mapping[Key, float] = {
    ("gpu_utilization_ratio", ""): 0.37,
    ("gpu_memory_used_bytes", ""): 2 * GIB,
    ("gpu_memory_total_bytes", ""): 16 * GIB,
    ("gpu_temperature_celsius", "gpu"): 61.0,
    ("gpu_power_watts", ""): 48.5,
    ("gpu_clock_hertz", "sm"): 1.59e9,
    ("gpu_energy_joules_total", ""): 123456.0,
    ("gpu_xid_total", "79"): 0.0,
}
VGPU_NUMBERS: Mapping[Key, float] = {
    ("vgpu_sm_ratio", ""): 0.21,
    ("vgpu_memory_used_bytes", ""): GIB,
    ("vgpu_memory_total_bytes", ""): 2 * GIB,
    ("vgpu_licensed", ""): 1.0,
}
VM_NUMBERS: Mapping[Key, float] = {
    ("vm_memory_maximum_bytes", ""): 4 * GIB,
    ("vm_memory_resident_bytes", ""): GIB,
    ("vm_vcpus", ""): 2.0,
    ("vm_cpu_seconds_total", ""): 77.0,
    ("vm_disk_read_bytes_total", "vda"): 4096.0,
    ("vm_network_received_bytes_total", "0"): 512.0,
}
FACTS = {"driver_version": "580.95.02", "vbios_version": "90.04.38.00.03", "pci_address": "0000:41:00.0"}


def gpu_reading(uuid: str, numbers: Mapping[Key, float] = GPU_NUMBERS, *, silent: str = "", vm: str = "") -> Reading:
    return Reading("gpu", uuid, *arranged(numbers), vm=vm, facts=FACTS, silent=silent)


def vgpu_reading(name: str, gpu: str, vm: str, numbers: Mapping[Key, float] = VGPU_NUMBERS) -> Reading:
    facts = {"vgpu_type": "GRID T4-2Q", "guest_driver_version": "580.95.05"}
    return Reading("vgpu", name, *arranged(numbers), gpu=gpu, vm=vm, facts=facts)


def vm_reading(vm: str, numbers: Mapping[Key, float] = VM_NUMBERS) -> Reading:
    return Reading("vm", vm, *arranged(numbers))


def frame_of(snapshot: HostSnapshot, *vms: Vm, taken_at: float = 1_790_000_000.0) -> HostFrame:
    """Of a host with these VMs, each with the devices that the database knows."""
    uuids = {gpu.address: gpu.uuid for gpu in snapshot.gpus}
    vgpus = [vgpu_reading(device.name, uuids[device.gpu], vm.id) for vm in vms for device in vm.devices]
    gpus = [gpu_reading(gpu.uuid) for gpu in snapshot.gpus]
    return HostFrame(taken_at, (*gpus, *vgpus, *(vm_reading(vm.id) for vm in vms)))
