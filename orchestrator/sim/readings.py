# SPDX-License-Identifier: Apache-2.0
"""What GPUs, vGPUs and VMs of a machine in memory do: numbers of its state and the time alone, so that the same moment
of the same machine has the same."""

from __future__ import annotations

import math
import threading
import zlib
from collections.abc import Callable, Iterator
from typing import Final

from orchestrator.core.readings.frame import PASSED_THROUGH, HostFrame, Key, Reading, arranged
from orchestrator.core.readings.quantities import FATAL_XIDS, RECOVERY_ACTIONS
from orchestrator.sim.gpu_settings import power_limit
from orchestrator.sim.kernel import SimulatedGpu
from orchestrator.sim.machine import Domain, SimulatedMachine
from orchestrator.sim.observing import booted
from orchestrator.sim.vgpu_actions import OpenVgpu, holders, open_vgpus

_MIB: Final = 1024 * 1024
_EXPIRES_S: Final = 86_400
_SLOW_S: Final = 5.0
_NVLINKS: Final = 18
"""Of each H100 on a baseboard; NVIDIA H100 white paper."""

Numbers = dict[Key, float]


def frame_of(machine: SimulatedMachine) -> HostFrame:
    """As an agent there would send it now."""
    readings: list[Reading] = []
    for gpu in machine.kernel.gpus:
        readings += _of_gpu(machine, gpu)
    readings += (_vm(machine, uuid, domain) for uuid, domain in machine.domains.items() if _is_ours(machine, uuid))
    return HostFrame(taken_at=machine.now, readings=tuple(readings))


def sent_frame(machine: SimulatedMachine) -> HostFrame | None:
    """None: its agent sends none."""
    return None if machine.readings == "silent" else frame_of(machine)


def frames(
    read: Callable[[], HostFrame | None], *, slow: bool, period_s: float, ended: threading.Event
) -> Iterator[HostFrame]:
    """One now and one each period until ``ended``. ``slow``: each comes late, as of a host with a lot to do."""
    while True:
        frame = read()
        if slow and ended.wait(min(_SLOW_S, period_s / 2)):
            return
        if frame is not None:
            yield frame
        if ended.wait(period_s):
            return


def _is_ours(machine: SimulatedMachine, uuid: str) -> bool:
    return machine.owner(f"domain:{uuid}") == uuid


def _wave(name: str, now: float) -> float:
    """Between 0.05 and 0.95, a round in some minutes."""
    begin = zlib.crc32(name.encode())
    return 0.5 + 0.45 * math.sin(2 * math.pi * (now / (300 + begin % 300) + begin % 1000 / 1000))


def _of_gpu(machine: SimulatedMachine, gpu: SimulatedGpu) -> list[Reading]:
    uuid = machine.uuid_of(gpu)
    if gpu.driver != "nvidia":
        owner = machine.owner(f"gpu:{gpu.address}") or ""
        return [Reading("gpu", uuid, *arranged({}), vm=owner, facts=_facts(machine, gpu), silent=PASSED_THROUGH)]
    vgpus = [_vgpu(machine, gpu, vgpu) for vgpu in open_vgpus(machine, gpu)]
    instances = [_instance(machine, gpu, number) for number in sorted(gpu.instances)]
    return [_gpu(machine, gpu, vgpus), *instances, *vgpus]


def _facts(machine: SimulatedMachine, gpu: SimulatedGpu) -> dict[str, str]:
    facts = {"driver_version": machine.driver_version, "name": gpu.kind.model, "pci_address": gpu.address}
    return {name: text for name, text in facts.items() if text}


def _gpu(machine: SimulatedMachine, gpu: SimulatedGpu, vgpus: list[Reading]) -> Reading:
    kind, now, uuid = gpu.kind, machine.now, machine.uuid_of(gpu)
    total = kind.memory_mib * _MIB
    used = sum(vgpu.get("vgpu_memory_used_bytes") or 0.0 for vgpu in vgpus)
    reserved = total / 64
    busy = min(1.0, sum(vgpu.get("vgpu_sm_ratio") or 0.0 for vgpu in vgpus))
    limit = power_limit(gpu) or kind.power_max_watts
    numbers: Numbers = {
        ("gpu_memory_used_bytes", ""): used,
        ("gpu_memory_free_bytes", ""): max(0.0, total - used - reserved),
        ("gpu_memory_reserved_bytes", ""): reserved,
        ("gpu_memory_total_bytes", ""): total,
        ("gpu_temperature_celsius", "gpu"): 32 + 40 * busy,
        ("gpu_temperature_limit_celsius", "slowdown"): 89.0,
        ("gpu_temperature_limit_celsius", "shutdown"): 96.0,
        ("gpu_temperature_margin_celsius", ""): 89 - (32 + 40 * busy),
        ("gpu_power_watts", ""): min(float(limit), 40 + (kind.power_max_watts - 40) * busy),
        ("gpu_power_limit_watts", "enforced"): float(limit),
        ("gpu_energy_joules_total", ""): 40 * now,
        ("gpu_clock_hertz", "graphics"): 2.1e8 + 2.3e9 * busy,
        ("gpu_clock_hertz", "memory"): 9e9,
        ("gpu_clock_limited_seconds_total", "power"): 0.0,
        ("gpu_ecc_errors_total", "corrected"): 0.0,
        ("gpu_ecc_errors_total", "uncorrected"): 0.0,
        ("gpu_remapped_rows", "corrected"): 0.0,
        ("gpu_remapped_rows", "uncorrected"): 0.0,
        ("gpu_remap_pending", ""): 0.0,
        ("gpu_remap_failed", ""): 0.0,
        ("gpu_pcie_replays_total", ""): 0.0,
        ("gpu_pcie_link_width", ""): 16.0,
        ("gpu_pcie_link_width_max", ""): 16.0,
        ("gpu_pcie_link_generation", ""): 4.0,
        ("gpu_vgpus", ""): float(len(vgpus)),
    }
    numbers |= {("gpu_xid_total", str(xid)): 0.0 for xid in FATAL_XIDS}
    numbers |= {("gpu_recovery_action", action): 0.0 for action in RECOVERY_ACTIONS[1:]}
    if machine.kernel.fabric is not None:
        numbers["gpu_fabric_completed", ""] = 1.0
        for link in range(_NVLINKS):
            numbers |= {("gpu_nvlink_up", str(link)): 1.0, ("gpu_nvlink_errors_total", str(link)): 0.0}
    if not gpu.mig:  # drivers tell no utilisation of a GPU in MIG mode
        numbers |= {("gpu_utilization_ratio", ""): busy, ("gpu_memory_copy_ratio", ""): busy / 2}
    return Reading("gpu", uuid, *arranged(numbers), facts=_facts(machine, gpu))


def _instance(machine: SimulatedMachine, gpu: SimulatedGpu, number: int) -> Reading:
    profile, start = gpu.instances[number]
    rows = gpu.kind.profiles
    share = next(row.size for row in rows if row.name == profile) / max(row.size for row in rows)
    total = share * gpu.kind.memory_mib * _MIB
    vm = next(iter(holders(machine, gpu.address, start)), "")
    name = f"{machine.uuid_of(gpu)}/{number}"
    busy = _wave(name, machine.now) if vm in machine.domains and machine.domains[vm].running else 0.0
    numbers: Numbers = {
        ("gpu_instance_memory_used_bytes", ""): total * busy / 2,
        ("gpu_instance_memory_total_bytes", ""): total,
        ("gpu_instance_engine_active_ratio", ""): busy,
        ("gpu_instance_sm_active_ratio", ""): busy * 0.9,
        ("gpu_instance_tensor_active_ratio", ""): busy * 0.4,
        ("gpu_instance_dram_active_ratio", ""): busy * 0.6,
    }
    return Reading("gpu_instance", name, *arranged(numbers), gpu=machine.uuid_of(gpu), vm=vm)


def _vgpu(machine: SimulatedMachine, gpu: SimulatedGpu, vgpu: OpenVgpu) -> Reading:
    (name, type_name, vm), now = vgpu, machine.now
    vgpu_type = gpu.kind.type_named(type_name)
    total = float((vgpu_type.framebuffer_mib if vgpu_type else 0) * _MIB)
    up = booted(machine, machine.domains[vm])
    load = _wave(name, now) if up else 0.0
    numbers: Numbers = {
        ("vgpu_sm_ratio", ""): load / max(1, vgpu_type.max_instances if vgpu_type else 1),
        ("vgpu_memory_copy_ratio", ""): load / 4,
        ("vgpu_encoder_ratio", ""): 0.0,
        ("vgpu_decoder_ratio", ""): 0.0,
        ("vgpu_memory_used_bytes", ""): total * (0.1 + 0.8 * load),
        ("vgpu_memory_total_bytes", ""): total,
        ("vgpu_licensed", ""): float(up),
        ("vgpu_encoder_sessions", ""): 0.0,
        ("vgpu_frame_rate_limit", ""): 60.0,
    }
    facts = {"vgpu_type": type_name}
    if up:
        numbers["vgpu_license_expiry_timestamp_seconds", ""] = now - now % _EXPIRES_S + 2 * _EXPIRES_S
        facts["guest_driver_version"] = machine.driver_version
    return Reading("vgpu", name, *arranged(numbers), gpu=machine.uuid_of(gpu), vm=vm, facts=facts)


def _vm(machine: SimulatedMachine, uuid: str, domain: Domain) -> Reading:
    memory = float(domain.memory_mib * _MIB)
    numbers: Numbers = {("vm_memory_maximum_bytes", ""): memory, ("vm_vcpus", ""): float(domain.vcpus)}
    if domain.running:
        load, age = _wave(uuid, machine.now), max(0.0, machine.now - domain.started_at)
        numbers |= {
            ("vm_memory_resident_bytes", ""): memory * (0.3 + 0.5 * load),
            ("vm_memory_usable_bytes", ""): memory * (0.6 - 0.5 * load),
            ("vm_cpu_seconds_total", ""): age * domain.vcpus * 0.3,
            ("vm_disk_read_bytes_total", "vda"): 2e8 + age * 1e5,
            ("vm_disk_written_bytes_total", "vda"): 5e7 + age * 4e5,
            ("vm_disk_reads_total", "vda"): 9e3 + age * 4,
            ("vm_disk_writes_total", "vda"): 2e3 + age * 9,
            ("vm_disk_read_seconds_total", "vda"): 4 + age * 4e-4,
            ("vm_disk_write_seconds_total", "vda"): 1 + age * 2e-3,
        }
        for quantity in ("received_bytes", "sent_bytes", "received_packets", "sent_packets"):
            numbers[f"vm_network_{quantity}_total", "0"] = age * (8e4 if quantity.endswith("bytes") else 60)
        for quantity in ("received_errors", "sent_errors", "received_drops", "sent_drops"):
            numbers[f"vm_network_{quantity}_total", "0"] = 0.0
    return Reading("vm", uuid, *arranged(numbers))
