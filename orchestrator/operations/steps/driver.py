# SPDX-License-Identifier: Apache-2.0
"""Putting NVIDIA's driver on a host, with the way back to the one that was there.

The new one is kept when the host is well with it, and when a vGPU could be made and removed as a VM's would be: on a
GPU of each model and mode that the host has.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from orchestrator.catalogue.gpu_tables import tables_of
from orchestrator.core.actions.host_actions import CreateGpuInstance, EnableVirtualFunctions, HostAction
from orchestrator.core.attachments import draw, make, observed_on, remove
from orchestrator.core.drivers.host_drivers import begins_anew
from orchestrator.core.errors import Conflict, Fatal, WorldError
from orchestrator.core.geometry.build import MIG
from orchestrator.core.geometry.cut import IllegalLayout, Taken
from orchestrator.core.geometry.nested import instances_of
from orchestrator.core.gpu.device import MAKES_VGPUS, Device, InstancePlace
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.mig_layout import KEEPER, difference
from orchestrator.core.hosts.snapshot import GpuSnapshot, HostSnapshot
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps import driver_swap
from orchestrator.operations.steps.driver_swap import wanted_drivers
from orchestrator.operations.steps.host import back_to_ready


def try_vgpu(context: Context) -> str:
    """What was tried, and on which GPUs nothing could be."""
    return try_vgpu_on(context, managed_gpus(context.host(), context.observe()))


def try_vgpu_on(context: Context, gpus: Sequence[GpuSnapshot]) -> str:
    """The same, on one of each model and mode among these."""
    remove_probe(context)  # of an attempt before
    results, kinds = list[str](), set[tuple[str, bool]]()
    name = str(uuid.uuid5(uuid.NAMESPACE_OID, f"probe {context.operation_id}"))  # the same in every attempt
    closed = context.host().closed_functions
    for gpu in gpus:
        kind = (gpu.model, gpu.mig_enabled is True)
        if kind in kinds:
            continue
        result = (_in_mig_mode if gpu.mig_enabled else _in_time_slices)(gpu, name, closed)
        if isinstance(result, Device):
            kinds.add(kind)
            for action in _probe_actions(context.operation_id, result):
                context.perform(action)
            _remove_vgpu(context, result)
            result = f"{_shown(result)} on GPU {gpu.address}"
        results.append(result)
    return "; ".join(filter(None, results)) or "no GPU offers a vGPU to try"


def remove_probe(context: Context) -> None:
    """Whatever of it is left on the host."""
    for gpu in context.observe().gpus:
        for placed in observed_on(gpu):
            if placed.owner == context.operation_id:
                _remove_vgpu(context, placed.device)


def _probe_text(context: Context) -> tuple[str, ...]:
    """For people, where it could not be removed."""
    return (f"vGPU of {context.operation_id} on host {context.host_name}, made to try the driver",)


def _in_time_slices(gpu: GpuSnapshot, name: str, taken: frozenset[str]) -> Device | str:
    """The smallest that the driver offers."""
    offered = {kind for parent in gpu.parents for kind in parent.creatable}
    types = sorted(
        (vgpu_type for vgpu_type in gpu.types if vgpu_type.name in offered),
        key=lambda vgpu_type: vgpu_type.framebuffer_mib,
    )
    if not types or gpu.framework not in MAKES_VGPUS:
        return ""
    return draw(gpu, types[0].name, taken=taken, new_uuid=name) or f"GPU {gpu.address}: no function is free"


def _in_mig_mode(gpu: GpuSnapshot, name: str, taken: frozenset[str]) -> Device | str:
    """The smallest GPU instance that fits beside those of the layout, with the vGPU that takes all of it where the
    driver makes any."""
    geometry = tables_of(gpu).ever
    cut = instances_of(geometry.cut(MIG))
    if cut is None:
        return f"GPU {gpu.address} is in MIG mode and its profiles are not known: not tried"
    try:
        state = cut.classify(Taken(item.profile, item.start, item.size) for item in gpu.instances)
    except IllegalLayout as error:
        return f"GPU {gpu.address} is in MIG mode: {error}: not tried"
    listed = {item.name for item in gpu.types}
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
        drawn = draw(gpu, backed, taken=taken, new_uuid=name, instance=place)
        return drawn or f"GPU {gpu.address}: no function is free"
    return f"GPU {gpu.address} is in MIG mode and no GPU instance fits beside its layout: not tried"


def _probe_actions(operation: str, device: Device) -> tuple[HostAction, ...]:
    """Of an instance that holds no vGPU the instance alone: its driver may have no virtual functions to switch on."""
    actions = make(operation, device)
    if device.instance is not None and device.function is None:
        return tuple(action for action in actions if isinstance(action, CreateGpuInstance))
    return actions


def _remove_vgpu(context: Context, device: Device) -> None:
    for action in remove(context.operation_id, device):
        context.perform(action)


def _shown(device: Device) -> str:
    place = device.instance
    return device.type_name if place is None else f"{device.type_name} in {place.profile} at slot {place.start}"


SEEN_WITHIN_S: Final = 600.0
"""A driver that is loaded anew, and an agent that puts modes and functions back, need minutes on a large host."""
POLL_S: Final = 5.0


def managed_gpus(host: Host, snapshot: HostSnapshot) -> list[GpuSnapshot]:
    """Those that enrolment took."""
    return [gpu for gpu in snapshot.gpus if gpu.address in host.managed_gpus]


def healthy(context: Context) -> str:
    """:raises Fatal: ``driver.not_healthy`` when it is not so within :data:`SEEN_WITHIN_S`"""
    clock = context.world.clock
    end = clock.monotonic() + SEEN_WITHIN_S
    while True:
        try:
            wrong = _wrong_with(context, context.observe())
        except WorldError as error:  # its agent, or the host itself, is just starting
            wrong = error.message
        if wrong is None:
            return f"driver {context.text('version')} answers"
        if clock.monotonic() > end:
            raise Fatal(
                "driver.not_healthy",
                f"host {context.host_name} is not well with its new driver: {wrong}",
                hint="dmesg and journalctl on the host say more",
            )
        context.pause(POLL_S)


def _wrong_with(context: Context, snapshot: HostSnapshot) -> str | None:
    """None: it answers, is of the right version as its fabric manager is, and every GPU of ours is there as before."""
    if snapshot.driver_version != context.text("version"):
        return f"it has driver {snapshot.driver_version}"
    fabric = snapshot.fabric
    if fabric is not None and (fabric.problem or fabric.version not in {None, snapshot.driver_version}):
        return fabric.problem or f"its fabric manager is {fabric.version}"
    gpus = {gpu.address: gpu for gpu in snapshot.gpus}
    for address in context.host().managed_gpus:
        gpu = gpus.get(address)
        if gpu is None or gpu.driver != "nvidia":
            return f"GPU {address} is not with the driver"
        if gpu.problems:
            return f"GPU {address}: {', '.join(gpu.problems)}"
    return not_back(context, gpus, context.host().managed_gpus) or _not_settable(context, gpus)


def not_back(context: Context, gpus: Mapping[str, GpuSnapshot], ours: Iterable[str]) -> str | None:
    """What the agent puts back after a swap, as after a boot, and has not. ``gpus``: by PCI address, those of ``ours``
    among them."""
    with context.world.store.read() as tx:
        enabled = tx.hosts.enabled_by_us(context.host_name)
    for address in ours:
        gpu = gpus[address]
        if address in enabled and gpu.sriov_total_vfs and not gpu.sriov_enabled_vfs:
            return f"the virtual functions of GPU {address} are not back"
    for layout in context.host().mig_layouts:
        differs = difference(layout, gpus[layout.gpu]) if layout.gpu in gpus else "the GPU is gone"
        if differs is not None:
            return f"the MIG layout of GPU {layout.gpu} is not back: {differs}"
    return None


def _not_settable(context: Context, gpus: dict[str, GpuSnapshot]) -> str | None:
    """A VM sets its GPU when it starts, which takes a driver that lets it."""
    with context.world.store.read() as tx:
        vms = tx.vms.list(host=context.host_name)
    for vm in vms:
        for device in vm.devices:
            gpu = gpus.get(device.gpu)
            lacking = gpu.lacks(device) if gpu is not None else None
            if lacking is not None:
                return f"GPU {device.gpu} has {lacking[0]} to set, and VM {vm.full_name} wants {lacking[1]}"
    return None


def _check_files(context: Context) -> str:
    """All of them, also those for the way back, before the host is touched."""
    wanted = wanted_drivers(context, "")
    wanted_drivers(context, "before_")
    return "" if wanted is None else f"{wanted.driver.kind} {wanted.driver.version}"


def _check_unused(context: Context) -> None:
    """What cannot be told counts as in use; of a driver that is there already nothing has to go. On a host that is
    rebooted for its system nothing may run at all."""
    snapshot = context.observe()
    used = users_of(snapshot) if snapshot.driver_version != context.text("version") else ()
    if used:
        raise Conflict(
            "driver.in_use",
            f"host {context.host_name} still uses its driver: {', '.join(used[:5])}",
            hint="'vgpuctl driver upgrade --to VERSION' stops VMs and starts them again; others end theirs",
        )
    running = [domain.name for domain in snapshot.domains if domain.active]
    if running and context.inputs.get("base") is True and begins_anew(snapshot):
        raise Conflict(
            "driver.in_use",
            f"host {context.host_name} is to be rebooted for its IOMMU, or without nouveau, and runs "
            f"{', '.join(running[:5])}",
            hint=f"'vgpuctl host drain {context.host_name}' empties it of VMs; others end theirs",
        )


def users_of(snapshot: HostSnapshot, leaving: Collection[str] | None = None) -> tuple[str, ...]:
    """Everything on the host that would lose its GPU with the driver, whoever made it. ``leaving``: ids of VMs of ours
    and names of their devices; given these, only what others have made."""
    functions = {gpu.address for gpu in snapshot.gpus}
    functions |= {parent.address for gpu in snapshot.gpus for parent in gpu.parents}
    # GPU instances of a layout go with the driver, and its agent cuts them again.
    devices = [placed for gpu in snapshot.gpus for placed in observed_on(gpu) if placed.owner != KEEPER]
    made = {placed.device.name for placed in devices}
    domains = [domain for domain in snapshot.domains if domain.active and (functions | made) & set(domain.devices)]
    if leaving is not None:
        made = {placed.device.name for placed in devices if placed.owner is None}.difference(leaving)
        domains = [domain for domain in domains if domain.owner is None and domain.uuid not in leaving]
    return (*(f"domain {domain.name}" for domain in domains), *(f"vGPU {name}" for name in sorted(made)))


def _functions(context: Context) -> str:
    """On a host that had no driver nobody could switch them on so far."""
    enabled = []
    for gpu in managed_gpus(context.host(), context.observe()):
        if gpu.sriov_total_vfs and not gpu.sriov_enabled_vfs:
            with context.begin() as tx:
                tx.hosts.mark_enabled(context.host_name, gpu.address, by_us=True)
            context.perform(EnableVirtualFunctions(gpu=gpu.address))
            enabled.append(gpu.address)
    return ", ".join(enabled) or "nothing to enable"


def _driver_text(context: Context) -> tuple[str, ...]:
    return (f"driver of host {context.host_name}: it may be the old one, {context.text('version')} or none",)


FILES = Step(
    name="driver_files.1",
    title="check the driver's files",
    do=_check_files,
    undo=back_to_ready,
    remains=lambda context: (f"host {context.host_name} is not marked as ready",),
)
UNUSED = Step(
    name="driver_unused.1", title="nothing uses the driver", do=_check_unused, no_undo_reason="it only observes"
)
IN_OVN = Step(
    name="in_ovn.1",
    title="OVN",
    do=driver_swap.join_ovn,
    no_undo_reason="it changes nothing for VMs that run, and the next run goes on",
)
PROVISION = Step(
    name="provision.1",
    title="install the driver",
    do=driver_swap.install,
    undo=driver_swap.take_back,
    remains=_driver_text,
)
HEALTHY = Step(name="driver_healthy.1", title="the driver answers", do=healthy, no_undo_reason="it only observes")
DRIVER_FUNCTIONS = Step(
    name="driver_functions.1",
    title="virtual functions",
    do=_functions,
    no_undo_reason="they stay on for the next VM",
)
PROBE = Step(name="probe_vgpu.1", title="try a vGPU", do=try_vgpu, undo=remove_probe, remains=_probe_text)
