# SPDX-License-Identifier: Apache-2.0
"""GPUs that are not as they were accepted, cut or shared, or lack a driver. What the driver says of them: health.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from orchestrator.core.actions.gpu_cards import GpuCard, cards_of, moves, strangers
from orchestrator.core.actions.host_actions import EnableVirtualFunctions
from orchestrator.core.diff.finding import ExpectedHost, Finding, Repair, host_finding
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.mig_layout import MigLayout, difference, shown
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.protocol import not_on_bus
from orchestrator.core.vms.isolation import DEFAULT_ISOLATION, Isolation, may_share_gpu
from orchestrator.core.vms.vm import Vm

_MOVED = "nothing starts there by its address: 'vgpuctl gpu accept {host}' has VMs and claims follow their card"
_REPLACED = "nothing starts there: is the new card right, 'vgpuctl gpu accept {host} {address}' says so"
_MISSING = "its VMs keep their places until it is there again: is it seated, what does 'dmesg' say of it?"
_NO_DRIVER = "no vGPU can be made there: load NVIDIA's driver ('dmesg' says why it did not), or give the GPU back to it"
_SWITCHED_OFF = "no vGPU can be made there: they are switched on again (sriov-manage -e)"


def card_findings(host: Host, accepted: Sequence[GpuCard], snapshot: HostSnapshot) -> Iterator[Finding]:
    """One for each GPU whose card is not where it was accepted, or is not there at all."""
    seen, known = cards_of(snapshot.gpus), {card.address: card for card in accepted}
    now = {card.address: card.words for card in seen}
    moved = moves(accepted, seen)
    for old, new in moved.items():
        differ = known[old].words, f"it is at {new}, and {now.get(old, 'no card')} is here"
        yield _card_finding(host, "gpu.moved", old, differ, _MOVED)
    for address, (card, stranger) in strangers(accepted, seen).items():
        yield _card_finding(host, "gpu.replaced", address, (card.words, stranger.words), _REPLACED)
    for address in snapshot.lacks(host.managed_gpus):
        if address not in moved:
            words = known[address].words if address in known else "a GPU of ours"
            yield _card_finding(host, "gpu.missing", address, (words, not_on_bus((address,))), _MISSING)


def _card_finding(host: Host, code: str, address: str, differ: tuple[str, str], why: str) -> Finding:
    """``differ``: what was accepted, and what was observed."""
    repair = Repair(kind="accept_gpus", automatic=False) if code == "gpu.moved" else None
    why = why.format(host=host.name, address=address)
    return replace(host_finding(host, code, "error", differ, why, f"GPU {address}"), repair=repair)


def function_findings(wanted: ExpectedHost, snapshot: HostSnapshot) -> Iterator[Finding]:
    """GPUs without driver or virtual functions. One that a VM has whole, or shall have, is with that VM. Without vGPUs
    on a host that has no driver at all none is missed: whole GPUs need none."""
    devices = [device for vm in wanted.placed if vm.deallocated is None for device in vm.devices]
    whole = {device.gpu for device in devices if device.is_whole_gpu}
    cut = {device.gpu for device in devices} - whole
    for gpu in snapshot.gpus:
        if gpu.address not in wanted.host.managed_gpus or gpu.address in whole or gpu.driver == "vfio-pci":
            continue
        subject = f"GPU {gpu.address}"
        if gpu.driver != "nvidia" and (snapshot.driver_version is not None or gpu.address in cut):
            differ = ("NVIDIA's driver", f"{gpu.driver or 'no'} driver")
            yield host_finding(wanted.host, "gpu.no_driver", "error", differ, _NO_DRIVER, subject)
        elif gpu.driver == "nvidia" and gpu.sriov_total_vfs and not gpu.sriov_enabled_vfs:
            actions = (EnableVirtualFunctions(gpu=gpu.address),)
            repair = Repair(kind="mend_host", automatic=False, actions=actions)
            differ = (f"virtual functions, {gpu.sriov_total_vfs} at most", "none is switched on")
            off = host_finding(wanted.host, "gpu.functions_off", "error", differ, _SWITCHED_OFF, subject)
            yield replace(off, repair=repair)


def layout_findings(host: Host, snapshot: HostSnapshot) -> Iterator[Finding]:
    """One for each GPU that is kept for a MIG layout and is not as it says."""
    gpus = {gpu.address: gpu for gpu in snapshot.gpus}
    for layout in host.mig_layouts:
        gpu = gpus.get(layout.gpu)
        differs = "no such GPU" if gpu is None else difference(layout, gpu)
        if differs is not None:
            why = (
                f"'vgpuctl mig apply {host.name} -f FILE -c CONFIG' makes it so again, "
                f"'vgpuctl mig release {host.name}' gives it up"
            )
            differ, subject = (_layout_text(layout), differs), f"GPU {layout.gpu}"
            yield host_finding(host, "mig.layout_differs", "warning", differ, why, subject)


def _layout_text(layout: MigLayout) -> str:
    mode = f"MIG mode {'on' if layout.on else 'off'}"
    return ", ".join((mode, *(shown(place) for place in layout.instances)))


def tenants_by_gpu(vms: Iterable[Vm]) -> dict[str, set[str]]:
    """Of the VMs that have a place, on GPUs and in GPU instances with more than one tenant."""
    by_gpu: dict[str, set[str]] = {}
    for vm in vms:
        for device in vm.devices if vm.deallocated is None else ():
            places = (device.gpu, f"{device.gpu}, GPU instance at slot {device.gi_start}")
            for place in places if device.gi_start is not None else places[:1]:
                by_gpu.setdefault(place, set()).add(vm.spec.tenant)
    return {gpu: tenants for gpu, tenants in by_gpu.items() if len(tenants) > 1}


def sharing_findings(
    host: Host, shared: Mapping[str, set[str]], divided: frozenset[str], isolations: Mapping[str, Isolation]
) -> Iterator[Finding]:
    """One for each GPU that tenants share although they are to be kept apart: from before that was said, or by
    adoption. ``shared``: of :func:`tenants_by_gpu`. ``divided``: GPUs in MIG mode.
    ``isolations``: of tenants that have another one than the default."""
    for gpu, tenants in sorted(shared.items()):
        wishes = [isolations.get(tenant, DEFAULT_ISOLATION) for tenant in sorted(tenants)]
        if all(may_share_gpu(*pair, divided=gpu in divided) for pair in combinations(wishes, 2)):
            continue
        strict = next(tenant for tenant, wish in zip(sorted(tenants), wishes, strict=True) if wish != "none")
        differ = ("VMs of one tenant", f"VMs of {', '.join(sorted(tenants))}")
        why = (
            "they were placed before their tenants were to be kept apart; delete one, or "
            f"'vgpuctl tenant set {strict} --isolation none' lets them share"
        )
        yield host_finding(host, "gpu.shared", "warning", differ, why, f"GPU {gpu}")
