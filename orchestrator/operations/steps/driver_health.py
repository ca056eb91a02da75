# SPDX-License-Identifier: Apache-2.0
"""Whether a host is well with the driver that it just got: what it shows, against what the database wants of it."""

from __future__ import annotations

from typing import Final

from orchestrator.core.errors import Fatal, WorldError
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.mig_layout import difference
from orchestrator.core.hosts.snapshot import GpuSnapshot, HostSnapshot
from orchestrator.operations.context import Context

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
    there = {gpu.address: gpu for gpu in snapshot.gpus}
    for address in context.host().managed_gpus:
        gpu = there.get(address)
        if gpu is None or gpu.driver != "nvidia":
            return f"GPU {address} is not with the driver"
        if gpu.problems:
            return f"GPU {address}: {', '.join(gpu.problems)}"
    return _not_back(context, there) or _not_settable(context, there)


def _not_back(context: Context, there: dict[str, GpuSnapshot]) -> str | None:
    """What the agent puts back after a swap, as after a boot, and has not."""
    with context.world.store.read() as tx:
        enabled = tx.hosts.enabled_by_us(context.host_name)
    for address in context.host().managed_gpus:
        gpu = there[address]
        if address in enabled and gpu.sriov_total_vfs and not gpu.sriov_enabled_vfs:
            return f"the virtual functions of GPU {address} are not back"
    for layout in context.host().mig_layouts:
        differs = difference(layout, there[layout.gpu]) if layout.gpu in there else "the GPU is gone"
        if differs is not None:
            return f"the MIG layout of GPU {layout.gpu} is not back: {differs}"
    return None


def _not_settable(context: Context, there: dict[str, GpuSnapshot]) -> str | None:
    """A VM sets its GPU when it starts, which takes a driver that lets it."""
    with context.world.store.read() as tx:
        vms = tx.vms.list(host=context.host_name)
    for vm in vms:
        for device in vm.devices:
            gpu = there.get(device.gpu)
            lacking = gpu.lacks(device) if gpu is not None else None
            if lacking is not None:
                return f"GPU {device.gpu} has {lacking[0]} to set, and VM {vm.full_name} wants {lacking[1]}"
    return None
