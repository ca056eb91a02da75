# SPDX-License-Identifier: Apache-2.0
"""``-L``, ``-q -x``, ``--query-gpu`` and the summary."""

from __future__ import annotations

import time
from xml.etree import ElementTree as ET

from .gpus import UNITS, Gpu
from .nvml import Nvml


def listing(gpus: list[Gpu]) -> str:
    """``-L``: a line per GPU."""
    return "".join(f"GPU {gpu.index}: {gpu.answer('name')} (UUID: {gpu.answer('uuid')})\n" for gpu in gpus)


def query(gpus: list[Gpu], fields: list[str], formats: list[str]) -> str:
    """``--query-gpu``: comma-separated rows; raises KeyError for an unknown field."""
    units = {} if "nounits" in formats else UNITS
    lines = []
    if "noheader" not in formats:
        lines.append(", ".join(f"{name} [{UNITS[name]}]" if name in UNITS else name for name in fields))
    for gpu in gpus:
        values = [(gpu.answer(name), units.get(name, "")) for name in fields]
        lines.append(", ".join(f"[{v}]" if v == "N/A" else f"{v} {unit}".rstrip() for v, unit in values))
    return "\n".join(lines) + "\n"


def set_persistence(nvml: Nvml, gpus: list[Gpu], value: int) -> str:
    """``-pm 0|1``: a GPU that nothing uses is let go, or kept initialised."""
    text = ""
    for gpu in gpus:
        nvml.call("nvmlDeviceSetPersistenceMode", gpu.device, value)
        text += f"{'Enabled' if value else 'Disabled'} persistence mode for GPU {gpu.bus_id}.\n"
    return text + "All done.\n"


def _add(parent: ET.Element, name: str, **children: str) -> ET.Element:
    element = ET.SubElement(parent, name)
    for child, text in children.items():
        ET.SubElement(element, child).text = text
    return element


def _unit(gpu: Gpu, field: str) -> str:
    value = gpu.answer(field)
    return value if value == "N/A" else f"{value} {UNITS[field]}"


def _identity(gpu: Gpu, root: ET.Element) -> None:
    for name, text in (
        ("product_name", gpu.answer("name")),
        ("product_brand", "Tesla" if gpu.answer("name").startswith("Tesla") else "NVIDIA"),
        ("product_architecture", gpu.architecture()),
        ("persistence_mode", gpu.answer("persistence_mode")),
    ):
        ET.SubElement(root, name).text = text
    _add(root, "mig_mode", current_mig=gpu.answer("mig.mode.current"), pending_mig=gpu.answer("mig.mode.pending"))
    ET.SubElement(root, "mig_devices").text = "None"
    for name in ("serial", "uuid", "minor_number"):
        ET.SubElement(root, name).text = gpu.answer(name)
    ET.SubElement(root, "multigpu_board").text = "No"
    ET.SubElement(root, "board_part_number").text = gpu.answer("board_part_number")
    _add(root, "platformInfo", module_id=gpu.answer("module_id"))
    _add(
        root,
        "gpu_virtualization_mode",
        virtualization_mode=gpu.virtualization_mode(),
        host_vgpu_mode=gpu.host_vgpu_mode(),
        vgpu_heterogeneous_mode=gpu.heterogeneous(),
    )
    pci = gpu.pci
    _add(
        root,
        "pci",
        pci_bus=f"{pci.bus:02X}",
        pci_device=f"{pci.device:02X}",
        pci_domain=f"{pci.domain:04X}",
        pci_base_class="3",
        pci_sub_class="2",
        pci_device_id=f"{pci.device_id:08X}",
        pci_bus_id=gpu.bus_id,
        pci_sub_system_id=f"{pci.subsystem_id:08X}",
    )


def _readings(gpu: Gpu, root: ET.Element) -> None:
    _add(
        root,
        "fb_memory_usage",
        total=_unit(gpu, "memory.total"),
        used=_unit(gpu, "memory.used"),
        free=_unit(gpu, "memory.free"),
    )
    ET.SubElement(root, "compute_mode").text = gpu.answer("compute_mode")
    _add(root, "utilization", gpu_util=_unit(gpu, "utilization.gpu"), memory_util=_unit(gpu, "utilization.memory"))
    _add(root, "ecc_mode", current_ecc=gpu.answer("ecc.mode.current"), pending_ecc=gpu.answer("ecc.mode.pending"))
    errors = ET.SubElement(root, "ecc_errors")
    _add(
        errors,
        "volatile",
        dram_correctable=gpu.answer("ecc.errors.corrected.volatile.total"),
        dram_uncorrectable=gpu.answer("ecc.errors.uncorrected.volatile.total"),
    )
    _add(root, "temperature", gpu_temp=f"{gpu.answer('temperature.gpu')} C")
    _add(
        root,
        "gpu_power_readings",
        instant_power_draw=_unit(gpu, "power.draw"),
        current_power_limit=_unit(gpu, "power.limit"),
        default_power_limit=_unit(gpu, "power.default_limit"),
        min_power_limit=_unit(gpu, "power.min_limit"),
        max_power_limit=_unit(gpu, "power.max_limit"),
    )
    ET.SubElement(root, "processes").text = ""


def cuda_version(nvml: Nvml) -> str:
    """``12.4`` for NVML's 12040."""
    number = nvml.number("nvmlSystemGetCudaDriverVersion_v2")
    return f"{number // 1000}.{number % 1000 // 10}"


def xml(nvml: Nvml, gpus: list[Gpu]) -> str:
    """``-q -x``: the elements of the real document for which a lab host has an answer."""
    root = ET.Element("nvidia_smi_log")
    for name, text in (
        ("timestamp", time.strftime("%a %b %e %H:%M:%S %Y")),
        ("driver_version", nvml.text("nvmlSystemGetDriverVersion")),
        ("cuda_version", cuda_version(nvml)),
        ("attached_gpus", str(len(gpus))),
    ):
        ET.SubElement(root, name).text = text
    for gpu in gpus:
        element = ET.SubElement(root, "gpu", id=gpu.bus_id)
        _identity(gpu, element)
        _readings(gpu, element)
    ET.indent(root, "\t")
    head = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n'
    return head + ET.tostring(root, encoding="unicode") + "\n"


def summary(nvml: Nvml, gpus: list[Gpu]) -> str:
    """No arguments: a table, a row per GPU."""
    driver = nvml.text("nvmlSystemGetDriverVersion")
    bar = "+" + "-" * 89 + "+\n"
    lines = [
        bar,
        f"| NVIDIA-SMI {driver:<22} Driver Version: {driver:<18} CUDA Version: {cuda_version(nvml):<11} |\n",
        bar,
    ]
    for gpu in gpus:
        memory = f"{gpu.answer('memory.used')}MiB / {gpu.answer('memory.total')}MiB"
        heat = f"{gpu.answer('temperature.gpu'):>3}C"
        row = f"{gpu.index:>3}  {gpu.answer('name'):<30} {gpu.bus_id:<18} {heat} {memory:>24}"
        lines.append(f"| {row:<87} |\n")
    return "".join([*lines, bar])
