# SPDX-License-Identifier: Apache-2.0
"""Putting NVIDIA's driver on a host, with the way back to the one that was there."""

from __future__ import annotations

from collections.abc import Collection

from orchestrator.core.actions.host_actions import EnableVirtualFunctions
from orchestrator.core.attachments import observed_on
from orchestrator.core.errors import Conflict
from orchestrator.core.hosts.mig_layout import KEEPER
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.operations.context import Context
from orchestrator.operations.step import Step
from orchestrator.operations.steps import driver_health, driver_swap, probe_vgpu
from orchestrator.operations.steps.driver_health import managed_gpus
from orchestrator.operations.steps.driver_swap import wanted_drivers
from orchestrator.operations.steps.host import back_to_ready


def _check_files(context: Context) -> str:
    """All of them, also those for the way back, before the host is touched."""
    wanted = wanted_drivers(context, "")
    wanted_drivers(context, "before_")
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


def users_of(snapshot: HostSnapshot, leaving: Collection[str] | None = None) -> tuple[str, ...]:
    """Everything on the host that would lose its GPU with the driver, whoever made it. ``leaving``: ids of VMs of ours
    and names of their devices; given these, only what others have made."""
    functions = {gpu.address for gpu in snapshot.gpus}
    functions |= {parent.address for gpu in snapshot.gpus for parent in gpu.parents}
    # GPU instances of a layout go with the driver, and its agent cuts them again.
    devices = [one for gpu in snapshot.gpus for one in observed_on(gpu) if one.owner != KEEPER]
    made = {one.device.name for one in devices}
    domains = [one for one in snapshot.domains if one.active and (functions | made) & set(one.devices)]
    if leaving is not None:
        made = {one.device.name for one in devices if one.owner is None}.difference(leaving)
        domains = [one for one in domains if one.owner is None and one.uuid not in leaving]
    return (*(f"domain {one.name}" for one in domains), *(f"vGPU {name}" for name in sorted(made)))


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
PROVISION = Step(
    name="provision.1",
    title="install the driver",
    do=driver_swap.install,
    undo=driver_swap.take_back,
    remains=_driver_text,
)
HEALTHY = Step(
    name="driver_healthy.1", title="the driver answers", do=driver_health.healthy, no_undo_reason="it only observes"
)
DRIVER_FUNCTIONS = Step(
    name="driver_functions.1",
    title="virtual functions",
    do=_functions,
    no_undo_reason="they stay on for the next VM",
)
PROBE = Step(
    name="probe_vgpu.1", title="try a vGPU", do=probe_vgpu.probe, undo=probe_vgpu.take_back, remains=probe_vgpu.left
)
