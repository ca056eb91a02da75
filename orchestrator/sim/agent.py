# SPDX-License-Identifier: Apache-2.0
"""What an agent does with a host action: fence, observe, record the owner, act, observe again.

The order of these, the error codes and what counts as "already so" are those of orchestrator/agent; what differs is
that the host under it is a :class:`SimulatedMachine`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from orchestrator.core.actions.backups import UsesRepository
from orchestrator.core.actions.bug_reports import CollectBugReport
from orchestrator.core.actions.disk_snapshots import LongCopy
from orchestrator.core.actions.gpu_cards import AcceptGpus
from orchestrator.core.actions.host_actions import (
    ActionResult,
    AdoptDomain,
    DisableVirtualFunctions,
    EnableVirtualFunctions,
    FencingToken,
    HostAction,
    ManageGpus,
    ReleaseDomain,
    StopDomain,
)
from orchestrator.core.actions.reboots import RebootHost
from orchestrator.core.actions.settle_ledger import KnownVm, SettleLedger
from orchestrator.core.actions.vgpu_settings import SetGpuSetting
from orchestrator.core.attachments import make
from orchestrator.core.errors import Conflict, Denied, NotFound
from orchestrator.core.gpu.device import Device
from orchestrator.core.hosts.pool import pool_of
from orchestrator.core.vms.volume import id_of
from orchestrator.sim import (
    backups,
    disk_snapshots,
    gpu_settings,
    mig_actions,
    nics,
    plugging,
    pool_actions,
    vgpu_actions,
    vm_actions,
    whole_gpus,
)
from orchestrator.sim.gpu_settings import settings_of
from orchestrator.sim.machine import DONE, SO_ALREADY, Effect, SimulatedMachine, claim, gpu_there, release
from orchestrator.sim.vgpu_actions import drop, hold, is_as_made, key_of
from orchestrator.sim.whole_gpus import partition_key


def settle(machine: SimulatedMachine, action: SettleLedger) -> ActionResult:
    """Where it was not lost: devices of domains of ours that nobody owns."""
    if not machine.ledger.lost:
        ours = [vm for vm in action.vms if machine.owner(f"domain:{vm.vm}") is not None]
        return ActionResult(changed=sum(_claim_device(machine, vm.vm, item) for vm in ours for item in vm.devices) > 0)
    machine.ledger.managed = frozenset(action.gpus)
    for gpu in machine.kernel.gpus:
        mig_before = {item.gpu: item.on for item in action.mig_modes}.get(gpu.address, gpu.mig)
        if mig_before != gpu.mig:
            machine.ledger.mig_before[gpu.address] = mig_before
    for vm in action.vms:
        _claim_all(machine, vm)
    for item in action.data:
        if _has_file(machine, item.volume):
            if pool_of(item.volume) is None:
                claim(machine, f"data:{item.volume}", id_of(item.volume.removesuffix(".raw")))
            if item.vm is not None:
                claim(machine, f"attached:{item.volume}", item.vm)
    machine.ledger.lost = False
    return ActionResult(changed=True)


def _has_file(machine: SimulatedMachine, file: str) -> bool:
    return file in {*machine.volumes, *machine.data, *(name for pool in machine.pools.values() for name in pool.files)}


def _claim_all(machine: SimulatedMachine, vm: KnownVm) -> None:
    for kind, name, exists in (
        ("volume", vm.volume, _has_file(machine, vm.volume) and not vm.adopted),
        ("seed", vm.seed, vm.seed in machine.seeds and not vm.adopted),
        ("domain", vm.vm, vm.vm in machine.domains),
    ):
        if exists:
            claim(machine, f"{kind}:{name}", vm.vm)
    for device in vm.devices:
        _claim_device(machine, vm.vm, device)
    if vm.nic is not None and vm.nic.vf in machine.kernel.nic_vfio:
        claim(machine, f"nic:{vm.nic.vf}", vm.vm, until_reboot=True)


def _claim_device(machine: SimulatedMachine, vm: str, device: Device) -> bool:
    """Whether it is there as described and was nobody's; then it is the VM's."""
    key = f"gpu:{device.gpu}" if device.is_whole_gpu else key_of(device)
    if machine.owner(key) is not None or not is_as_made(machine.kernel, device):
        return False
    claim(machine, key, vm, until_reboot=True)
    if device.is_whole_gpu:
        machine.ledger.passed[device.gpu] = (device.type_name, gpu_there(machine, device.gpu).kind.total_vfs)
    if device.gi_start is not None:
        hold(machine, device.gpu, device.gi_start, vm)
    place, fabric = device.fabric, machine.kernel.fabric
    if place is not None and fabric is not None and place.partition in fabric.active:
        claim(machine, partition_key(place.partition), vm, until_reboot=True)
    for made_by in make(vm, device):
        if isinstance(made_by, SetGpuSetting):
            settings_of(machine).settle(made_by)
    return True


def adopt(machine: SimulatedMachine, action: AdoptDomain) -> ActionResult:
    domain, names = machine.domains.get(action.vm), {device.name for device in action.devices}
    for device in action.devices:
        gpu = machine.kernel.gpu_of(device.parent)
        if gpu is None or gpu.address not in machine.ledger.managed:
            raise Denied("gpu.not_managed", f"{device.parent} is on no GPU that was given to us")
        if not is_as_made(machine.kernel, device):
            raise Conflict("vgpu.differs", "the vGPU is not there any more as it was seen")
        claim(machine, key_of(device), action.vm, until_reboot=True)
        if device.gi_start is not None:
            hold(machine, device.gpu, device.gi_start, action.vm)
    if domain is None:
        raise NotFound("vm.not_found", "the domain is not defined on this host")
    if domain.devices != tuple(device.name for device in action.devices):
        raise Conflict("vm.definition_differs", "the domain has other host devices than were seen")
    changed = not domain.adopted
    if changed and machine.owner(f"domain:{action.vm}") is not None:
        raise Conflict("host.owned_by_other", "the domain is ours already")
    claim(machine, f"domain:{action.vm}", action.vm)
    domain.adopted = True
    machine.foreign -= {action.vm, *names}
    return ActionResult(changed=changed)


def release_domain(machine: SimulatedMachine, action: ReleaseDomain) -> ActionResult:
    domain = machine.domains.get(action.vm)
    changed = domain is not None and domain.adopted
    if domain is not None and not domain.adopted and machine.owner(f"domain:{action.vm}") is not None:
        raise Conflict("host.owned_by_other", "the domain was made by us")
    release(machine, f"domain:{action.vm}", action.vm)
    if domain is not None:
        domain.adopted = False
    for device in action.devices:
        release(machine, key_of(device), action.vm)
        if device.gi_start is not None:
            drop(machine, device.gpu, device.gi_start, action.vm)
    existing = {*machine.domains, *machine.kernel.devices()}
    machine.foreign |= existing & {action.vm, *(device.name for device in action.devices)}
    return ActionResult(changed=changed)


SETTLING: dict[type[HostAction], Callable[[SimulatedMachine, Any], ActionResult]] = {
    SettleLedger: settle,
    AdoptDomain: adopt,
    ReleaseDomain: release_domain,
}


def perform(machine: SimulatedMachine, action: HostAction, token: FencingToken, *, fenced: bool = True) -> ActionResult:
    """``fenced=False`` is an agent without its fence, for showing that the invariants notice.

    A copy of a disk is done when it is asked for again.

    :raises VgpuctlError: what a real agent would answer
    :raises AgentDied: it died in the middle
    """
    if fenced:
        machine.ledger.admit(token, action)
    effect = Effect(token, type(action).__name__, getattr(action, "vm", None))
    if isinstance(action, StopDomain):
        domain = machine.domains.get(action.vm)
        effect.stopped = domain is not None and domain.running
    if machine.keep_effects:
        machine.effects.append(effect)
    subject = str(effect.vm or getattr(action, "backup", None) or getattr(action, "volume", ""))
    before = machine.copying.pop(subject, None)
    if isinstance(action, LongCopy | UsesRepository) and before != (token.operation, action):
        machine.copying[subject] = token.operation, action
        return ActionResult(changed=True, unfinished=True)
    return HANDLERS[type(action)](machine, action)


def manage(machine: SimulatedMachine, action: ManageGpus) -> ActionResult:
    """GPUs that are given back are as they were before."""
    for gpu in sorted(machine.ledger.managed - frozenset(action.gpus)):
        vgpu_actions.check_no_vgpus(machine, gpu)
        gpu_settings.settings_of(machine).put_back(gpu)
        gpu_settings.power_of(machine).put_back(gpu)
    return vgpu_actions.manage(machine, action)


def report(machine: SimulatedMachine, action: CollectBugReport) -> ActionResult:
    raise NotFound("host.no_bug_report", "a host in memory has no nvidia-bug-report.sh")


def reboot(machine: SimulatedMachine, action: RebootHost) -> ActionResult:
    if machine.boot_id != action.boot:
        return SO_ALREADY
    running = [name for name, domain in machine.domains.items() if domain.running]
    if running:
        raise Conflict("host.in_use", f"the host runs {', '.join(running)}", hint="stop it first")
    machine.reboot_in_order()
    return DONE


HANDLERS: dict[type[HostAction], Callable[[SimulatedMachine, Any], ActionResult]] = {
    **vgpu_actions.HANDLERS,
    **mig_actions.HANDLERS,
    **whole_gpus.HANDLERS,
    **gpu_settings.HANDLERS,
    **nics.HANDLERS,
    **vm_actions.HANDLERS,
    **pool_actions.HANDLERS,
    **plugging.HANDLERS,
    **disk_snapshots.HANDLERS,
    **backups.HANDLERS,
    **SETTLING,
    AcceptGpus: vgpu_actions.accept,
    ManageGpus: manage,
    RebootHost: reboot,
    CollectBugReport: report,
    EnableVirtualFunctions: vgpu_actions.enable,
    DisableVirtualFunctions: vgpu_actions.disable,
}
