# SPDX-License-Identifier: Apache-2.0
"""``nvidia-smi vgpu``: supported, creatable and active vGPUs, and the mode that mixes sizes."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

from .gpus import Gpu
from .nvml import Nvml, or_na


def _line(name: str, value: str, depth: int = 1) -> str:
    return f"{'    ' * depth}{name:<{38 - 4 * depth}}: {value}\n"


def _type_name(nvml: Nvml, type_id: int) -> str:
    return nvml.text("nvmlVgpuTypeGetName", type_id, by_reference=True)


def _flag(nvml: Nvml, type_id: int, capability: int) -> str:
    return or_na(lambda: bool(nvml.number("nvmlVgpuTypeGetCapabilities", type_id, capability)))


def _type_details(nvml: Nvml, gpu: Gpu, type_id: int) -> str:
    device, subsystem = nvml.pair("nvmlVgpuTypeGetDeviceID", type_id, kind=ctypes.c_ulonglong)
    width, height = nvml.pair("nvmlVgpuTypeGetResolution", type_id, 0)
    framebuffer = nvml.number("nvmlVgpuTypeGetFramebufferSize", type_id, kind=ctypes.c_ulonglong) >> 20
    rows = (
        ("Name", _type_name(nvml, type_id)),
        ("Class", nvml.text("nvmlVgpuTypeGetClass", type_id, by_reference=True)),
        ("GPU Instance Profile ID", or_na(lambda: nvml.number("nvmlVgpuTypeGetGpuInstanceProfileId", type_id))),
        ("Max Instances", str(nvml.number("nvmlVgpuTypeGetMaxInstances", gpu.device, type_id))),
        ("Max Instances Per VM", str(nvml.number("nvmlVgpuTypeGetMaxInstancesPerVm", type_id))),
        ("Multi vGPU Exclusive", _flag(nvml, type_id, 2)),
        ("vGPU Exclusive Type", _flag(nvml, type_id, 3)),
        ("vGPU Exclusive Size", _flag(nvml, type_id, 4)),
        ("Device ID", f"0x{device:08x}"),
        ("Sub System ID", f"0x{subsystem:08x}"),
        ("FB Memory", f"{framebuffer} MiB"),
        ("Display Heads", str(nvml.number("nvmlVgpuTypeGetNumDisplayHeads", type_id))),
        ("Maximum X Resolution", str(width)),
        ("Maximum Y Resolution", str(height)),
        ("Frame Rate Limit", or_na(lambda: nvml.number("nvmlVgpuTypeGetFrameRateLimit", type_id), "FPS")),
        ("GRID License", nvml.text("nvmlVgpuTypeGetLicense", type_id)),
    )
    head = _line("vGPU Type ID", f"{type_id:#x}")
    return head + "".join(_line(name, value, depth=2) for name, value in rows)


def types(nvml: Nvml, gpus: list[Gpu], call: str, verbose: bool) -> str:
    """``-s`` and ``-c``: the types that ``call`` names, per GPU."""
    text = ""
    for gpu in gpus:
        text += f"GPU {gpu.bus_id}\n"
        for type_id in nvml.ids(call, gpu.device):
            text += _type_details(nvml, gpu, type_id) if verbose else f"    {_type_name(nvml, type_id)}\n"
    return text


def _vm_name(vm_uuid: str, processes: Path = Path("/proc")) -> str:
    for cmdline in processes.glob("[0-9]*/cmdline"):
        try:
            line = cmdline.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if vm_uuid in line and (found := re.search(r"\0-name\0guest=([^,\0]+)", line)):
            return found[1]
    return "N/A"


def _instance(nvml: Nvml, vgpu: int) -> str:
    type_id = nvml.number("nvmlVgpuInstanceGetType", vgpu)
    total = nvml.number("nvmlVgpuTypeGetFramebufferSize", type_id, kind=ctypes.c_ulonglong) >> 20
    used = nvml.number("nvmlVgpuInstanceGetFbUsage", vgpu, kind=ctypes.c_ulonglong) >> 20
    vm_uuid = nvml.vm_id(vgpu)
    rows = (
        ("VM UUID", vm_uuid),
        ("VM Name", _vm_name(vm_uuid)),
        ("vGPU Name", _type_name(nvml, type_id)),
        ("vGPU Type", str(type_id)),
        ("vGPU UUID", nvml.text("nvmlVgpuInstanceGetUUID", vgpu)),
        ("MDEV UUID", or_na(lambda: nvml.text("nvmlVgpuInstanceGetMdevUUID", vgpu))),
        ("Guest Driver Version", nvml.text("nvmlVgpuInstanceGetVmDriverVersion", vgpu)),
        ("License Status", nvml.licence(vgpu)),
        ("GPU Instance ID", or_na(lambda: nvml.number("nvmlVgpuInstanceGetGpuInstanceId", vgpu))),
        ("Placement ID", or_na(lambda: nvml.placement_id(vgpu))),
        ("Frame Rate Limit", or_na(lambda: nvml.number("nvmlVgpuInstanceGetFrameRateLimit", vgpu), "FPS")),
    )
    text = _line("vGPU ID", str(vgpu)) + "".join(_line(name, value, depth=2) for name, value in rows)
    text += "        FB Memory Usage\n"
    for name, value in (("Total", total), ("Used", used), ("Free", total - used)):
        text += _line(name, f"{value} MiB", depth=3)
    return text


def active(nvml: Nvml, gpus: list[Gpu]) -> str:
    """``-q``: the vGPUs that running VMs have."""
    text = ""
    for gpu in gpus:
        vgpus = nvml.ids("nvmlDeviceGetActiveVgpus", gpu.device)
        text += f"GPU {gpu.bus_id}\n" + _line("Active vGPUs", str(len(vgpus)))
        text += "".join(_instance(nvml, vgpu) for vgpu in vgpus)
    return text


def set_mixed(nvml: Nvml, gpus: list[Gpu], value: int) -> str:
    """``-shm 0|1``: switch mixed sizes off or on."""
    text = ""
    for gpu in gpus:
        nvml.set_heterogeneous(gpu.device, value)
        text += f"{'Enabled' if value else 'Disabled'} vGPU heterogeneous mode for GPU {gpu.bus_id}\n"
    return text
