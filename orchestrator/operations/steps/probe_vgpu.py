# SPDX-License-Identifier: Apache-2.0
"""A vGPU is made and removed again, as a VM's would be: on a GPU of each model and mode that the host has."""

from __future__ import annotations

import uuid

from orchestrator.catalogue.gpu_tables import tables_of
from orchestrator.core.actions.host_actions import CreateGpuInstance, HostAction
from orchestrator.core.attachments import draw, make, observed_on, remove
from orchestrator.core.geometry.build import MIG
from orchestrator.core.geometry.cut import IllegalLayout, Taken
from orchestrator.core.geometry.nested import instances_of
from orchestrator.core.gpu.device import Device, InstancePlace
from orchestrator.core.hosts.snapshot import GpuSnapshot
from orchestrator.operations.context import Context
from orchestrator.operations.steps.driver_health import managed_gpus


def probe(context: Context) -> str:
    """What was tried, and on which GPUs nothing could be."""
    take_back(context)  # of an attempt before
    told, kinds = list[str](), set[tuple[str, bool]]()
    name = str(uuid.uuid5(uuid.NAMESPACE_OID, f"probe {context.operation_id}"))  # the same in every attempt
    for gpu in managed_gpus(context.host(), context.observe()):
        kind = (gpu.model, gpu.mig_enabled is True)
        if kind in kinds:
            continue
        found = _in_mig_mode(gpu, name) if gpu.mig_enabled else _in_time_slices(gpu, name)
        if isinstance(found, Device):
            kinds.add(kind)
            for action in _making(context.operation_id, found):
                context.perform(action)
            _remove(context, found)
            found = f"{_name(found)} on GPU {gpu.address}"
        told.append(found)
    return "; ".join(filter(None, told)) or "no GPU offers a vGPU to try"


def take_back(context: Context) -> None:
    """Whatever of it is left on the host."""
    for gpu in context.observe().gpus:
        for one in observed_on(gpu):
            if one.owner == context.operation_id:
                _remove(context, one.device)


def left(context: Context) -> tuple[str, ...]:
    """For people, where it could not be removed."""
    return (f"vGPU of {context.operation_id} on host {context.host_name}, made to try the driver",)


def _in_time_slices(gpu: GpuSnapshot, name: str) -> Device | str:
    """The smallest that the driver offers."""
    offered = {kind for parent in gpu.parents for kind in parent.creatable}
    types = sorted((one for one in gpu.types if one.name in offered), key=lambda one: one.framebuffer_mib)
    if not types or gpu.framework in {"none", "passthrough"}:
        return ""
    return draw(gpu, types[0].name, taken=frozenset(), new_uuid=name) or f"GPU {gpu.address}: no function is free"


def _in_mig_mode(gpu: GpuSnapshot, name: str) -> Device | str:
    """The smallest GPU instance that fits beside those of the layout, with the vGPU that takes all of it where the
    driver makes any."""
    geometry = tables_of(gpu).ever
    cut = instances_of(geometry.cut(MIG))
    if cut is None:
        return f"GPU {gpu.address} is in MIG mode and its profiles are not known: not tried"
    try:
        state = cut.classify(Taken(one.profile, one.start, one.size) for one in gpu.instances)
    except IllegalLayout as error:
        return f"GPU {gpu.address} is in MIG mode: {error}: not tried"
    listed = {one.name for one in gpu.types}
    for profile in sorted(cut.shapes, key=cut.size):
        backed = geometry.vgpu_type_of(profile) if gpu.backs_vgpus_with_mig and geometry.supports(profile) else profile
        free = cut.choices(state, profile)
        if not free or (gpu.backs_vgpus_with_mig and backed not in listed):
            continue
        place = InstancePlace(profile, free[0].start)
        if not gpu.backs_vgpus_with_mig:
            return Device(
                kind="mig_backed", gpu=gpu.address, parent=gpu.address, type_name=profile, name=gpu.address
            ).inside(place)
        drawn = draw(gpu, backed, taken=frozenset(), new_uuid=name, instance=place)
        return drawn or f"GPU {gpu.address}: no function is free"
    return f"GPU {gpu.address} is in MIG mode and no GPU instance fits beside its layout: not tried"


def _making(operation: str, device: Device) -> tuple[HostAction, ...]:
    """Of an instance that holds no vGPU the instance alone: its driver may have no virtual functions to switch on."""
    actions = make(operation, device)
    if device.instance is not None and device.function is None:
        return tuple(one for one in actions if isinstance(one, CreateGpuInstance))
    return actions


def _remove(context: Context, device: Device) -> None:
    for action in remove(context.operation_id, device):
        context.perform(action)


def _name(device: Device) -> str:
    place = device.instance
    return device.type_name if place is None else f"{device.type_name} in {place.profile} at slot {place.start}"
