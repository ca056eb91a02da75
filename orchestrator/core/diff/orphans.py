# SPDX-License-Identifier: Apache-2.0
"""Objects on a host that no VM of the database has. Only what is provably ours and unused may ever be touched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.core.actions.fabric import DeactivateFabricPartition
from orchestrator.core.actions.host_actions import (
    DeleteImage,
    DeleteSeed,
    DeleteVolume,
    HostAction,
    ImageFormat,
    StopDomain,
    UndefineDomain,
)
from orchestrator.core.actions.nics import TakeNicFunction
from orchestrator.core.actions.volumes import DeleteDataVolume, DetachVolume
from orchestrator.core.attachments import observed_on, remove
from orchestrator.core.diff.finding import ExpectedHost, Finding, Repair, Whose
from orchestrator.core.hosts.mig_layout import KEEPER
from orchestrator.core.hosts.snapshot import HostSnapshot

_IMAGE = re.compile(r"([0-9a-f]{64})\.(qcow2|raw)", re.ASCII)
_FORMATS: dict[str, ImageFormat] = {"qcow2": "qcow2", "raw": "raw"}
_NO_REPAIR: dict[Whose, str] = {
    "ours": "it is in use: stop what uses it first",
    "foreign": "we did not make it, so we leave it alone",
    "unknown": "the database does not know its VM (was a backup restored?): nothing is removed by itself",
}


@dataclass(frozen=True, kw_only=True)
class _Object:
    code: str
    name: str
    """With its kind in front."""
    owner: str | None
    used: bool
    """By a running domain or a process, or nobody can tell."""
    remove: tuple[HostAction, ...]
    adoptable: str | None = None
    """UUID of the domain by which it may be taken over."""


def orphan_findings(wanted: ExpectedHost, snapshot: HostSnapshot) -> Iterator[Finding]:
    """Domains first: they hold the vGPUs and files of the same VM."""
    known = {expected.vm.id for expected in wanted.vms} | wanted.busy | {KEEPER}
    active = {domain.uuid for domain in snapshot.domains if domain.active}
    for item in _objects(wanted, snapshot):
        if item.owner in known:
            continue
        whose = _whose(item.owner, wanted.gone)
        if whose == "foreign" and item.code == "orphan.volume":
            continue  # the operator may keep files of his own there
        safe = whose == "ours" and not item.used and item.owner not in active
        yield Finding(
            code=item.code,
            severity="info" if whose == "foreign" else "warning",
            host=wanted.host.name,
            subject=item.name,
            vm=item.owner,
            whose=whose,
            wanted="nothing",
            observed=f"{item.name}, owned by {item.owner or 'nobody we know'}{', in use' if item.used else ''}",
            repair=Repair(kind="clean_up", automatic=True, actions=item.remove) if safe else None,
            reason="a deleted VM left it behind; it is removed" if safe else _why_not(wanted, item, whose),
        )


def image_finding(wanted: ExpectedHost, snapshot: HostSnapshot) -> Finding | None:
    """Copies of base images that were removed. While there are disks of VMs that the database does not know, each may
    be based on one."""
    named = ((file, _IMAGE.fullmatch(file.name)) for file in snapshot.images if file.name not in wanted.images)
    left = [(file, match) for file, match in named if match is not None]
    if not left:
        return None
    known = {vm.id for vm in wanted.placed}
    unknown = [file for file in snapshot.volumes if file.owner not in known]
    if any(file.owner in wanted.busy | wanted.gone for file in unknown):
        return None  # those disks go first
    actions = tuple(DeleteImage(sha256=match[1], image_format=_FORMATS[match[2]]) for _, match in left)
    why = "the images were removed, and no VM is based on them; their copies are removed too"
    if unknown:
        names = ", ".join(file.name for file in unknown)
        why = f"they stay while disks are there whose VMs the database does not know: {names[:200]}"
    return Finding(
        code="orphan.image", severity="warning", host=wanted.host.name, subject=f"images on host {wanted.host.name}",
        vm=None, whose="ours", wanted="copies of images that have a name",
        observed=f"{len(left)} others, {sum(file.size_bytes for file, _ in left)} bytes",
        repair=None if unknown else Repair(kind="clean_up", automatic=True, actions=actions), reason=why,
    )  # fmt: skip


def _why_not(wanted: ExpectedHost, item: _Object, whose: Whose) -> str:
    if whose == "foreign" and item.adoptable is not None:
        return f"{_NO_REPAIR[whose]}; 'vgpuctl adopt-vm {wanted.host.name} {item.adoptable}' takes it over"
    return _NO_REPAIR[whose]


def _whose(owner: str | None, gone: frozenset[str]) -> Whose:
    if owner is None:
        return "foreign"
    return "ours" if owner in gone else "unknown"


def _objects(wanted: ExpectedHost, snapshot: HostSnapshot) -> Iterator[_Object]:
    for domain in snapshot.domains:
        # A VM's domain that lost its owner is told of with the VM.
        owner = domain.owner or (domain.uuid if any(expected.vm.id == domain.uuid for expected in wanted.vms) else None)
        used = domain.active
        yield _Object(
            code="orphan.domain", name=f"domain {domain.uuid}", owner=owner, used=used,
            remove=(UndefineDomain(vm=owner or domain.uuid),), adoptable=domain.uuid if domain.devices else None,
        )  # fmt: skip
    yield from _partitions(snapshot)
    yield from _vgpus(wanted, snapshot)
    yield from _network_functions(snapshot)
    for file in snapshot.volumes:
        delete = DeleteVolume(vm=file.owner or "", volume=file.name)
        yield _Object(code="orphan.volume", name=f"volume {file.name}", owner=file.owner, used=False, remove=(delete,))
    for file in snapshot.seeds:
        seed = DeleteSeed(vm=file.owner or "", seed=file.name)
        yield _Object(code="orphan.seed", name=f"seed {file.name}", owner=file.owner, used=False, remove=(seed,))


def _partitions(snapshot: HostSnapshot) -> Iterator[_Object]:
    """Of ours those as well that were written down and are not active."""
    held = {name for one in snapshot.domains if one.active for name in one.devices}
    for one in snapshot.fabric.partitions if snapshot.fabric is not None else ():
        if one.active or one.owner is not None:
            gpus = tuple(gpu.address for gpu in snapshot.gpus if gpu.module_id in one.modules)
            yield _Object(
                code="orphan.partition", name=f"fabric partition {one.id}", owner=one.owner,
                used=not held.isdisjoint(gpus),
                remove=(DeactivateFabricPartition(vm=one.owner or "", partition=one.id, gpus=gpus),),
            )  # fmt: skip


def _network_functions(snapshot: HostSnapshot) -> Iterator[_Object]:
    """Ours alone: what others do with a host's network cards is told where somebody asks about the cards."""
    held = {name for one in snapshot.domains if one.active for name in one.devices}
    for card, one in ((nic.address, one) for nic in snapshot.nics for one in nic.functions):
        if one.owner is not None:
            yield _Object(
                code="orphan.nic", name=f"network function {one.address}", owner=one.owner, used=one.address in held,
                remove=(TakeNicFunction(vm=one.owner, card=card, vf=one.address),),
            )  # fmt: skip


def _vgpus(wanted: ExpectedHost, snapshot: HostSnapshot) -> Iterator[_Object]:
    """On GPUs that were given to us: what others do on theirs is none of our business."""
    held = {name: one.uuid for one in snapshot.domains if one.active for name in one.devices}
    of_ours = {device.name for one in wanted.vms for device in one.vm.devices}  # told of with the VM
    ours = (gpu for gpu in snapshot.gpus if gpu.address in wanted.host.managed_gpus)
    for one in (one for gpu in ours for one in observed_on(gpu)):
        name = one.device.name
        if one.owner is None and name in of_ours:
            continue
        yield _Object(
            code="orphan.vgpu", name=f"vGPU {name}", owner=one.owner, used=one.in_use or name in held,
            remove=remove(one.owner or "", one.device),
            adoptable=None if one.device.is_whole_gpu else held.get(name),
        )  # fmt: skip


def removal_of(snapshot: HostSnapshot, owner: str) -> tuple[HostAction, ...]:
    """What removes all that the ledger says is that VM's, running or not, or the data volume with that id. The agent
    keeps what somebody else's domain uses."""
    domains = [one for one in snapshot.domains if owner in {one.uuid, one.owner} and one.owner is not None]
    actions: list[HostAction] = []
    if domains:
        actions += [StopDomain(vm=owner, grace_seconds=0), UndefineDomain(vm=owner)]
    for partition in snapshot.fabric.partitions if snapshot.fabric is not None else ():
        if partition.owner == owner:
            gpus = tuple(gpu.address for gpu in snapshot.gpus if gpu.module_id in partition.modules)
            actions.append(DeactivateFabricPartition(vm=owner, partition=partition.id, gpus=gpus))
    for device in (one for gpu in snapshot.gpus for one in observed_on(gpu)):
        actions += remove(owner, device.device) if device.owner == owner else ()
    for nic in snapshot.nics:
        actions += [
            TakeNicFunction(vm=owner, card=nic.address, vf=one.address) for one in nic.functions if one.owner == owner
        ]
    actions += [DeleteVolume(vm=owner, volume=file.name) for file in snapshot.volumes if file.owner == owner]
    actions += [DeleteSeed(vm=owner, seed=file.name) for file in snapshot.seeds if file.owner == owner]
    for file in snapshot.data:
        if file.owner == owner:
            actions.append(DeleteDataVolume(volume=file.name))
        elif domains:  # one that it has stays, and is nobody's then
            actions.append(DetachVolume(vm=owner, volume=file.name))
    return tuple(actions)


def undefinition_of(snapshot: HostSnapshot, owner: str) -> tuple[HostAction, ...]:
    """With it the host forgets what of that VM is gone; nothing where somebody else has made a domain of its id."""
    foreign = any(domain.uuid == owner and domain.owner is None for domain in snapshot.domains)
    return () if foreign else (UndefineDomain(vm=owner),)


def volume_findings(wanted: ExpectedHost, snapshot: HostSnapshot) -> Iterator[Finding]:
    """Those that are missing, then those that nobody knows. Files that we did not make are their owner's."""
    files = {item.name for item in snapshot.data}
    for volume in wanted.volumes:
        if volume.file not in files:
            yield Finding(
                code="volume.missing", severity="error", host=wanted.host.name,
                subject=f"volume {volume.full_name}", vm=volume.vm, whose="ours",
                wanted=f"file {volume.file}", observed="no such file", repair=None,
                reason="what was on it is gone; put the file back, or delete the volume",
            )  # fmt: skip
    known = {item.id for item in wanted.volumes} | wanted.busy
    for file in snapshot.data:
        if file.owner is not None and file.owner not in known:
            yield Finding(
                code="orphan.data", severity="warning", host=wanted.host.name, subject=f"data volume {file.name}",
                vm=None, whose="unknown", wanted="nothing", observed=f"{file.name}, {file.size_bytes} bytes taken",
                repair=None, reason="the database does not know it (was a backup restored?): it is left alone",
            )  # fmt: skip
