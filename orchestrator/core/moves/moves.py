# SPDX-License-Identifier: Apache-2.0
"""Whether a VM may move to a host: what placement says of it there, and the rules of moves. Pure.

Placement is asked what create and explain ask it: the VM's own request, on that host. Of a move with the VM's state it
is asked the same with the GPUs alone that the state goes onto, cut as the VM's own one is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.drivers.check import forbidden_pair
from orchestrator.core.drivers.matrix import DriverMatrix
from orchestrator.core.errors import Reason
from orchestrator.core.geometry.cut import CutKind
from orchestrator.core.gpu.device import Device
from orchestrator.core.gpu.vgpu_metadata import VgpuQuestion
from orchestrator.core.hosts.pool import pool_of
from orchestrator.core.hosts.snapshot import GpuSnapshot
from orchestrator.core.moves.answers import DriverAnswers, limits_of_answer
from orchestrator.core.moves.rules import (
    OWN_HOST_AWAY,
    SUSPENDED,
    Between,
    GpuPair,
    Traveller,
    limits_between,
    limits_by_data,
    limits_of_gpus,
    limits_of_vm,
)
from orchestrator.core.moves.verdicts import (
    EVERY,
    KINDS,
    WITH_DEVICES,
    WITH_MEMORY,
    Bars,
    HostMoves,
    MoveKind,
    MoveLimit,
    MoveVerdict,
    limits_on,
)
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.fleet import FleetHost, Gpu
from orchestrator.core.placement.reasons import NOT_MEANT, has_profile, refusal
from orchestrator.core.placement.rules.named import on_host
from orchestrator.core.placement.rules.rule import GpuInUse, Need
from orchestrator.core.placement.views import Request
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import file_of, short_of


@dataclass(frozen=True, kw_only=True)
class Moving:
    """A VM that may move."""

    traveller: Traveller
    request: Request
    """What placement is asked for it as it is, with its disk. Whoever named a host for it meant its first one."""
    source: HostFacts | None
    """Of its own host; None: it was never observed."""
    cuts: tuple[CutKind, ...]
    """Ways of cutting that its state goes on under; none: any."""
    guest_driver: str | None
    """In its guest; None: not told."""
    matrix: DriverMatrix
    drivers: DriverAnswers


@dataclass(frozen=True, kw_only=True)
class _Target:
    """Where it would go. ``fits``: GPUs there that have what it asks for, in use or not. ``placed``: the VM itself has
    a place there."""

    name: str
    facts: HostFacts
    fits: tuple[Gpu, ...]
    placed: bool


def of_dead_host(vm: Vm, limits: Sequence[MoveLimit]) -> tuple[MoveLimit, ...]:
    """What of ``limits`` to a cold move holds as well where its host is dead, and that its disk is there. The memory of
    a suspended one is lost with the host."""
    left = tuple(limit for limit in limits if limit.code not in {OWN_HOST_AWAY, SUSPENDED})
    if vm.spec.pool is not None or vm.spec.adopted is not None:
        return left
    cure = f"it starts when host {vm.host} is back; 'vgpuctl host forget {vm.host}' gives it up with the host"
    return (MoveLimit(code="move.own_disk", message="its disk is on its host, which is dead", cure=cure), *left)


@dataclass(frozen=True)
class _AmongGpus(Need):
    """GPUs of the one host that is asked about; the others' reasons are told instead of this one's."""

    codes = ("gpu.other",)

    gpus: frozenset[str]

    @property
    def judges_empty_gpus(self) -> bool:
        return True

    def off_gpu(self, gpu: GpuInUse) -> Iterator[str]:
        if gpu.gpu_id not in self.gpus:
            yield "gpu.other"

    def message(self, code: str) -> str:
        return "the VM's state does not go onto this GPU"


def moves_to(moving: Moving, target: HostFacts, engine: PlacementEngine, host: FleetHost) -> HostMoves:
    """The verdicts of all ways to that host.

    :param target: what is known of the host
    :param engine: has the host; it is left as it was
    :param host: of the engine; the VM's own one without what the VM has there
    """
    own, name = moving.traveller.vm.host, host.view.name
    gpus, limits = _placed(engine, moving.request, host)
    bars = (*_of_vm_to(moving.traveller, name), *_between(moving, name, target), *((EVERY, limit) for limit in limits))
    to = _Target(name=name, facts=target, fits=_fitting(moving, host), placed=bool(gpus))
    verdicts = []
    for kind in KINDS:
        limits = limits_on(kind, bars)
        if kind in WITH_MEMORY and to.fits and moving.source is not None:
            limits += _of_state(moving, kind, to, engine, host)
        verdicts.append(MoveVerdict(kind=kind, limits=_without_waiting(limits)))
    return HostMoves(host=name, is_its_own=own == name, verdicts=tuple(verdicts), gpus=gpus)


def barred(moving: Moving, kind: MoveKind, name: str, target: HostFacts | None) -> tuple[MoveLimit, ...]:
    """What keeps the VM from going to that host in that way, beside placement and GPUs. ``target`` None: it is not
    known."""
    between = () if target is None else _between(moving, name, target)
    return limits_on(kind, (*_of_vm_to(moving.traveller, name), *between))


def barred_hosts(moving: Moving, kind: MoveKind, hosts: Iterable[tuple[str, HostFacts]]) -> frozenset[str]:
    """Names of those that the VM may not go to in that way, beside what placement, GPUs and the VM itself say. Hosts
    of the same software and CPUs are judged once: there may be thousands."""
    alike: dict[tuple[object, ...], bool] = {}
    names = set[str]()
    for name, facts in hosts:
        key = (facts.kernel, facts.libvirt, facts.qemu, facts.driver, facts.cpu)
        if key not in alike:
            alike[key] = bool(limits_on(kind, _between(moving, name, facts)))
        if alike[key] or name == moving.traveller.vm.host:
            names.add(name)
    return frozenset(names)


def has_unread_vgpu(moving: Moving) -> bool:
    """Whether the driver of its own host says something of its vGPUs, and nobody has read it since it runs."""
    vm, own = moving.traveller.vm, moving.source
    if vm.state != "running" or own is None:
        return False
    parts = ((device, _snapshot(own, device.gpu)) for device in vm.devices if not device.is_whole_gpu)
    known = moving.drivers.metadata
    return any(gpu is not None and gpu.metadata is not None and not known.get(device.gpu) for device, gpu in parts)


def _of_vm_to(moving: Traveller, name: str | None) -> Iterator[Bars]:
    """``name`` None: to any host but its own."""
    yield from limits_of_vm(moving)
    vm = moving.vm
    if vm.host == name:
        yield frozenset({"live", "cold"}), MoveLimit(code="move.same_host", message="it is there already")
        return
    if own := tuple(volume for volume in vm.spec.volumes if pool_of(file_of(volume)) is None):
        yield EVERY, _volumes(vm, tuple(map(short_of, own)))
    if vm.snapshots:
        yield EVERY, _snapshots(vm)
    if vm.suspended_bytes is not None:
        words = "its memory is on its host's disk, and does not move"
        yield frozenset({"suspended"}), MoveLimit(code="move.suspended", message=words)


UNASKED: Final = "move.not_asked"
_UNREAD: Final = MoveLimit(
    code=UNASKED,
    message="what its own host's driver says of its vGPU, which the other one has to judge, is not told yet",
    cure="the driver tells it once the VM's guest has begun to boot: ask again",
)


def questions(moving: Moving, target: HostFacts, host: FleetHost) -> tuple[VgpuQuestion, ...]:
    """That its driver would be asked, each once."""
    pairs = (
        (device.gpu, _snapshot(target, gpu.gpu_id)) for gpu in _fitting(moving, host) for device in _devices(moving)
    )
    return tuple(dict.fromkeys(
        question
        for own, gpu in pairs if gpu is not None
        for question in moving.drivers.questions(own, gpu.metadata)
    ))  # fmt: skip


def waits_for_answer(moves: HostMoves) -> bool:
    """Whether the driver's answer alone is missing to one of its ways."""
    return any(limit.code == UNASKED for verdict in moves.verdicts for limit in verdict.limits)


def _without_waiting(limits: tuple[MoveLimit, ...]) -> tuple[MoveLimit, ...]:
    """A driver need not be asked about what something else rules out."""
    return tuple(limit for limit in limits if limit.code != UNASKED) or limits


def _fitting(moving: Moving, host: FleetHost) -> tuple[Gpu, ...]:
    return tuple(gpu for gpu in host.gpus if moving.request.whole_gpus or has_profile(moving.request, gpu))


def _devices(moving: Moving) -> Sequence[Device]:
    return moving.traveller.vm.devices


def _volumes(vm: Vm, names: tuple[str, ...]) -> MoveLimit:
    """``names``: of its data volumes that are in no pool."""
    words = f"its data volumes ({', '.join(names)}) are on its host, and volumes do not move"
    cure = f"'vgpuctl volume detach {names[0]} {vm.spec.name} --tenant {vm.spec.tenant}', and so of each"
    return MoveLimit(code="move.volume", message=words, cure=cure)


def _snapshots(vm: Vm) -> MoveLimit:
    words = f"its snapshots ({', '.join(snapshot.name for snapshot in vm.snapshots[:3])}) are on its host"
    cure = f"'vgpuctl vm snapshot delete {vm.spec.name} {vm.snapshots[0].name} --tenant {vm.spec.tenant}', and so each"
    return MoveLimit(code="move.snapshots", message=words, cure=cure)


def own_verdicts(moving: Traveller) -> tuple[MoveVerdict, ...]:
    """What rules each way out wherever the VM would go from its host: all that its tenant learns."""
    bars = tuple(_of_vm_to(moving, None))
    return tuple(MoveVerdict(kind=kind, limits=limits_on(kind, bars)) for kind in KINDS)


def _placed(
    engine: PlacementEngine, request: Request, host: FleetHost
) -> tuple[tuple[str, ...], tuple[MoveLimit, ...]]:
    """The GPUs that it would have there, or why it has no place there."""
    named = replace(request, needs=on_host(request.needs, host.view.host_id))
    plan = engine.plan(named)
    if plan is not None:
        return tuple(dict.fromkeys(engine.fleet.gpus[number].gpu_id for number, _ in plan.gpus)), ()
    reasons = refusal(engine, named, (host,)).reasons
    meant = tuple(reason for reason in reasons if reason.code not in NOT_MEANT) or reasons
    return (), tuple(_limit(reason, host.view.name) for reason in meant)


_IN_THE_WAY = "'vgpuctl gpu list --host {host}' tells what is on its GPUs"
_CURES = {
    "host.cordoned": "'vgpuctl host uncordon {host}'",
    "host.disk": "free disk there",
    "gpu.no_capacity": _IN_THE_WAY,
    "gpu.fragmented": _IN_THE_WAY,
    "gpu.other_size_in_use": _IN_THE_WAY,
    "gpu.other_cut_in_use": _IN_THE_WAY,
    "host.vcpus": _IN_THE_WAY,
    "host.memory": _IN_THE_WAY,
    "host.no_uefi": "'vgpuctl host check {host}' tells what to install",
    "host.no_swtpm": "'vgpuctl host check {host}' tells what to install",
}


def _limit(reason: Reason, host: str) -> MoveLimit:
    cure = _CURES.get(reason.code)
    return MoveLimit(code=reason.code, message=reason.message, cure=None if cure is None else cure.format(host=host))


def _between(moving: Moving, name: str, target: HostFacts) -> Iterator[Bars]:
    forbidden = _forbidden(moving, name, target)
    if forbidden is not None:
        yield frozenset({"cold"}), forbidden
    if moving.source is None:
        yield WITH_MEMORY, MoveLimit(code="move.own_host_unknown", message="its own host was never observed")
    else:
        yield from limits_between(Between(vm=moving.traveller.vm, source=moving.source, target=target, name=name))


def _forbidden(moving: Moving, name: str, target: HostFacts) -> MoveLimit | None:
    """By the drivers' matrix."""
    guest, host = moving.guest_driver, target.driver
    why = forbidden_pair(moving.matrix, host_driver=host, guest_driver=guest) if guest is not None and host else None
    if why is None:
        return None
    words = f"its guest has driver {guest} and {name} has {host}: {why}"
    return MoveLimit(code="vm.driver_forbidden", message=words, cure="another driver in its guest")


def _of_state(
    moving: Moving, kind: MoveKind, target: _Target, engine: PlacementEngine, host: FleetHost
) -> tuple[MoveLimit, ...]:
    """Why the VM's state goes onto none of the GPUs where the VM itself might have a place; empty: it does, or they
    are taken."""
    request = moving.request
    refused = {gpu.gpu_id: limits_on(kind, _of_gpu(moving, gpu, target)) for gpu in target.fits}
    allowed = frozenset(gpu for gpu, limits in refused.items() if not limits)
    if not allowed:
        return min(refused.values(), key=len)
    if not target.placed:
        return ()
    if kind in WITH_DEVICES and moving.cuts:
        request = replace(request, cut_kinds=moving.cuts)
    if len(allowed) < len(host.gpus):
        request = replace(request, needs=(*request.needs, _AmongGpus(allowed)))
    taken = _placed(engine, request, host)[1]
    waiting = (limits for limits in refused.values() if limits and all(limit.code == UNASKED for limit in limits))
    return next(waiting, taken) if taken else ()


def _of_gpu(moving: Moving, gpu: Gpu, target: _Target) -> Iterator[Bars]:
    snapshot = _snapshot(target.facts, gpu.gpu_id)
    for device in _devices(moving):
        yield from limits_onto(moving, device, snapshot, target.facts, target.name)


def limits_onto(
    moving: Moving, device: Device, gpu: GpuSnapshot | None, target: HostFacts, name: str
) -> Iterator[Bars]:
    """What keeps the state of that device of the VM from a GPU of the host of that name; a GPU of its own that is not
    there any more says nothing."""
    own = moving.source
    source = None if own is None else _snapshot(own, device.gpu)
    if own is None or source is None or gpu is None:
        message = f"its GPU {device.gpu} is not on its host now"
        yield WITH_MEMORY, MoveLimit(code="move.own_gpu_gone", message=message)
        return
    pair = GpuPair(device=device, source=source, target=gpu)
    yield from limits_of_gpus(pair)
    pairs = moving.drivers.questions(device.gpu, gpu.metadata)
    if not pairs and None not in (source.metadata, gpu.metadata) and not device.is_whole_gpu:
        yield WITH_MEMORY, _UNREAD
        return
    answers = [moving.drivers.answer(name, question) for question in pairs] or [None]
    for answer in answers:
        if answer is not None:
            yield from limits_of_answer(answer, name, moving.traveller.vm.spec)
            continue
        hosts = Between(vm=moving.traveller.vm, source=own, target=target, name=name)
        yield from limits_by_data(hosts, pair)
        forbidden = _forbidden(moving, name, target)
        if forbidden is not None:
            yield WITH_MEMORY, forbidden


def limits_onto_its(moving: Moving, devices: Sequence[Device], target: HostFacts, name: str) -> Iterator[Bars]:
    """What keeps the state of its devices from the GPUs of those that it would have instead, in the same order."""
    for device, arrived in zip(_devices(moving), devices, strict=True):
        yield from limits_onto(moving, device, _snapshot(target, arrived.gpu), target, name)


def limits_of_resume(moving: Moving, target: HostFacts) -> tuple[MoveLimit, ...]:
    """What keeps a VM, whose state is written to its host's disk, from going on there as the host is in ``target``."""
    vm = moving.traveller.vm
    own = (*_of_vm_to(moving.traveller, vm.host), *_between(moving, vm.host, target))
    limits = limits_on("suspended", (*own, *limits_onto_its(moving, vm.devices, target, vm.host)))
    return tuple(
        replace(limit, message=limit.message.replace("its own host", "the host as it was then")) for limit in limits
    )


def _snapshot(facts: HostFacts, address: str) -> GpuSnapshot | None:
    return next((gpu for gpu in facts.gpus if gpu.address == address), None)
