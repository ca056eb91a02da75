# SPDX-License-Identifier: Apache-2.0
"""What a tenant may hold. Beside the guaranteed quotas there may be a pool that all tenants share.

A limit of :data:`~orchestrator.core.tenancy.access.EVERYWHERE` is such a pool: what a tenant holds beyond its own limit
comes from there, and a tenant without a limit of its own takes all of it from there. Without a pool a limit is the end,
and no limit is none. So guarantees hold as long as all limits and the pool together are not more than there is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.core.errors import InvalidInput, QuotaExceeded, Reason
from orchestrator.core.floating_addresses import FloatingAddress
from orchestrator.core.gpu.device import Device
from orchestrator.core.gpu.vgpu_type import parse_vgpu_type_name
from orchestrator.core.security_groups import DEFAULT_GROUP, SecurityGroup
from orchestrator.core.tenancy.access import EVERYWHERE
from orchestrator.core.units import MIB, parse_size, show_size
from orchestrator.core.vms.image import Image
from orchestrator.core.vms.network import Network
from orchestrator.core.vms.priority import Priority, rank
from orchestrator.core.vms.vm import Vm
from orchestrator.core.vms.volume import Volume

Amounts = Mapping[str, int]
"""How much of every resource."""

COUNTS: Final = {
    "vms": "VMs, stopped ones too",
    "devices": "vGPUs and whole GPUs: four pieces of one card are four",
    "whole-gpus": "cards that VMs have whole; pieces of cards not",
    "vgpus": "vGPUs, which are pieces of cards; whole GPUs not",
    "framebuffer": "nominal memory of vGPUs; whole GPUs not",
    "mig-slices": "compute slices of MIG-backed vGPUs, of which a card has 7 at most",
    "vcpus": "vCPUs of VMs, stopped ones too",
    "memory": "memory of VMs, stopped ones too",
    "disk": "disks of VMs with their snapshots, and data volumes",
    "images": "files of the tenant's own base images",
    "nics": "functions of network cards",
    "networks": "networks of the tenant's own",
    "addresses": "of VMs on networks of kind ovn, stopped ones too; floating ones, and those of ways out",
    "groups": "security groups; the default one not",
    "rules": "rules of all its security groups",
}
RESOURCES: Final = tuple(COUNTS)
"""``devices:L40S`` and ``whole-gpus:L40S`` are on GPUs of one model, ``vgpus:<profile>`` of one offering or type."""
SIZES: Final = frozenset({"framebuffer", "memory", "disk", "images"})
"""Counted in MiB."""
MAX_LIMIT: Final = 2**53
"""JSON carries larger numbers badly."""
MAX_RESOURCE: Final = 100
MAX_HOLDERS: Final = 5
"""How many of what is held a refusal names."""
_NARROWED: Final = re.compile(r"(devices|whole-gpus|vgpus):[A-Za-z0-9][A-Za-z0-9 ._-]{0,87}", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Limit:
    """The most a tenant may hold of a resource; the pool's when the tenant is ``*``."""

    tenant: str
    resource: str
    amount: int


@dataclass(frozen=True, kw_only=True)
class QuotaUse:
    """A limit, and how much is held under it. ``limit`` None: there is no limit."""

    resource: str
    limit: int | None
    used: int


def check_resource(name: str) -> str:
    """:raises InvalidInput: ``quota.resource_unknown``"""
    if name.partition(":")[0] == "gpus":
        of = name[4:44]
        raise InvalidInput(
            "quota.resource_unknown",
            "'gpus' could be cards or pieces of them, so no quota is called so",
            hint=f"devices{of} counts vGPUs and whole GPUs (what gpus was), whole-gpus{of} cards given whole",
        )
    if name not in RESOURCES and _NARROWED.fullmatch(name) is None:
        raise InvalidInput(
            "quota.resource_unknown",
            f"there is no quota for {name[:40]!a}",
            hint=f"one of {', '.join(RESOURCES)}, devices:MODEL, whole-gpus:MODEL (whole-gpus:L40S), vgpus:PROFILE",
        )
    return name


def counted_by(resource: str) -> str:
    """What a quota of ``resource`` counts, in words."""
    kind, narrowed, of = resource.partition(":")
    return COUNTS.get(kind, "") + (f" (of {of})" if narrowed else "")


def parse_amount(resource: str, text: str) -> int | None:
    """``20GiB`` of what has a size, ``2`` of the rest; None for ``none``.

    :raises InvalidInput: ``quota.…``
    """
    if text == "none":
        return None
    if resource in SIZES:
        return 0 if text == "0" else parse_size(text, field="quota", at_least=MIB, at_most=MAX_LIMIT) // MIB
    if not (text.isascii() and text.isdigit()) or int(text[:20]) > MAX_LIMIT:
        raise InvalidInput("quota.invalid", f"{text[:40]!a} is no number", hint=f"for example {resource}=2, or =none")
    return int(text)


def show_amount(resource: str, amount: int) -> str:
    """As people type it."""
    return show_size(amount * MIB) if resource in SIZES and amount else str(amount)


def amounts_of(vm: Vm) -> Counter[str]:
    """All that a VM holds, stopped ones too: its claim stays, unless its place was taken back."""
    spec = vm.spec
    machine = machine_amounts(spec.vcpus, spec.memory_mib, spec.disk_bytes)
    machine["disk"] += sum(-(-snapshot.size_bytes // MIB) for snapshot in vm.snapshots)
    if vm.ports:
        machine["addresses"] = len(vm.ports)
    if vm.deallocated is not None:
        return Counter({name: machine[name] for name in ("vms", "disk", "addresses") if name in machine})
    if vm.nic is not None:
        machine["nics"] = 1
    return sum((_device_amounts(device, spec.profile) for device in vm.devices), machine)


def _device_amounts(device: Device, profile: str) -> Counter[str]:
    return whole_gpu_amounts(device.type_name) if device.is_whole_gpu else vgpu_amounts(device.type_name, profile)


def whole_gpu_amounts(board: str | None) -> Counter[str]:
    """A whole GPU; ``board`` as NVIDIA's vGPU types begin: ``NVIDIA L40S``. None: one of any model."""
    names = ("devices", "whole-gpus")
    return Counter(names if board is None else (*names, *(f"{name}:{board.partition(' ')[2]}" for name in names)))


def machine_amounts(vcpus: int, memory_mib: int, disk_bytes: int) -> Counter[str]:
    """A VM without its devices."""
    return Counter({"vms": 1, "vcpus": vcpus, "memory": memory_mib, "disk": -(-disk_bytes // MIB)})


def vgpu_amounts(type_name: str, profile: str) -> Counter[str]:
    """One vGPU of NVIDIA's type ``type_name``, asked for as ``profile``."""
    kind = parse_vgpu_type_name(type_name)
    return Counter(
        {
            "devices": 1,
            f"devices:{kind.board}": 1,
            "vgpus": 1,
            f"vgpus:{type_name}": 1,
            f"vgpus:{profile}": 1,  # of limits that were stored before their keys were looked up
            "framebuffer": kind.framebuffer_mib,
            "mig-slices": kind.gi_slices or 0,
        }
    )


def volume_amounts(size_bytes: int) -> Counter[str]:
    """A data volume, whether a VM has it or not."""
    return Counter({"disk": -(-size_bytes // MIB)})


def held_of(volume: Volume) -> Counter[str]:
    """What it counts for its tenant; one that is lost is nowhere held."""
    return Counter() if volume.state == "lost" else volume_amounts(volume.size_bytes)


def image_amounts(image: Image) -> Counter[str]:
    """A tenant's base image."""
    return Counter({"images": -(-image.size_bytes // MIB)})


FLOATING_AMOUNTS: Final[Amounts] = {"addresses": 1}
"""A floating address."""


def network_amounts(network: Network) -> Amounts:
    """A tenant's network; what leads out of it has an address of the site's."""
    leads_out = network.overlay is not None and network.overlay.out is not None
    return {"networks": 1, "addresses": 1} if leads_out else {"networks": 1}


def group_amounts(group: SecurityGroup) -> Counter[str]:
    """A security group; the default one is the site's doing."""
    groups = int(group.name != DEFAULT_GROUP)
    return Counter({"groups": groups, "rules": len(group.rules)})


def totals_of(
    vms: Iterable[Vm],
    volumes: Iterable[Volume] = (),
    images: Iterable[Image] = (),
    networks: Iterable[Network] = (),
    groups: Iterable[SecurityGroup] = (),
    floating: Iterable[FloatingAddress] = (),
) -> dict[str, Counter[str]]:
    """What every tenant holds."""
    totals: dict[str, Counter[str]] = {}
    for vm in vms:
        totals.setdefault(vm.spec.tenant, Counter()).update(amounts_of(vm))
    for volume in volumes:
        totals.setdefault(volume.tenant, Counter()).update(held_of(volume))
    for image in images:
        if image.tenant is not None:
            totals.setdefault(image.tenant, Counter()).update(image_amounts(image))
    for network in networks:
        if network.tenant is not None:
            totals.setdefault(network.tenant, Counter()).update(network_amounts(network))
    for group in groups:
        totals.setdefault(group.tenant, Counter()).update(group_amounts(group))
    for each in floating:
        totals.setdefault(each.tenant, Counter()).update(FLOATING_AMOUNTS)
    return totals


def holders_of(
    vms: Iterable[Vm],
    volumes: Iterable[Volume],
    images: Iterable[Image],
    networks: Iterable[Network],
    groups: Iterable[SecurityGroup],
    floating: Iterable[FloatingAddress],
) -> dict[str, Counter[str]]:
    """What each of a tenant's things holds, by its name: ``train``, ``volume data``, ``image debian``."""
    return {
        **{vm.spec.name: amounts_of(vm) for vm in vms},
        **{f"volume {volume.name}": held_of(volume) for volume in volumes},
        **{f"image {image.short}": image_amounts(image) for image in images},
        **{f"network {network.short}": Counter(network_amounts(network)) for network in networks},
        **{f"security group {group.name}": group_amounts(group) for group in groups},
        **{f"floating address {each.address}": Counter(FLOATING_AMOUNTS) for each in floating},
    }


def most_held(own: int | None, pool: int | None, drawn: int) -> int:
    """The most a tenant may hold of a resource with a limit of its own, a pool or both. ``drawn``: what the others have
    taken from the pool."""
    return (own or 0) + max(0, (pool or 0) - drawn)


def check_quota(
    tenant: str,
    amounts: Amounts,
    limits: tuple[Limit, ...],
    used: Amounts,
    drawn: Amounts,
    holders: Mapping[str, Amounts] | None = None,
) -> None:
    """May the tenant hold ``asked`` more? ``used``: what it holds now; ``drawn``: what others have from the pool;
    ``holders``: what each of the tenant's own things holds, by name; with it a refusal tells what is counted.

    :raises QuotaExceeded: ``quota.exceeded``, a reason for each limit. Of the pool it tells no numbers: how much of it
        is taken is other tenants' matter.
    """
    own = {limit.resource: limit.amount for limit in limits if limit.tenant == tenant}
    pool = {limit.resource: limit.amount for limit in limits if limit.tenant == EVERYWHERE}
    reasons = []
    for resource in sorted({*own, *pool} & {name for name, amount in amounts.items() if amount}):
        held = used.get(resource, 0)
        if held + amounts[resource] > most_held(own.get(resource), pool.get(resource), drawn.get(resource, 0)):
            pooled = resource in pool
            tail = "" if holders is None else f"; it counts {counted_by(resource)}{_held_by(resource, holders)}"
            reasons.append(_reason(resource, own.get(resource, 0), held, amounts[resource], tail, pooled=pooled))
    if reasons:
        first = reasons[0].message
        raise QuotaExceeded(
            "quota.exceeded",
            first if len(reasons) == 1 else f"{first} (and {len(reasons) - 1} more)",
            hint=f"'vgpuctl quota show {tenant}' shows what is held; {_helps(reasons)} or ask for more",
            reasons=tuple(reasons),
        )


def _helps(reasons: Iterable[Reason]) -> str:
    """Where networks alone are too many, no VM that is deleted makes room for one."""
    if {resource for reason in reasons for resource in reason.subjects} == {"networks"}:
        return "delete a network, name another with --network"
    return "delete a VM"


def _held_by(resource: str, holders: Mapping[str, Amounts]) -> str:
    """The largest first."""
    amounts = {name: held.get(resource, 0) for name, held in holders.items()}
    names = sorted((name for name, amount in amounts.items() if amount), key=lambda name: (-amounts[name], name))
    named = [f"{name} ({show_amount(resource, amounts[name])})" for name in names[:MAX_HOLDERS]]
    more = [f"{len(names) - MAX_HOLDERS} more"] if len(names) > MAX_HOLDERS else []
    return f"; held by {', '.join([*named, *more])}" if named else ""


def _reason(resource: str, limit: int, used: int, more: int, tail: str, *, pooled: bool) -> Reason:
    shown = [show_amount(resource, amount) for amount in (limit, used, more)]
    pool = ", and the shared pool has no room for it" if pooled else ""
    return Reason(
        code="quota.exceeded",
        message=f"the quota of {resource} is {shown[0]}, {shown[1]} in use, {shown[2]} asked for{pool}{tail}",
        subjects=(resource,),
    )


def preemptible(vms: Collection[Vm], limits: Iterable[Limit], *, tenant: str, priority: Priority) -> frozenset[str]:
    """Ids of the VMs that may be stopped, even all of them together, for a VM of ``tenant`` with ``priority``.

    All are of lower priority. Of another tenant's there are only as many as leave it everything up to its own quota;
    what a tenant has without a quota, or from the shared pool, nobody has promised it. An adopted VM is none: its
    definition is not ours, so it could not be placed again.

    :param vms: all VMs of the pool
    """
    totals, promised = totals_of(vms), _promised(limits)
    vm_ids = set()
    for vm in sorted(vms, key=lambda vm: (rank(vm.spec.priority), -vm.created_at, vm.id)):
        if rank(vm.spec.priority) >= rank(priority) or not _has_a_place_to_give(vm):
            continue
        given = amounts_of(vm) - amounts_of(replace(vm, deallocated="preempted"))
        owner = vm.spec.tenant
        if owner == tenant or _keeps(promised.get(owner, {}), totals[owner], given):
            totals[owner] -= given
            vm_ids.add(vm.id)
    return frozenset(vm_ids)


def _has_a_place_to_give(vm: Vm) -> bool:
    return vm.state in {"running", "stopped"} and vm.deallocated is None and vm.spec.adopted is None


def _keeps(promised: Amounts, held: Counter[str], given: Counter[str]) -> bool:
    """Whether, without ``given``, it still holds all that it was promised of what it gives."""
    return all(held[name] - amount >= promised.get(name, 0) for name, amount in given.items())


def _promised(limits: Iterable[Limit]) -> Mapping[str, Amounts]:
    """By tenant and resource."""
    promised: dict[str, dict[str, int]] = {}
    for limit in limits:
        promised.setdefault(limit.tenant, {})[limit.resource] = limit.amount
    return promised
