# SPDX-License-Identifier: Apache-2.0
"""GPUs as the snapshot shows them: the PCI bus says which there are, NVML what they are, sysfs what is on them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from orchestrator.agent.ledger import Ledger
from orchestrator.agent.nvml.reading import NvmlGpu, NvmlReading, type_names
from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import mdev, open_files, pci, vendor_vfio
from orchestrator.agent.vgpus import mdev_key, still_as_made, vf_key
from orchestrator.core.snapshot import Framework, GpuSnapshot, HostVgpuType, Mdev, VgpuParent

_UNSEEN = NvmlGpu(
    uuid=None, serial=None, name=None, memory_mib=None, mig_enabled=None,
    heterogeneous=None, module_id=None, types=(), problems=("NVML does not list this GPU",),
)  # fmt: skip

_DESCRIPTION = re.compile(r"framebuffer=(?P<framebuffer>[0-9]+)M\b.*\bmax_instances?=(?P<most>[0-9]+)", re.ASCII)


@dataclass(frozen=True)
class _View:
    """What all GPUs of one observation share."""

    paths: Paths
    ledger: Ledger
    names: Mapping[int, str]
    mdevs: tuple[mdev.MdevDevice, ...]
    opened: frozenset[str] | None


def observe_gpus(paths: Paths, ledger: Ledger, reading: NvmlReading) -> tuple[GpuSnapshot, ...]:
    names = type_names(reading)
    view = _View(paths, ledger, names, mdev.existing(paths, names), open_files.open_vfio_devices(paths))
    unseen = replace(_UNSEEN, problems=(*_UNSEEN.problems, *reading.unplaced))
    return tuple(_gpu(view, gpu, reading.gpus.get(gpu.address, unseen)) for gpu in pci.gpus(paths))


def _framework(paths: Paths, gpu: pci.PciGpu) -> Framework:
    if any(vendor_vfio.is_vendor_vfio(paths, vf) for vf in gpu.virtual_functions):
        return "vendor_vfio"
    if any(mdev.offers_types(paths, address) for address in (gpu.address, *gpu.virtual_functions)):
        return "mdev"
    return "none"


def _gpu(view: _View, gpu: pci.PciGpu, said: NvmlGpu) -> GpuSnapshot:
    problems = list(said.problems)
    framework: Framework = "none"
    parents: tuple[VgpuParent, ...] = ()
    types = said.types
    try:
        framework = _framework(view.paths, gpu)
        parents = _parents(view, gpu, framework, problems)
        types = types or _described_types(view, gpu)
    except (OSError, ValueError) as error:  # a GPU that falls off the bus while it is read costs itself only
        problems.append(f"its functions cannot be read: {error}")
    return GpuSnapshot(
        address=gpu.address,
        uuid=said.uuid or "",
        serial=said.serial,
        model=said.name or f"NVIDIA {gpu.vendor}:{gpu.device}",
        pci_vendor=gpu.vendor,
        pci_device=gpu.device,
        pci_subsystem_vendor=gpu.subsystem_vendor,
        pci_subsystem_device=gpu.subsystem_device,
        numa_node=gpu.numa_node,
        memory_mib=said.memory_mib or 0,
        driver=gpu.driver,
        framework=framework,
        sriov_total_vfs=gpu.total_vfs,
        sriov_enabled_vfs=gpu.enabled_vfs,
        mig_enabled=said.mig_enabled,
        heterogeneous=said.heterogeneous,
        module_id=said.module_id,
        types=types,
        parents=parents,
        problems=tuple(problems),
    )


def _described_types(view: _View, gpu: pci.PciGpu) -> tuple[HostVgpuType, ...]:
    """Without NVML: what the mdev types' descriptions say (``… framebuffer=2048M, … max_instance=8``)."""
    found: dict[int, HostVgpuType] = {}
    for address in (gpu.address, *gpu.virtual_functions):
        for offered in mdev.types(view.paths, address, view.names):
            match = _DESCRIPTION.search(offered.description())
            if match is not None:
                found[offered.type_id] = HostVgpuType(
                    name=offered.name,
                    type_id=offered.type_id,
                    framebuffer_mib=int(match["framebuffer"]),
                    max_instances=int(match["most"]),
                )
    return tuple(found[type_id] for type_id in sorted(found))


def _parents(view: _View, gpu: pci.PciGpu, framework: Framework, problems: list[str]) -> tuple[VgpuParent, ...]:
    if framework == "vendor_vfio":
        functions = [vendor_vfio.read(view.paths, vf) for vf in gpu.virtual_functions]
        problems.extend(function.problem for function in functions if function.problem is not None)
        names = {**{number: name for f in functions for number, name in f.creatable}, **view.names}
        return tuple(_typed_function(view, function, names) for function in functions)
    return tuple(
        _mdev_parent(view, address, is_vf=address != gpu.address)
        for address in (gpu.address, *gpu.virtual_functions)
        if mdev.offers_types(view.paths, address)
    )


def _typed_function(view: _View, function: vendor_vfio.VirtualFunction, names: Mapping[int, str]) -> VgpuParent:
    current = function.current_id
    # A function that cannot be read must not look free: it gets a type that nothing else has.
    shown = "unknown" if current is None else names.get(current, f"nvidia-{current}") if current else None
    return VgpuParent(
        address=function.address,
        is_vf=True,
        current_type=shown,
        creatable=tuple(name for _, name in function.creatable),
        mdevs=(),
        owner=_owner_of_type(view, function) if current else None,
        in_use=open_files.in_use(view.paths.pci(function.address), view.opened),
    )


def _owner_of_type(view: _View, function: vendor_vfio.VirtualFunction) -> str | None:
    """The owner in the ledger, unless somebody else put another type there since."""
    owner = view.ledger.owner(vf_key(function.address))
    return owner.vm if owner is not None and still_as_made(owner, function) else None


def _mdev_parent(view: _View, address: str, *, is_vf: bool) -> VgpuParent:
    devices = [device for device in view.mdevs if device.parent == address]
    offered = mdev.types(view.paths, address, view.names)
    return VgpuParent(
        address=address,
        is_vf=is_vf,
        current_type=None,
        creatable=tuple(found.name for found in offered if found.available()),
        mdevs=tuple(Mdev(uuid=d.uuid, type_name=d.type_name, owner=_mdev_owner(view, d)) for d in devices),
        owner=None,
        in_use=_any_in_use(view, devices),
    )


def _mdev_owner(view: _View, device: mdev.MdevDevice) -> str | None:
    owner = view.ledger.owner(mdev_key(device.uuid))
    return None if owner is None else owner.vm


def _any_in_use(view: _View, devices: list[mdev.MdevDevice]) -> bool | None:
    answers = [open_files.in_use(device.directory, view.opened) for device in devices]
    return True if True in answers else None if None in answers else False
