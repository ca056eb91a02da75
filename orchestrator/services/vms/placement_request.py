# SPDX-License-Identifier: Apache-2.0
"""What placement is asked for a VM, by create and start as by explain and capacity; and what is told first of a request
that fits nowhere."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from orchestrator.core.advice.outlook import own_reason
from orchestrator.core.errors import Reason
from orchestrator.core.offerings.offering import Offering, check_one_gpu, check_whole_pages
from orchestrator.core.overlay import OvnNetwork
from orchestrator.core.placement.rules.disk import gib_of
from orchestrator.core.placement.rules.named import BesideSnapshot, OnHost
from orchestrator.core.placement.rules.rule import need_of
from orchestrator.core.placement.rules.wanted import Wanted
from orchestrator.core.placement.views import Request
from orchestrator.core.provider_networks import with_mapping
from orchestrator.core.units import GIB
from orchestrator.core.vms.network import Network
from orchestrator.core.vms.vm import Vm, VmShape
from orchestrator.services.fleet.index import FleetIndex
from orchestrator.store.transaction import Transaction


def with_site_rules(tx: Transaction, fleet: FleetIndex, wanted: Wanted) -> Wanted:
    """And what the site says of its tenant and offering.

    :raises InvalidInput: ``memory.not_whole_pages``, ``gpu.one_named``"""
    check_whole_pages(wanted.offering, wanted.vm.memory_mib)
    check_one_gpu(wanted.offering, wanted.vm.gpu)
    tenant = wanted.vm.tenant
    apart = _kept_apart(tx, wanted.offering, tenant, wanted.vm_id)
    return replace(wanted, isolation=fleet.isolation_of(tenant), apart_from_vms=apart)


def _kept_apart(tx: Transaction, offering: Offering, tenant: str, vm_id: str) -> tuple[str, ...]:
    """Ids of the tenant's VMs of that offering that the VM may not share a host with."""
    if offering.anti_affinity != "host":
        return ()
    return tuple(other for other in tx.vm_pages.ids(tenant, offering.name) if other != vm_id)


def on_networks(tx: Transaction, wanted: Wanted, names: tuple[str, ...]) -> Wanted:
    """With what the networks that are called so on hosts need there; those that are not there yet are made on any."""
    return with_networks(tx, wanted, filter(None, map(tx.networks.find, names)))


def with_networks(tx: Transaction, wanted: Wanted, networks: Iterable[Network]) -> Wanted:
    """The same of these."""
    known = tuple(networks)
    uplinks = tuple(network.uplink for network in known if network.uplink is not None)
    overlays = [network.overlay for network in known if network.overlay is not None]
    return replace(wanted, uplinks=uplinks, overlay=bool(overlays), leading_out=_leading_out(tx, overlays))


def _leading_out(tx: Transaction, overlays: Iterable[OvnNetwork]) -> frozenset[str] | None:
    """Names of hosts that have all provider networks among these; None: none is one."""
    physical = [overlay.provider.physical for overlay in overlays if overlay.provider is not None]
    chassis = tx.networks.chassis() if physical else ()
    hosts = [with_mapping(chassis, name) for name in physical]
    return frozenset.intersection(*hosts) if hosts else None


def in_coarse_steps(wanted: Wanted) -> Wanted:
    """The same for who does not watch the pool: sizes rounded up to powers of two. Whether a VM fits would else tell,
    by halves, how much others have on the host of one's volume; what fits so fits as it is."""
    vm = wanted.vm
    disk_bytes = _power_of_two(gib_of(vm.disk_bytes)) * GIB
    rounded = replace(vm, vcpus=_power_of_two(vm.vcpus), memory_mib=_power_of_two(vm.memory_mib), disk_bytes=disk_bytes)
    return replace(wanted, vm=rounded)


def _power_of_two(number: int) -> int:
    """The least that is not less; 0 of 0."""
    return 1 << (number - 1).bit_length() if number else 0


def models_kept(fleet: FleetIndex, offering: Offering, vm: Vm | None) -> tuple[str, ...]:
    """Of the whole GPUs that the VM has: what its guest was made for. It gets no others for them, whatever size it
    becomes and wherever it goes; empty: any. Ask inside :meth:`FleetIndex.current`."""
    if vm is None or not offering.gpu_count:
        return ()
    viewed, own = fleet.host(vm.host), {device.gpu for device in vm.devices if device.is_whole_gpu}
    gpus = () if viewed is None else viewed.view.gpus
    return tuple(dict.fromkeys(gpu.geometry.model for gpu in gpus if gpu.gpu_id in own))


def place_named(request: Request) -> str | None:
    """The only host that will do, for people. None: any will."""
    on_host = need_of(request.needs, OnHost)
    return None if on_host is None else on_host.place


def first_reason(
    tx: Transaction, fleet: FleetIndex, request: Request, asked: VmShape, *, is_new: bool = True
) -> Reason | None:
    """What is to be told first of a request that fits nowhere: never before not now, own VMs before others'.

    ``asked``: the VM or the question, whose profile is named. ``is_new``: it is not there yet.
    """
    place = place_named(request)
    beside = need_of(request.needs, BesideSnapshot)
    if beside is not None:
        place = "the host of its snapshot"
        if request.host != beside.host:
            return Reason(code="host.no_snapshot", message="its snapshot is on another host than it is to be on")
    lasting = fleet.lasting_reason(request, asked=asked.profile, place=place) if is_new else None
    if lasting is not None:
        return lasting
    own = [vm for vm in tx.vms.list(tenant=request.tenant) if vm.deallocated is None and vm.id != request.vm_id]
    return own_reason(request, fleet.fleet().views, own, asked=asked.profile) if own else None
