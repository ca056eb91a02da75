# SPDX-License-Identifier: Apache-2.0
"""Every host action on a machine that lives in memory: idempotent, and refusing what is not ours."""

from __future__ import annotations

import copy
from collections.abc import Callable

from orchestrator.core.actions.gpu_cards import AcceptGpus
from orchestrator.core.actions.host_actions import (
    ActionResult,
    AdoptDomain,
    ClearVgpuType,
    CreateVolume,
    DefineDomain,
    DeleteImage,
    DeleteSeed,
    DeleteVolume,
    DisableVirtualFunctions,
    EnableVirtualFunctions,
    EnsureBridgedNetwork,
    EnsureNetwork,
    HostAction,
    MakeVgpu,
    ManageGpus,
    ReleaseDomain,
    RemoveMdev,
    RemoveNetwork,
    StartDomain,
    StopDomain,
    UndefineDomain,
    VgpuPosition,
    WriteSeed,
)
from orchestrator.core.actions.settle_ledger import KnownVm, SettleLedger
from orchestrator.core.actions.suspension import ResumeDomain
from orchestrator.core.actions.vgpu_settings import (
    ClearVgpuParameters,
    RestoreVgpuScheduler,
    SetVgpuParameters,
    SetVgpuScheduler,
)
from orchestrator.core.domain_xml import domain_xml
from orchestrator.core.errors import Conflict, Fatal
from orchestrator.core.gpu.vgpu_parameters import SchedulerState, is_so
from orchestrator.core.hosts.bridges import Uplink, bridge_of, why_not
from orchestrator.core.hosts.domain import MadeAs
from orchestrator.core.vms.disk_snapshot import SNAPSHOT_FILE
from tests.fakes import fake_backups, fake_data_volumes, fake_pools, fake_reboots
from tests.fakes.fake_gpu_cards import accept, manage
from tests.fakes.fake_instances import INSTANCES, make_inside
from tests.fakes.fake_machine import FakeMachine, devices, gpu_of, on_gpu, room
from tests.fakes.fake_mixed_sizes import MODES, put
from tests.fakes.fake_nics import NIC_FUNCTIONS
from tests.fakes.fake_whole_gpus import WHOLE_GPUS


def perform_on(machine: FakeMachine, action: HostAction) -> ActionResult:
    before = copy.deepcopy(machine.__dict__)
    listing = (fake_pools.handler(action) or HANDLERS[type(action)])(machine, action)
    return listing or fake_data_volumes.result_of(before, machine, action)


def _make_vgpu(machine: FakeMachine, action: MakeVgpu) -> None:
    make = _set_type if action.uuid is None else _create_mdev
    match action.at:
        case VgpuPosition(within="instance", start=start):
            make_inside(machine, action, start, make)
        case VgpuPosition(within="gpu", start=start):
            make(machine, action)
            put(machine, action, start)
        case None:
            make(machine, action)


def _create_mdev(machine: FakeMachine, action: MakeVgpu) -> None:
    uuid, gpu = action.uuid or "", gpu_of(machine, action.parent, to_make=True)
    there = machine.mdevs.get(uuid)
    if there is not None:
        if there != (action.parent, action.type_name, action.vm):
            raise Conflict("vgpu.foreign", "that UUID is somebody else's")
        return
    if gpu.functions and not gpu.enabled:
        raise Fatal("vgpu.function_gone", "virtual functions are off")
    taken = gpu.functions and any(parent == action.parent for parent, _, _ in machine.mdevs.values())
    if taken or not room(machine, gpu, action.type_name):
        raise Fatal("vgpu.no_room", "the GPU takes no such vGPU now")
    machine.mdevs[uuid] = (action.parent, action.type_name, action.vm)


def _remove_mdev(machine: FakeMachine, action: RemoveMdev) -> None:
    there = machine.mdevs.get(action.uuid)
    if there is None:
        return
    if there[2] != action.vm:
        raise Conflict("vgpu.foreign", "that vGPU is somebody else's")
    if machine.domains.get(action.vm, ("", False))[1]:
        raise Conflict("vgpu.in_use", "the VM still runs")
    parent, _, _ = machine.mdevs.pop(action.uuid)
    gpu = gpu_of(machine, parent)
    gpu.inside.pop(parent, None)
    gpu.places.pop(action.uuid, None)
    machine.parameters.pop(action.uuid, None)


def _set_type(machine: FakeMachine, action: MakeVgpu) -> None:
    gpu = gpu_of(machine, action.parent, to_make=True)
    if not gpu.enabled:
        raise Fatal("vgpu.function_gone", "virtual functions are off")
    there = machine.vf_types.get(action.parent)
    if there is not None:
        if there != (action.type_name, action.vm):
            raise Conflict("vgpu.foreign", "that function is somebody else's")
        return
    if not room(machine, gpu, action.type_name):
        raise Fatal("vgpu.no_room", "the GPU takes no such vGPU now")
    machine.vf_types[action.parent] = (action.type_name, action.vm)


def _clear_type(machine: FakeMachine, action: ClearVgpuType) -> None:
    there = machine.vf_types.get(action.vf)
    if there is None or there[1] != action.vm:
        return
    if machine.domains.get(action.vm, ("", False))[1]:
        raise Conflict("vgpu.in_use", "the VM still runs")
    del machine.vf_types[action.vf]
    machine.parameters.pop(action.vf, None)
    gpu = gpu_of(machine, action.vf)
    gpu.inside.pop(action.vf, None)
    gpu.places.pop(action.vf, None)


def _set_scheduler(machine: FakeMachine, action: SetVgpuScheduler) -> None:
    gpu = gpu_of(machine, action.gpu, to_make=True)
    if gpu.mig or gpu.passed_to is not None:
        raise Fatal("gpu.no_scheduler", "nobody can choose it")
    if not is_so(action.wanted, gpu.scheduler):
        if on_gpu(machine, gpu):
            raise Conflict("gpu.in_use", "a vGPU is on it")
        slice_us = None if action.policy == "best_effort" else (action.time_slice_ms or 2) * 1000
        gpu.scheduler = SchedulerState(policy=action.policy, time_slice_us=slice_us)
    gpu.scheduler_users = tuple(dict.fromkeys((*gpu.scheduler_users, action.vm)))


def _restore_scheduler(machine: FakeMachine, action: RestoreVgpuScheduler) -> None:
    gpu = gpu_of(machine, action.gpu)
    gpu.scheduler_users = tuple(vm for vm in gpu.scheduler_users if vm != action.vm)
    if not gpu.scheduler_users and not on_gpu(machine, gpu):
        gpu.scheduler = type(gpu).scheduler


def _set_parameters(machine: FakeMachine, action: SetVgpuParameters) -> None:
    if _owner(machine, action.name) != action.vm:
        raise Conflict("vgpu.foreign", "that vGPU is somebody else's")
    machine.parameters[action.name] = action.text


def _clear_parameters(machine: FakeMachine, action: ClearVgpuParameters) -> None:
    if machine.domains.get(action.vm, ("", False))[1]:
        raise Conflict("vgpu.in_use", "the VM still runs")
    if _owner(machine, action.name) in {None, action.vm}:
        machine.parameters.pop(action.name, None)


def _owner(machine: FakeMachine, name: str) -> str | None:
    return machine.mdevs[name][2] if name in machine.mdevs else machine.vf_types.get(name, ("", None))[1]


def _create_volume(machine: FakeMachine, action: CreateVolume) -> None:
    base = f"{action.base_sha256}.{action.base_format}"
    if base not in machine.images:
        raise Fatal("image.missing", "the base image is not on the host")
    if (there := machine.volumes.get(action.volume)) is not None and there[0] != action.vm:
        raise Conflict("host.foreign_file", "that volume is somebody else's")
    machine.volumes[action.volume] = (action.vm, action.size_bytes, base)
    fake_data_volumes.write_disk(machine, action)


def _delete_volume(machine: FakeMachine, action: DeleteVolume) -> None:
    if machine.domains.get(action.vm, ("", False))[1] and not action.volume.endswith(SNAPSHOT_FILE):
        raise Conflict("volume.in_use", "the VM still runs")
    machine.volumes.pop(action.volume, None)
    fake_data_volumes.unwrite(machine, action.volume)


def _write_seed(machine: FakeMachine, action: WriteSeed) -> None:
    machine.seeds[action.seed] = action.vm


def _delete_seed(machine: FakeMachine, action: DeleteSeed) -> None:
    machine.seeds.pop(action.seed, None)


def _adopt(machine: FakeMachine, action: AdoptDomain) -> None:
    for device in action.devices:
        gpu_of(machine, device.parent)
    names = tuple(device.name for device in action.devices)
    if action.vm not in machine.domains or devices(machine.domains[action.vm][0]) != names:
        raise Conflict("vm.definition_differs", "the domain is not as it was seen")
    for device in action.devices:
        _set_owner(machine, device.name, was={None, action.vm}, owner=action.vm)
    if action.vm not in machine.foreign | machine.adopted:
        raise Conflict("host.owned_by_other", "we made that domain")
    machine.foreign.discard(action.vm)
    machine.adopted.add(action.vm)


def _release(machine: FakeMachine, action: ReleaseDomain) -> None:
    if action.vm not in machine.adopted:
        return
    machine.adopted.discard(action.vm)
    machine.foreign.add(action.vm)
    for device in action.devices:
        _set_owner(machine, device.name, was={action.vm}, owner=None)


def _set_owner(machine: FakeMachine, name: str, *, was: set[str | None], owner: str | None) -> None:
    if name in machine.mdevs:
        there, kind, now = machine.mdevs[name]
        if now in was:
            machine.mdevs[name] = (there, kind, owner)
    else:
        kind, now = machine.vf_types.get(name, ("", "gone"))
        if now in was:
            machine.vf_types[name] = (kind, owner)
    if now not in was:
        raise Conflict("vgpu.differs", "the vGPU is not as it was seen")


def lose_ledger(machine: FakeMachine) -> None:
    """The agent's file is gone: nothing is known to be ours any more."""
    machine.ledger.lost, machine.managed, machine.ledger.cards = True, (), {}
    for name in (*machine.mdevs, *machine.vf_types):
        owner = machine.mdevs[name][2] if name in machine.mdevs else machine.vf_types[name][1]
        _set_owner(machine, name, was={owner}, owner=None)
    for gpu in machine.gpus:
        gpu.mig_before = None
        gpu.passed_to = None if gpu.passed_to is None else (None, *gpu.passed_to[1:])
    machine.data = {file: (size, None) for file, (size, _) in machine.data.items()}
    machine.data_nobodys = set(machine.data)
    machine.foreign |= machine.domains.keys()
    machine.adopted.clear()


def _settle(machine: FakeMachine, action: SettleLedger) -> None:
    if not machine.ledger.lost:
        for vm in action.vms:
            _take_up(machine, vm, if_there=vm.vm in machine.domains and vm.vm not in machine.foreign)
        return
    machine.ledger.lost, machine.managed = False, action.gpus
    for found in action.mig_modes:
        gpu_of(machine, found.gpu).mig_before = found.on
    for one in action.data:
        if one.volume in machine.data:
            machine.data[one.volume] = (machine.data[one.volume][0], one.vm)
            machine.data_nobodys.discard(one.volume)
    for vm in action.vms:
        _take_up(machine, vm)
        machine.foreign.discard(vm.vm)
        if vm.adopted:
            machine.adopted.add(vm.vm)


def _take_up(machine: FakeMachine, vm: KnownVm, *, if_there: bool = True) -> None:
    for device in vm.devices if if_there else ():
        if device.is_whole_gpu:
            gpu = gpu_of(machine, device.gpu)
            if gpu.passed_to is not None and gpu.passed_to[0] is None:
                gpu.passed_to = (vm.vm, *gpu.passed_to[1:])
        elif None in {*machine.mdevs.get(device.name, ()), *machine.vf_types.get(device.name, ())}:
            _set_owner(machine, device.name, was={None}, owner=vm.vm)


def _define(machine: FakeMachine, action: DefineDomain) -> None:
    if action.vm in machine.adopted:
        raise Conflict("vm.adopted", "an adopted VM keeps its definition")
    if not action.domain.volume.startswith(action.vm):
        raise Conflict("vm.file_foreign", "the VM's definition takes a file that is not the VM's")
    xml = domain_xml(action.vm, action.domain)
    fake_data_volumes.check_data(machine, action.vm, xml)
    machine.domains[action.vm] = (xml, machine.domains.get(action.vm, ("", False))[1])
    machine.gone.discard(action.vm)
    _, size, base = machine.volumes.get(action.domain.volume, ("", 0, ""))
    machine.described[action.vm] = MadeAs(domain=action.domain, image=base, disk_bytes=size, boot_policy="local")
    machine.nvram |= {action.vm} if action.domain.firmware == "uefi" else set()


def _undefine(machine: FakeMachine, action: UndefineDomain) -> None:
    _check_ours(machine, action.vm)
    if machine.domains.get(action.vm, ("", False))[1]:
        raise Conflict("vm.running", "the VM runs")
    machine.domains.pop(action.vm, None)
    for kept in (machine.gone, machine.nvram, machine.adopted):
        kept.discard(action.vm)


def _start(machine: FakeMachine, action: StartDomain) -> None:
    if action.vm not in machine.domains or action.vm in machine.gone:
        raise Fatal("vm.not_found", "the VM is not defined, or has left")
    xml, _ = machine.domains[action.vm]
    fake_data_volumes.check_opens(machine, action.vm, xml, action.keys)
    fake_pools.check_held(machine, action.vm)
    passed = {gpu.address for gpu in machine.gpus if gpu.passed_to is not None}
    for device in devices(xml):
        if device not in {*machine.mdevs, *machine.vf_types, *machine.nic_owners, *passed}:
            raise Conflict("vm.device_foreign", f"device {device} is not the VM's")
    machine.domains[action.vm] = (xml, not machine.guests_die)
    fake_data_volumes.begins(machine, action.vm)
    machine.cut_off = {one for one in machine.cut_off if one[0] != action.vm}


def _stop(machine: FakeMachine, action: StopDomain) -> None:
    _check_ours(machine, action.vm)
    fake_data_volumes.ends(machine, action.vm)
    if action.vm in machine.domains:
        machine.domains[action.vm] = (machine.domains[action.vm][0], False)


def _check_ours(machine: FakeMachine, vm: str) -> None:
    if vm in machine.foreign:
        raise Conflict("vm.foreign_domain", "the host has a domain with this id that is not ours")


def _ensure_network(machine: FakeMachine, action: EnsureNetwork) -> None:
    machine.networks.add(action.name)
    machine.cut_off = {one for one in machine.cut_off if one[1] != action.name}


def _ensure_bridged(machine: FakeMachine, action: EnsureBridgedNetwork) -> None:
    uplink = Uplink(bridge=action.bridge, vlan=action.vlan)
    found = bridge_of(machine.bridges, uplink)
    if isinstance(found, str):
        raise Conflict(found, why_not(found, uplink))
    machine.networks.add(action.name)
    machine.cut_off = {one for one in machine.cut_off if one[1] != action.name}


def take_network_away(machine: FakeMachine, name: str) -> None:
    """By hand, under the VMs that run."""
    machine.networks.discard(name)
    machine.cut_off |= {(vm, name) for vm, (xml, runs) in machine.domains.items() if runs and f'"{name}"' in xml}


def _remove_network(machine: FakeMachine, action: RemoveNetwork) -> None:
    machine.networks.discard(action.name)


def _delete_image(machine: FakeMachine, action: DeleteImage) -> None:
    name = f"{action.sha256}.{action.image_format}"
    if any(base == name for _, _, base in machine.volumes.values()):
        raise Conflict("image.in_use", "disks on this host are based on the image")
    machine.images.discard(name)


def _enable(machine: FakeMachine, action: EnableVirtualFunctions) -> None:
    gpu = gpu_of(machine, action.gpu, to_make=True)
    gpu.enabled = gpu.passed_to is None


def _disable(machine: FakeMachine, action: DisableVirtualFunctions) -> None:
    if on_gpu(machine, gpu := gpu_of(machine, action.gpu)):
        raise Conflict("gpu.in_use", "a virtual function is in use")
    gpu.enabled = False


HANDLERS: dict[type[HostAction], Callable[..., ActionResult | None]] = {
    SettleLedger: _settle,
    AcceptGpus: accept,
    MakeVgpu: _make_vgpu,
    RemoveMdev: _remove_mdev,
    **INSTANCES,
    ClearVgpuType: _clear_type,
    **MODES,
    SetVgpuScheduler: _set_scheduler,
    RestoreVgpuScheduler: _restore_scheduler,
    SetVgpuParameters: _set_parameters,
    ClearVgpuParameters: _clear_parameters,
    **WHOLE_GPUS,
    **NIC_FUNCTIONS,
    CreateVolume: _create_volume,
    DeleteVolume: _delete_volume,
    **fake_pools.HANDLERS,
    **(fake_data_volumes.handlers(_define) | fake_backups.HANDLERS | fake_reboots.HANDLERS),
    WriteSeed: _write_seed,
    DeleteSeed: _delete_seed,
    DefineDomain: _define,
    UndefineDomain: _undefine,
    StartDomain: _start,
    ResumeDomain: _start,
    StopDomain: _stop,
    AdoptDomain: _adopt,
    ReleaseDomain: _release,
    EnsureNetwork: _ensure_network,
    EnsureBridgedNetwork: _ensure_bridged,
    RemoveNetwork: _remove_network,
    DeleteImage: _delete_image,
    ManageGpus: manage,
    EnableVirtualFunctions: _enable,
    DisableVirtualFunctions: _disable,
}
