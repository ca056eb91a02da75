# SPDX-License-Identifier: Apache-2.0
"""Putting NVIDIA's driver on a host, with the way back to the one that was there."""

from __future__ import annotations

import uuid
from typing import Final

from orchestrator.core.attachments import draw, make, observed_on, remove
from orchestrator.core.device import Device
from orchestrator.core.driver_bundle import DriverBundle
from orchestrator.core.errors import Conflict, Fatal, NotFound, WorldError
from orchestrator.core.host import Host
from orchestrator.core.host_actions import EnableVirtualFunctions
from orchestrator.core.host_drivers import DriverFile, HostDrivers
from orchestrator.core.snapshot import GpuSnapshot, HostSnapshot
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps.host import back_to_ready

SEEN_WITHIN_S: Final = 600.0
"""A driver that is loaded anew, and an agent that puts modes and functions back, need minutes on a large host."""
POLL_S: Final = 5.0


def driver_file(context: Context, sha256: str) -> DriverFile:
    """:raises NotFound: ``bundle.unknown``; :raises Fatal: ``bundle.damaged``"""
    with context.world.store.read() as tx:
        found: DriverBundle | None = tx.driver_bundles.find(sha256)
    if found is None:
        raise NotFound(
            "bundle.unknown",
            f"driver bundle {sha256[:12]} was removed meanwhile",
            hint="'vgpuctl driver bundle add' it again, then try again",
        )
    return DriverFile(
        sha256=sha256,
        kind=found.content.kind,
        version=found.content.version,
        format=found.content.format,
        path=str(context.world.bundles.checked(sha256)),
        package=found.content.package,
    )


def _wanted(context: Context, prefix: str) -> HostDrivers | None:
    """``prefix``: of the inputs, "" for what is to come and ``before_`` for what was there; None: nothing was."""
    driver, fabric = context.inputs.get(f"{prefix}driver"), context.inputs.get(f"{prefix}fabric_manager")
    if not isinstance(driver, str):
        return None
    return HostDrivers(
        driver=driver_file(context, driver),
        fabric_manager=driver_file(context, fabric) if isinstance(fabric, str) else None,
        base=context.inputs.get("base") is True and not prefix,
    )


def _check_files(context: Context) -> str:
    """All of them, also those for the way back, before the host is touched."""
    wanted = _wanted(context, "")
    _wanted(context, "before_")
    return "" if wanted is None else f"{wanted.driver.kind} {wanted.driver.version}"


def _check_unused(context: Context) -> None:
    """What cannot be told counts as in use; of a driver that is there already nothing has to go."""
    snapshot = context.observe()
    if snapshot.driver_version == context.text("version"):
        return
    used = users_of(snapshot)
    if used:
        raise Conflict(
            "driver.in_use",
            f"host {context.host_name} still uses its driver: {', '.join(used[:5])}",
            hint="'vgpuctl driver upgrade' stops VMs and starts them again; what is not ours ends its owner",
        )


def users_of(snapshot: HostSnapshot) -> tuple[str, ...]:
    """Everything on the host that would lose its GPU with the driver, whoever made it."""
    functions = {gpu.address for gpu in snapshot.gpus}
    functions |= {parent.address for gpu in snapshot.gpus for parent in gpu.parents}
    made = {one.device.name for gpu in snapshot.gpus for one in observed_on(gpu)}
    domains = [
        f"domain {domain.name}"
        for domain in snapshot.domains
        if domain.active and (functions | made) & set(domain.devices)
    ]
    return (*domains, *(f"vGPU {name}" for name in sorted(made)))


def _provision(context: Context) -> str:
    wanted = _wanted(context, "")
    if wanted is None:
        raise Fatal("driver.no_bundle", "the operation names no driver", hint="begin it again")
    context.world.configurator.provision(context.host(), wanted, context.report)
    return wanted.driver.version


def _take_back(context: Context) -> None:
    """Where no driver was there is none to go back to: what was put there stays, unused."""
    before = _wanted(context, "before_")
    if before is None:
        context.warnings.append(f"host {context.host_name} had no driver: the new one is left there")
        return
    context.world.configurator.provision(context.host(), before, context.report)


def _healthy(context: Context) -> str:
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
    with context.world.store.read() as tx:
        enabled = tx.hosts.enabled_by_us(context.host_name)
    there = {gpu.address: gpu for gpu in snapshot.gpus}
    for address in context.host().managed_gpus:
        gpu = there.get(address)
        if gpu is None or gpu.driver != "nvidia":
            return f"GPU {address} is not with the driver"
        if gpu.problems or not gpu.memory_mib:
            return f"GPU {address}: {', '.join(gpu.problems) or 'it has no memory'}"
        if address in enabled and gpu.sriov_total_vfs and not gpu.sriov_enabled_vfs:
            return f"the virtual functions of GPU {address} are not back"
    return None


def _functions(context: Context) -> str:
    """On a host that had no driver nobody could switch them on so far."""
    enabled = []
    for gpu in _managed(context.host(), context.observe()):
        if gpu.sriov_total_vfs and not gpu.sriov_enabled_vfs:
            with context.begin() as tx:
                tx.hosts.mark_enabled(context.host_name, gpu.address, by_us=True)
            context.perform(EnableVirtualFunctions(gpu=gpu.address))
            enabled.append(gpu.address)
    return ", ".join(enabled) or "nothing to enable"


def _managed(host: Host, snapshot: HostSnapshot) -> list[GpuSnapshot]:
    return [gpu for gpu in snapshot.gpus if gpu.address in host.managed_gpus]


def _probe(context: Context) -> str:
    """A vGPU is made and removed again, as a VM's would be."""
    device = _probe_device(context)
    if device is None:
        return "no GPU offers a vGPU to try"
    for action in make(context.operation_id, device):
        context.perform(action)
    _remove_probe(context, device)
    return f"{device.type_name} on GPU {device.gpu}"


def _probe_device(context: Context) -> Device | None:
    """The smallest that the driver offers; drawn the same in every attempt."""
    name = str(uuid.uuid5(uuid.NAMESPACE_OID, f"probe {context.operation_id}"))
    for gpu in _managed(context.host(), context.observe()):
        mine = next((one.device for one in observed_on(gpu) if one.owner == context.operation_id), None)
        if mine is not None:
            return mine
        offered = {kind for parent in gpu.parents for kind in parent.creatable}
        kinds = sorted((one for one in gpu.types if one.name in offered), key=lambda one: one.framebuffer_mib)
        if kinds and gpu.framework not in {"none", "passthrough"} and not gpu.mig_enabled:
            return draw(gpu, kinds[0].name, taken=frozenset(), new_uuid=name)
    return None


def _remove_probe(context: Context, device: Device) -> None:
    for action in remove(context.operation_id, device):
        context.perform(action)


def _take_probe_back(context: Context) -> None:
    for gpu in context.observe().gpus:
        for one in observed_on(gpu):
            if one.owner == context.operation_id:
                _remove_probe(context, one.device)


def _driver_text(context: Context) -> tuple[str, ...]:
    return (f"driver of host {context.host_name}: it may be the old one, {context.text('version')} or none",)


def _probe_text(context: Context) -> tuple[str, ...]:
    return (f"vGPU of {context.operation_id} on host {context.host_name}, made to try the driver",)


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
PROVISION = Step(
    name="provision.1",
    title="install the driver",
    do=_provision,
    undo=_take_back,
    observe_first=False,
    remains=_driver_text,
)
HEALTHY = Step(name="driver_healthy.1", title="the driver answers", do=_healthy, no_undo_reason="it only observes")
DRIVER_FUNCTIONS = Step(
    name="driver_functions.1",
    title="virtual functions",
    do=_functions,
    no_undo_reason="they stay on for the next VM",
)
PROBE = Step(name="probe_vgpu.1", title="try a vGPU", do=_probe, undo=_take_probe_back, remains=_probe_text)
