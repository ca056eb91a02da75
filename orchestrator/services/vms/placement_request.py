# SPDX-License-Identifier: Apache-2.0
"""What placement is asked for a VM, by create and start as by explain and capacity; and what is told first of a request
that fits nowhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from orchestrator.core.advice.outlook import own_reason
from orchestrator.core.errors import Reason
from orchestrator.core.hosts.bridges import Uplink
from orchestrator.core.hosts.nic import NicKind
from orchestrator.core.offerings.offering import Offering, check_whole_pages
from orchestrator.core.placement.from_offering import AskedVm, request_for
from orchestrator.core.placement.views import Request
from orchestrator.services.fleet.index import FleetIndex
from orchestrator.store.transaction import Transaction


class SizedVm(Protocol):
    """The specification of a VM, or a question about one."""

    @property
    def profile(self) -> str: ...
    @property
    def tenant(self) -> str: ...
    @property
    def vcpus(self) -> int: ...
    @property
    def memory_mib(self) -> int: ...
    @property
    def disk_bytes(self) -> int: ...
    @property
    def nic(self) -> NicKind | None: ...
    @property
    def tpm(self) -> bool | None: ...
    @property
    def host(self) -> str | None: ...
    @property
    def gpu(self) -> str | None: ...
    @property
    def volumes(self) -> tuple[object, ...]: ...


def asked_vm(asked: SizedVm, vm_id: str, uplinks: tuple[Uplink, ...]) -> AskedVm:
    """``asked``: with the host that its volumes tie it to, and with their disk where they lie nowhere yet."""
    return AskedVm(
        vm_id=vm_id,
        tenant=asked.tenant,
        vcpus=asked.vcpus,
        memory_mib=asked.memory_mib,
        disk_bytes=asked.disk_bytes,
        host=asked.host,
        gpu=asked.gpu,
        nic=asked.nic is not None,
        tpm=asked.tpm,
        uplinks=uplinks,
    )


def placement_request(tx: Transaction, fleet: FleetIndex, asked: AskedVm, offering: Offering) -> Request:
    """With what the site says of its tenant.

    :raises InvalidInput: ``profile.unsupported``, ``memory.not_whole_pages``"""
    check_whole_pages(offering, asked.memory_mib)
    apart = _kept_apart(tx, offering, asked.tenant, asked.vm_id)
    isolation = fleet.isolation_of(asked.tenant)
    return request_for(replace(asked, isolation=isolation, apart_from_vms=apart), offering)


def _kept_apart(tx: Transaction, offering: Offering, tenant: str, vm_id: str) -> tuple[str, ...]:
    """Ids of the tenant's VMs of that offering that the VM may not share a host with."""
    if offering.anti_affinity != "host":
        return ()
    of_offering = (vm for vm in tx.vms.list(tenant=tenant) if vm.spec.profile == offering.name)
    return tuple(vm.id for vm in of_offering if vm.id != vm_id)


def uplinks_of(tx: Transaction, networks: tuple[str, ...]) -> tuple[Uplink, ...]:
    """Of the networks that are called so on hosts; those that are not there yet are made on any."""
    found = (tx.networks.find(name) for name in networks)
    return tuple(one.uplink for one in found if one is not None and one.uplink is not None)


def in_coarse_steps(request: Request) -> Request:
    """The same for who does not watch the pool: sizes rounded up to powers of two. Whether a VM fits would else tell,
    by halves, how much others have on the host of one's volume; what fits so fits as it is."""
    return replace(
        request,
        vcpus=_power_of_two(request.vcpus),
        pinned=_power_of_two(request.pinned),
        memory_mib=_power_of_two(request.memory_mib),
        huge_mib=_power_of_two(request.huge_mib),
        disk_gib=_power_of_two(request.disk_gib),
    )


def _power_of_two(number: int) -> int:
    """The least that is not less; 0 of 0."""
    return 1 << (number - 1).bit_length() if number else 0


def first_reason(
    tx: Transaction, fleet: FleetIndex, request: Request, asked: SizedVm, *, is_new: bool = True
) -> Reason | None:
    """What is to be told first of a request that fits nowhere: never before not now, own VMs before others'.

    ``asked``: the VM or the question, whose profile, host and volumes are named. ``is_new``: it is not there yet.
    """
    place = None if asked.host is None else "its host" if asked.volumes else f"host {asked.host}"
    lasting = fleet.lasting_reason(request, asked=asked.profile, place=place) if is_new else None
    if lasting is not None:
        return lasting
    own = [vm for vm in tx.vms.list(tenant=request.tenant) if vm.deallocated is None and vm.id != request.vm_id]
    return own_reason(request, fleet.fleet().views, own, asked=asked.profile) if own else None
