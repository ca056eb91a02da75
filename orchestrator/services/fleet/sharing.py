# SPDX-License-Identifier: Apache-2.0
"""Who may not share a GPU or host, judged once more where a claim is stored."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from orchestrator.core.geometry.build import MIG
from orchestrator.core.gpu.device import Device
from orchestrator.core.gpu.mig_profile import is_mig_profile_name, parse_mig_profile_name
from orchestrator.core.gpu.vgpu_type import is_vgpu_type_name, parse_vgpu_type_name
from orchestrator.core.vms.claim import Claim
from orchestrator.core.vms.isolation import DEFAULT_ISOLATION, Isolation, may_share_gpu, may_share_host
from orchestrator.core.vms.vm import Vm
from orchestrator.store.records import ClaimLost
from orchestrator.store.transaction import Transaction


def check_neighbours(tx: Transaction, vm: Vm, claim: Claim) -> None:
    """Two controllers may plan for two tenants at once. Call it after the claim is taken: from then on others' claims
    on that host wait, or are seen here.

    :raises ClaimLost: it would come to lie beside a tenant that it is kept apart from, on a GPU that is sanitising or
        divides its time otherwise, or in a GPU instance of another size; plan again
    """
    tenant = vm.spec.tenant
    tx.cleanings.check(claim.host, (device.gpu for device in claim.devices))
    neighbours = tx.claims.neighbours(claim.host, tenant)
    others = [neighbour for neighbour in neighbours if neighbour.tenant != tenant]
    isolations = tx.policies.isolations() if others else {}
    mine = isolations.get(tenant, DEFAULT_ISOLATION)
    gpus = {device.gpu for device in claim.devices}
    _check_alike(tx, vm, claim, any(neighbour.scheduled and neighbour.gpu in gpus for neighbour in neighbours))
    for neighbour in others:
        theirs = isolations.get(neighbour.tenant, DEFAULT_ISOLATION)
        shares = neighbour.gpu not in gpus or may_share_gpu(mine, theirs, divided=neighbour.cut == MIG)
        if not (shares and may_share_host(mine, theirs)):
            raise ClaimLost(f"another tenant is on {claim.host} now")
    _check_instances(tx, vm, claim, isolations)


def _check_instances(tx: Transaction, vm: Vm, claim: Claim, isolations: Mapping[str, Isolation]) -> None:
    """vGPUs share a GPU instance that are of one size, and of tenants that may share its engines. A claim is of their
    own parts of it."""
    mine = isolations.get(vm.spec.tenant, DEFAULT_ISOLATION)
    for neighbour in in_its_instances(tx, vm, claim):
        theirs = isolations.get(neighbour.spec.tenant, DEFAULT_ISOLATION)
        if neighbour.spec.tenant != vm.spec.tenant and not may_share_gpu(mine, theirs, divided=False):
            raise ClaimLost(f"a GPU instance of {claim.host} is another's now")


def in_its_instances(tx: Transaction, vm: Vm, claim: Claim) -> Iterator[Vm]:
    """VMs that have a part of a GPU instance which it has a part of, by their claims.

    :raises ClaimLost: one is of another size, which no instance takes beside it
    """
    wanted = {(device.gpu, device.gi_start): device for device in vm.devices if _is_part(device)}
    placed = {other.vm for other in tx.claims.of_host(claim.host)} - {vm.id} if wanted else set()
    for neighbour in tx.vms.list(host=claim.host) if placed else ():
        beside = [
            (wanted[key], device) for device in neighbour.devices if (key := (device.gpu, device.gi_start)) in wanted
        ]
        if neighbour.id in placed and beside:
            if any(_size(device) != _size(other) for device, other in beside):
                raise ClaimLost(f"a GPU instance of {claim.host} has vGPUs of another size now")
            yield neighbour


def _is_part(device: Device) -> bool:
    """Whether it is smaller than its GPU instance."""
    profile = device.gi_profile
    if profile is None or not is_mig_profile_name(profile) or not is_vgpu_type_name(device.type_name):
        return False
    return parse_vgpu_type_name(device.type_name).size_gb < parse_mig_profile_name(profile).memory_gb


def _size(device: Device) -> tuple[str | None, int]:
    return device.gi_profile, parse_vgpu_type_name(device.type_name).size_gb


def _check_alike(tx: Transaction, vm: Vm, claim: Claim, others_set_it: bool) -> None:
    """``others_set_it``: some VM on its GPUs, which may be this one, wants a setting of one."""
    wanted = {device.gpu: device.asks_of_gpu for device in vm.devices}
    if not others_set_it and not any(wanted.values()):
        return
    placed = {other.vm for other in tx.claims.of_host(claim.host)} - {vm.id}
    neighbours = (other for other in tx.vms.list(host=claim.host) if other.id in placed)
    shared = (device for other in neighbours for device in other.devices if device.gpu in wanted)
    if any(device.asks_of_gpu != wanted[device.gpu] for device in shared):
        raise ClaimLost(f"a GPU of {claim.host} divides its time otherwise now")
