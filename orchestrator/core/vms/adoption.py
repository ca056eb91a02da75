# SPDX-License-Identifier: Apache-2.0
"""Whether a domain that somebody else made can become a VM of ours, and what it then has. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence

from orchestrator.core.attachments import observed_on
from orchestrator.core.errors import Conflict, NoCapacity, NotFound
from orchestrator.core.geometry.build import MIXED
from orchestrator.core.geometry.cut import Cut
from orchestrator.core.geometry.geometry import Geometry
from orchestrator.core.gpu.device import Device
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import DomainSnapshot, GpuSnapshot, HostSnapshot
from orchestrator.core.vms.claim import Claim, DeviceClaim

_KEPT_AS_IT_IS = "what it runs is left as it is; make a VM with create-vm and move the work there"


def find_domain(snapshot: HostSnapshot, wanted: str) -> DomainSnapshot:
    """By UUID or name.

    :raises NotFound: ``domain.unknown``"""
    for domain in snapshot.domains:
        if wanted == domain.name or wanted.lower() == domain.uuid:
            return domain
    others = ", ".join(domain.name for domain in snapshot.domains if domain.owner is None)
    raise NotFound(
        "domain.unknown",
        f"the host has no domain {wanted[:255]!a}",
        hint=f"domains that we did not make: {others or 'none'}; 'vgpuctl doctor' looks again",
    )


def check_free(domain: DomainSnapshot, although: str | None) -> None:
    """Nobody else goes on changing it, and it has nothing that reaches past its own files and devices. ``although``:
    the other controller that it is taken from all the same.

    :raises Conflict: ``domain.other_controller``, ``domain.transient``, ``domain.unsafe``"""
    holder = domain.managed_by
    if holder and holder.lower() != (although or "").lower():
        raise Conflict(
            "domain.other_controller",
            f"domain {domain.name} is held by {holder}, which would go on starting, moving and removing it",
            hint=f"take it out of {holder}, then adopt it with --although-managed-by {shlex.quote(holder)}",
        )
    if domain.transient:
        raise Conflict(
            "domain.transient",
            f"domain {domain.name} has no definition that stays, so that it is gone when it stops",
            hint=f"on its host 'virsh dumpxml {domain.uuid} --inactive > FILE' and 'virsh define FILE' keep it; "
            "then adopt it",
        )
    if domain.unsafe:
        raise Conflict(
            "domain.unsafe",
            f"domain {domain.name} has what no VM may have: {', '.join(domain.unsafe)}",
            hint=f"take it out of the definition ('virsh edit {domain.uuid}'), restart the domain, then adopt it",
        )


def devices_of(host: Host, snapshot: HostSnapshot, domain: DomainSnapshot) -> tuple[Device, ...]:
    """Its host devices as vGPUs on GPUs of ours, in the order of its definition.

    :raises Conflict: ``domain.no_vgpu``, ``domain.passthrough``, ``domain.network_function``, ``gpu.not_managed``,
        ``domain.vgpu_gone``, ``domain.vgpu_ours``
    """
    if not domain.devices:
        raise Conflict("domain.no_vgpu", f"domain {domain.name} has no vGPU", hint=_KEPT_AS_IT_IS)
    return tuple(_device(host, snapshot, domain, name) for name in domain.devices)


def _device(host: Host, snapshot: HostSnapshot, domain: DomainSnapshot, name: str) -> Device:
    observed = next((device for gpu in snapshot.gpus if (device := _on_gpu(gpu, name)) is not None), None)
    if any(name == gpu.address for gpu in snapshot.gpus):
        raise Conflict("domain.passthrough", f"domain {domain.name} has the whole GPU {name}", hint=_KEPT_AS_IT_IS)
    if any(name == function.address for nic in snapshot.nics for function in nic.functions):
        raise Conflict(
            "domain.network_function", f"domain {domain.name} has the network function {name}", hint=_KEPT_AS_IT_IS
        )
    if observed is None:
        raise Conflict(
            "domain.vgpu_gone",
            f"domain {domain.name} names {name}, and the host shows no vGPU there",
            hint="start the domain, then adopt it; a device that is no vGPU cannot be taken over",
        )
    if observed.gpu not in host.managed_gpus:
        raise Conflict(
            "gpu.not_managed",
            f"its vGPU is on GPU {observed.gpu}, which was not given to us",
            hint=f"'vgpuctl host show {host.name}' lists the GPUs that were",
        )
    return observed


def _on_gpu(gpu: GpuSnapshot, name: str) -> Device | None:
    """:raises Conflict: ``domain.vgpu_ours``"""
    known = next((observed for observed in observed_on(gpu) if observed.device.name == name), None)
    if known is None:
        return None
    if known.owner is not None:
        raise Conflict(
            "domain.vgpu_ours", f"vGPU {name} was made by us for VM {known.owner}", hint="see 'vgpuctl doctor'"
        )
    return known.device


def places_of(
    geometries: Mapping[str, Geometry], vm: str, devices: Sequence[Device], claims: Sequence[Claim], host: str
) -> tuple[DeviceClaim, ...]:
    """Of all its devices, each beside those before it. ``geometries``: by GPU. :raises: as :func:`place_of`"""
    placed: tuple[DeviceClaim, ...] = ()
    for device in devices:
        own = Claim(vm=vm, host=host, devices=placed, vcpus=0, memory_mib=0, disk_bytes=0)
        placed += (place_of(geometries[device.gpu], device, (*claims, own), host),)
    return placed


def place_of(geometry: Geometry, device: Device, claims: Iterable[Claim], host: str) -> DeviceClaim:
    """The slots the vGPU takes. In a cut of equal sizes all places are alike, so it is the first free one.

    :raises Conflict: ``domain.type_unknown``, ``gpu.cut_differs``
    :raises NoCapacity: ``gpu.no_capacity``
    """
    here = [candidate for claim in claims for candidate in claim.devices if candidate.gpu == device.gpu]
    cuts = [cut for cut, _ in geometry.options.get(device.type_name, ())]
    if device.placement_id is not None:
        cuts = [cut for cut in cuts if cut == MIXED]
    if not cuts:
        raise Conflict(
            "domain.type_unknown",
            f"GPU {device.gpu} does not list {device.type_name} among its types",
            hint=f"'vgpuctl gpu show {host} {device.gpu}' lists them",
        )
    cut = here[0].cut if here else cuts[0]
    shapes = geometry.cut(cut)
    if cut not in cuts or shapes is None:
        raise Conflict(
            "gpu.cut_differs",
            f"GPU {device.gpu} is claimed for vGPUs of another size",
            hint="delete the stopped VMs that hold it, or start them elsewhere",
        )
    taken = {slot for claim in here for slot in claim.slots}
    shape = geometry.shape_in(device.type_name, cut)
    for start in _starts(shapes, shape, device):
        slots = tuple(range(start, start + shapes.size(str(shape))))
        if taken.isdisjoint(slots):
            return DeviceClaim(gpu=device.gpu, cut=cut, slots=slots, function=device.function)
    if shapes.kind != "time_sliced":
        taken = set(range(shapes.slots))
    slot = next((slot for slot in range(shapes.slots) if slot not in taken), None)
    if slot is None:
        raise NoCapacity(
            "gpu.no_capacity",
            f"every place of GPU {device.gpu} is claimed, also by VMs that are stopped",
            hint=f"delete one of them: 'vgpuctl gpu show {host} {device.gpu}' names them",
        )
    return DeviceClaim(gpu=device.gpu, cut=cut, slots=(slot,), function=device.function)


def _starts(cut: Cut, shape: str | None, device: Device) -> tuple[int, ...]:
    """Where it may lie by what the driver says; none in a cut of equal sizes, where all places are alike."""
    if shape is None or cut.kind == "time_sliced":
        return ()
    if device.instance is not None:
        return cut.starts_in(shape, device.instance.start)
    return () if device.placement_id is None else (device.placement_id,)
