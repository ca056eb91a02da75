# SPDX-License-Identifier: Apache-2.0
"""What must hold on every host at every moment, read from host and database. Numbers as in the design.

Not here, because neither host nor database shows it:
I4 (every operation ends) and I5 (repeating changes nothing) show at the end of a run: ``settled.py``;
I16 (the audit) has no reader behind the port; I12, I14, I15 (what tenants see, what text becomes, where secrets go)
belong to the API and to files; I13 and I18 (cleaning, driver pairs) have no operation yet;
I17 (rolling upgrades) shows when one is over: ``upgrades.py``;
I20 (clocks) is that all others hold although the nemesis moves the clocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from orchestrator.core.attachments.host_facts import facts_of
from orchestrator.core.errors import NotFound
from orchestrator.core.gpu.device import Device, InstancePlace
from orchestrator.core.operation import Operation
from orchestrator.core.vms.claim import Claim
from orchestrator.core.vms.vm import Vm
from orchestrator.services.fleet.view import Overcommit, capacity_of
from orchestrator.sim.hardware import GpuKind
from orchestrator.sim.kernel import SimulatedGpu
from orchestrator.sim.machine import Effect, SimulatedMachine
from orchestrator.sim.observing import snapshot_of
from orchestrator.sim.vgpu_actions import holders

_STOPPING = frozenset({"stop_vm", "restart_vm", "free_vm", "delete_vm", "move_vm_cold"})
_ADOPTING = frozenset({"AdoptDomain", "ReleaseDomain"})


@dataclass(frozen=True, kw_only=True)
class HostView:
    """One host beside what the database says of it, at one moment."""

    host: str
    machine: SimulatedMachine
    vms: dict[str, Vm]
    claims: tuple[Claim, ...]
    effects: tuple[Effect, ...]
    """Since the last look."""
    operation: Callable[[str], Operation]


@dataclass
class Memory:
    """What has to be remembered between looks."""

    attempts: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """(host, operation) → highest epoch and attempt that acted there."""
    running: dict[str, str] = field(default_factory=dict)
    """Domain → host it runs on."""


def i1_a_slot_belongs_to_one_vm(view: HostView, _: Memory) -> Iterator[str]:
    claimed = [one for claim in view.claims for one in claim.devices]
    slots = Counter((one.gpu, slot) for one in claimed for slot in one.slots)
    functions = Counter(one.function for one in claimed if one.function is not None)
    used = Counter(device for domain in view.machine.domains.values() if domain.running for device in domain.devices)
    for what, number in (*slots.items(), *functions.items(), *used.items()):
        if number > 1:
            yield f"{what} belongs to {number} VMs"


def i2_nothing_leaks(view: HostView, _: Memory) -> Iterator[str]:
    for key in objects_on(view.machine):
        owner = view.machine.owner(key)
        if owner is None:
            yield f"{key} is in nobody's ledger"
        elif owner not in view.vms and not _is_tried(view, owner):
            yield f"{key} belongs to {owner}, which is no VM of this host"


def _is_tried(view: HostView, owner: str) -> bool:
    """A vGPU that an operation makes to try a driver, and removes before it ends."""
    try:
        operation = view.operation(owner)
    except NotFound:
        return False
    return operation.kind == "upgrade_driver" and operation.state not in {"done", "undone"}


def objects_on(machine: SimulatedMachine) -> Iterator[str]:
    """Ledger keys of everything that is there and that no foreigner made."""
    yield from (f"mdev:{uuid}" for uuid in machine.kernel.mdevs if uuid not in machine.foreign)
    yield from (f"vf:{function}" for function in machine.kernel.typed if function not in machine.foreign)
    yield from (key for gpu in machine.kernel.gpus for key in _instances_on(machine, gpu))
    yield from (f"domain:{uuid}" for uuid in machine.domains if uuid not in machine.foreign)
    yield from (f"volume:{name}" for name in machine.volumes)
    yield from (f"seed:{name}" for name in machine.seeds)


def _instances_on(machine: SimulatedMachine, gpu: SimulatedGpu) -> Iterator[str]:
    """One key for each VM that has a part of a GPU instance. One that a foreigner's vGPU was put into stays with it."""
    kept = {machine.kernel.inside.get(device) for device in machine.foreign}
    for number, (_, start) in gpu.instances.items():
        held = holders(machine, gpu.address, start)
        yield from held.values() if held or number in kept else (f"gi:{gpu.address}:{start}",)


def i3_intent_comes_before_the_effect(view: HostView, _: Memory) -> Iterator[str]:
    kernel = view.machine.kernel
    for key in (*(f"mdev:{uuid}" for uuid in kernel.mdevs), *(f"vf:{function}" for function in kernel.typed)):
        vm = view.vms.get(view.machine.owner(key) or "")
        if vm is not None and key.partition(":")[2] not in {device.name for device in vm.devices}:
            yield f"{key} is not the device that was stored for VM {vm.id}"


def i6_nothing_in_use_is_taken_away(view: HostView, _: Memory) -> Iterator[str]:
    yield from (f"{device} was removed while it was open" for device in view.machine.kernel.harmed)


def i7_what_may_exist_stays_claimed(view: HostView, _: Memory) -> Iterator[str]:
    claimed = {claim.vm for claim in view.claims}
    for key in objects_on(view.machine):
        vm = view.vms.get(view.machine.owner(key) or "")
        if vm is not None and vm.id not in claimed and (vm.deallocated is None or key.startswith(("mdev:", "vf:"))):
            yield f"{key} exists and VM {vm.id} has no claim"


def i6_an_adoption_writes_the_ledger_alone(view: HostView, _: Memory) -> Iterator[str]:
    for effect in view.effects:
        if effect.action not in _ADOPTING and view.operation(effect.token.operation).kind == "adopt_vm":
            yield f"{effect.action} changed VM {effect.vm}, which was to be taken over as it is"


def i8_a_controller_that_was_replaced_does_not_act(view: HostView, memory: Memory) -> Iterator[str]:
    for effect in view.effects:
        key = (view.host, effect.token.operation)
        highest, acted = memory.attempts.get(key, (0, 0)), (effect.token.epoch, effect.token.attempt)
        if acted < highest:
            yield f"{effect.action} of (epoch, attempt) {acted} was let in after {highest}"
        memory.attempts[key] = max(highest, acted)


def i9_a_vm_runs_on_one_host(view: HostView, memory: Memory) -> Iterator[str]:
    running = {uuid for uuid, domain in view.machine.domains.items() if domain.running}
    yield from (
        f"VM {uuid} runs here and on {memory.running[uuid]}"
        for uuid in running
        if memory.running.get(uuid, view.host) != view.host
    )
    ended = {uuid for uuid, host in memory.running.items() if host == view.host} - running
    memory.running = {uuid: host for uuid, host in memory.running.items() if uuid not in ended}
    memory.running |= dict.fromkeys(running, view.host)


def i10_a_device_is_on_the_gpu_that_is_claimed(view: HostView, _: Memory) -> Iterator[str]:
    kernel = view.machine.kernel
    gpus = {claim.vm: {one.gpu for one in claim.devices} for claim in view.claims}
    places = {f"mdev:{uuid}": parent for uuid, (parent, _) in kernel.mdevs.items()}
    places |= {f"vf:{function}": function for function in kernel.typed}
    for key, place in places.items():
        owner, gpu = view.machine.owner(key), kernel.gpu_of(place)
        if owner in gpus and gpu is not None and gpu.address not in gpus[owner]:
            yield f"{key} is on {gpu.address}, claimed is {sorted(gpus[owner])}"


def i11_no_more_is_claimed_than_there_is(view: HostView, _: Memory) -> Iterator[str]:
    most = capacity_of(facts_of(snapshot_of(view.machine)), Overcommit()) if view.claims else None
    if most is not None:
        for what, claimed, limit in (
            ("vCPUs", sum(claim.vcpus for claim in view.claims), most.vcpus),
            ("MiB of memory", sum(claim.memory_mib for claim in view.claims), most.memory_mib),
        ):
            if claimed > limit:
                yield f"{claimed} {what} are claimed, there are {limit}"
    devices = [device for claim in view.claims if claim.vm in view.vms for device in view.vms[claim.vm].devices]
    for address in sorted({device.gpu for device in devices}):
        gpu, here = view.machine.gpu_at(address), [device for device in devices if device.gpu == address]
        for text in ["there is no such GPU"] if gpu is None else too_much(gpu.kind, here):
            yield f"{address}: {text}"


def too_much(kind: GpuKind, devices: Sequence[Device]) -> Iterator[str]:
    """By NVIDIA's tables alone. Of a GPU in MIG mode no number of vGPUs says whether they fit: it has GPU instances of
    several sizes, and some of them hold several vGPUs."""
    names = Counter(device.type_name for device in devices)
    most = {name: 0 if (row := kind.type_named(name)) is None else row.max_instances for name in names}
    instances = {device.instance for device in devices}
    if None in instances:
        yield from (f"{len(devices)} vGPUs, one of them {name}" for name in names if len(devices) > most[name])
        yield from ["vGPUs with and without a GPU instance"] if len(instances) > 1 else []
        return
    placed = [place for place in instances if place is not None]
    taken = Counter(slot for place in placed for slot in _slots(kind, place))
    yield from (f"memory slot {slot} is in {number} GPU instances" for slot, number in taken.items() if number > 1)
    most = {row.name: row.max_instances for row in kind.profiles}
    profiles = Counter(place.profile for place in placed)
    yield from (f"{number} GPU instances are {name}" for name, number in profiles.items() if number > most.get(name, 0))
    for place in placed:
        inside = {device.type_name for device in devices if device.instance == place}
        number = sum(device.instance == place for device in devices)
        if len(inside) > 1 or number > min(map(kind.per_instance, inside)):
            yield f"{number} vGPUs of {sorted(inside)} are in {place}"


def _slots(kind: GpuKind, place: InstancePlace) -> Iterator[int]:
    """Memory slots of a GPU instance; one that is in no table takes slot -1 twice."""
    row = next((row for row in kind.profiles if row.name == place.profile and place.start in row.starts), None)
    yield from (-1, -1) if row is None else range(place.start, place.start + row.size)


def i19_only_a_wish_stops_a_running_vm(view: HostView, _: Memory) -> Iterator[str]:
    for effect in view.effects:
        if effect.stopped:
            operation = view.operation(effect.token.operation)
            if operation.kind not in _STOPPING and operation.state == "running":
                yield f"VM {effect.vm} was powered off by {operation.kind}, which was on its way forward"


INVARIANTS: tuple[Callable[[HostView, Memory], Iterator[str]], ...] = (
    i1_a_slot_belongs_to_one_vm,
    i2_nothing_leaks,
    i3_intent_comes_before_the_effect,
    i6_nothing_in_use_is_taken_away,
    i6_an_adoption_writes_the_ledger_alone,
    i7_what_may_exist_stays_claimed,
    i8_a_controller_that_was_replaced_does_not_act,
    i9_a_vm_runs_on_one_host,
    i10_a_device_is_on_the_gpu_that_is_claimed,
    i11_no_more_is_claimed_than_there_is,
    i19_only_a_wish_stops_a_running_vm,
)


def broken(view: HostView, memory: Memory) -> list[str]:
    """Everything that does not hold, with the invariant's name."""
    return [f"{view.host}: {check.__name__}: {text}" for check in INVARIANTS for text in check(view, memory)]
