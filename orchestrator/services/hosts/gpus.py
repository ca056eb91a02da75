# SPDX-License-Identifier: Apache-2.0
"""GPUs of all hosts, with what is free and used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Final

from orchestrator.catalogue.gpu_tables import model_name, model_of, tables_of
from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.geometry.cut import Cut, IllegalLayout, Taken
from orchestrator.core.gpu.health import closing_fault
from orchestrator.core.gpu.health_states import GpuHealth, not_waived, reason_closed, tried_after_reboot
from orchestrator.core.gpu.pci import parse_pci_address
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import GpuSnapshot, HostSnapshot, HostVgpuType
from orchestrator.core.names import near
from orchestrator.core.operation import Operation
from orchestrator.core.placement.views import GpuView, HostView
from orchestrator.core.vms.claim import Claim
from orchestrator.core.vms.cleaning import Cleaning
from orchestrator.core.vms.vm import Vm
from orchestrator.operations.gpu_health import gpu_faults, users_of_gpu
from orchestrator.ports.clock import Clock, Ids
from orchestrator.ports.engine import Engine
from orchestrator.services.begin import begin_on_host
from orchestrator.services.fleet.view import SANITISING, gpu_view, kept_alone
from orchestrator.services.hosts.gpu_health import check_ours, close_for_mending, gpu_of
from orchestrator.services.messages import GpuInfo, Started, TypeUse
from orchestrator.services.tenancy.tenants import known_tenant
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class GpuService:
    """Reads only."""

    store: Store

    def list(
        self, host: str | None, after: tuple[str, str] | None = None, most: int | None = None
    ) -> tuple[GpuInfo, ...]:
        """By host and PCI address, ``most`` of those behind ``after``; other hosts are not looked at.

        :raises NotFound: ``host.unknown``
        """
        with self.store.read() as tx:
            hosts = tx.hosts.list() if host is None else (tx.hosts.get(host),)
            ordered = sorted(
                (host for host in hosts if after is None or host.name >= after[0]), key=lambda one: one.name
            )
            infos = (info for host in ordered for info in sorted(gpus_of(tx, host), key=place_of))
            return tuple(islice((info for info in infos if after is None or place_of(info) > after), most))

    def get(self, host: str, address: str) -> GpuInfo:
        """:raises NotFound: ``gpu.unknown``"""
        by_address = {info.gpu.address: info for info in self.list(host)}
        if address in by_address:
            return by_address[address]
        hint = near(address, by_address, f"vgpuctl gpu list --host {host}")
        raise NotFound("gpu.unknown", f"host {host} has no GPU {ascii(address)[:40]}", hint=hint)

    def cleanings(
        self, *, limit: int, before: int | None, sanitising: bool, **equal: str | None
    ) -> tuple[Cleaning, ...]:
        """Newest first; of things that are gone as well. ``equal``: members and what they are.

        :raises NotFound: ``host.unknown``, ``gpu.unknown``, ``vm.unknown``, ``tenant.unknown``: there is no such thing,
            and no cleaning is of one"""
        with self.store.read() as tx:
            listed = tx.cleanings.list(limit=limit, before=before, is_open=sanitising, **equal)
            for member, name in equal.items() if not listed and before is None else ():
                if name is None or tx.cleanings.list(limit=1, before=None, is_open=False, **{member: name}):
                    continue
                _check_known(tx, member, name)
            return listed


def _check_known(tx: Transaction, member: str, name: str) -> None:
    """Of a cleaning. :raises NotFound: ``host.unknown``, ``gpu.unknown``, ``vm.unknown``, ``tenant.unknown``"""
    match member:
        case "host":
            tx.hosts.get(name)
        case "tenant":
            known_tenant(tx, name)
        case "gpu":
            known = {gpu for host in tx.hosts.list() for gpu in host.managed_gpus}
            if name not in known:
                hint = near(name, known, "vgpuctl gpu list")
                raise NotFound("gpu.unknown", f"no host has given us a GPU {ascii(name)[:40]}", hint=hint)
        case "vm_name":
            names = {vm.spec.name for vm in tx.vms.list()}
            if name not in names:
                raise NotFound(
                    "vm.unknown", f"no VM is called {name[:63]!a}", hint=near(name, names, "vgpuctl list-vms")
                )


def place_of(info: GpuInfo) -> tuple[str, str]:
    """What GPUs are sorted by."""
    return info.host, info.gpu.address


def gpus_of(tx: Transaction, host: Host) -> tuple[GpuInfo, ...]:
    """All GPUs of a host as last observed."""
    snapshot = tx.hosts.snapshot(host.name)
    if snapshot is None:
        return ()
    claims = tx.claims.of_host(host.name)
    vms = {vm.id: vm for vm in tx.vms.list(host=host.name)}
    kept = {cleaning.gpu: SANITISING for cleaning in tx.cleanings.open_on((host.name,))}
    return tuple(_info(host, gpu, claims, vms, kept) for gpu in snapshot.gpus)


def _info(
    host: Host, gpu: GpuSnapshot, claims: tuple[Claim, ...], vms: dict[str, Vm], kept: Mapping[str, str]
) -> GpuInfo:
    view = gpu_view(host, gpu, tables_of(gpu), claims, vms, kept)
    here = [vms[claim.vm] for claim in claims if any(device.gpu == gpu.address for device in claim.devices)]
    devices = Counter(device.type_name for vm in here for device in vm.devices if device.gpu == gpu.address)
    health, managed = host.health_of(gpu.address) or GpuHealth(), gpu.address in host.managed_gpus
    closed = (f"no new vGPU on function {at}: {reason_closed(its)}" for at, its in health.closed_functions.items())
    faults = filter(None, (reason_closed(health), kept_alone(host, gpu), kept.get(gpu.address), *closed))
    return GpuInfo(
        host=host.name,
        gpu=replace(gpu, model=model_name(gpu), problems=(*gpu.problems, *faults)),
        managed=managed,
        state=health.state if managed else None,
        cut=view.cut,
        types=tuple(_use(listed, view, devices[listed.name]) for listed in gpu.types),
        vms=tuple(vm.full_name for vm in here),
        vm_names={vm.id: vm.full_name for vm in here},
    )


def _use(one: HostVgpuType, view: GpuView, used: int) -> TypeUse:
    return TypeUse(
        name=one.name,
        framebuffer_mib=one.framebuffer_mib,
        max_instances=one.max_instances,
        used=used,
        free=free_places(view, one.name) if view.usable else 0,
    )


def free_places(view: GpuView, type_name: str) -> int:
    """How many more of the type the GPU takes as it is cut now; an empty one may be cut in any way of its mode."""
    return max((_room(view, cut, shape) for cut, shape in view.geometry.options.get(type_name, ())), default=0)


def _room(view: GpuView, name: str, shape: str) -> int:
    """Places of one size are taken from the lowest on, which leaves out none."""
    cut = view.geometry.cut(name)
    if cut is None or view.cut not in {None, name}:
        return 0
    taken = tuple(
        Taken(view.geometry.shape_in(item.profile, name) or item.profile, item.start, item.size)
        for item in view.occupied
    )
    return _places(cut, shape, taken)


@lru_cache(maxsize=1024)
def _places(cut: Cut, shape: str, taken: tuple[Taken, ...]) -> int:
    """A fleet has few kinds of GPUs, whose cuts are made once, and most of them are taken alike."""
    try:
        state = cut.classify(taken)
    except IllegalLayout:
        return 0
    return cut.room(state, shape)


def whole_gpus(host: HostView, models: Collection[str]) -> list[GpuView]:
    """Those of its GPUs that may be given out as a whole, of the model that most of them are; ``models`` empty: any."""
    passable = [gpu for gpu in host.gpus if gpu.usable and gpu.reason_not_whole is None]
    of_models = Counter(gpu.geometry.model for gpu in passable if not models or gpu.geometry.model in models)
    return [gpu for gpu in passable for model, _ in of_models.most_common(1) if gpu.geometry.model == model]


@dataclass(frozen=True, kw_only=True)
class CardService:
    store: Store
    engine: Engine
    clock: Clock
    ids: Ids

    def accept(self, host: str, addresses: Sequence[str]) -> Started:
        """Cards that are at other addresses now are taken to be the GPUs that they were, and VMs follow them.
        ``addresses``: managed GPUs whose card is another one, which is right.

        :raises NotFound: ``host.unknown``, ``gpu.not_ours``; :raises Conflict: ``host.busy``
        :raises InvalidInput: ``pci.address_invalid``
        """
        named = [parse_pci_address(address) for address in addresses]
        with self.store.begin() as tx:
            standing = tx.hosts.get(host)
            for address in named:
                check_ours(standing, address)
            operation = begin_on_host(tx, standing, "accept_gpus", {"addresses": named}, clock=self.clock, ids=self.ids)
        return self._submitted(operation, host)

    def reset(self, host: str, gpu: str, *, rebooted: bool = False) -> Started:
        """It is closed, reset and tried; then it is on watch, else it is quarantined. ``rebooted``: its host
        was, instead of a reset that failed; it is tried.

        :raises NotFound: ``host.unknown``, ``gpu.not_ours``
        :raises Conflict: ``gpu.in_use``: VMs have a place there, or a MIG layout; ``gpu.needs_reboot``,
            ``gpu.is_function``, ``host.busy``"""
        with self.store.begin() as tx:
            standing, snapshot = tx.hosts.get(host), tx.hosts.snapshot(host)
            whole = gpu_of(tx, standing, gpu)
            if whole != gpu:
                words = f"{gpu} is a virtual function of GPU {whole}, and is reset with all of it"
                raise Conflict("gpu.is_function", words, hint=f"'vgpuctl health reset {host} {whole}'")
            seen = next((item for item in snapshot.gpus if item.address == gpu), None) if snapshot else None
            if snapshot is None or seen is None:
                hint = f"'vgpuctl host reboot {host}'; is it not there then, reseat or replace it"
                raise Conflict("gpu.needs_reboot", f"GPU {gpu} is not on its bus", hint=hint)
            if seen.driver is None:
                hint = f"'vgpuctl doctor --host {host}' tells why; load its driver, or 'vgpuctl host reboot {host}'"
                raise Conflict(
                    "gpu.needs_driver", f"no driver has GPU {gpu} that could try it after a reset", hint=hint
                )
            _check_resettable(tx, standing, snapshot, gpu)
            _check_neighbours(tx, standing, snapshot, seen)
            close_for_mending(tx, standing, gpu, tx.time.no_earlier(self.clock.now()), "closed to be reset")
            of_gpu: dict[str, object] = {
                "gpu": gpu,
                "model": model_name(seen),
                "driver": seen.driver,
                "mig": seen.mig_enabled is True,
                "rebooted": rebooted,
                "signals": [[signal.name, signal.at] for signal in seen.signals if not signal.function],
            }
            operation = begin_on_host(tx, standing, "reset_gpu", of_gpu, clock=self.clock, ids=self.ids)
            if rebooted and (health := standing.health_of(gpu)) is not None:
                tx.gpu_health.put(host, gpu, tried_after_reboot(health), changed=False)
        return self._submitted(operation, host)

    def _submitted(self, operation: Operation, host: str) -> Started:
        self.engine.submit(operation.id)
        return Started(operation=operation.id, name=host)


def _check_resettable(tx: Transaction, host: Host, snapshot: HostSnapshot, gpu: str) -> None:
    """:raises Conflict: ``gpu.in_use``, ``gpu.needs_reboot``"""
    vms = users_of_gpu(tx, host.name, gpu)
    if vms:
        hint = f"'vgpuctl health empty {host.name} {gpu}' moves those that have a place elsewhere"
        raise Conflict("gpu.in_use", f"VMs have a place on GPU {gpu}: {', '.join(vms)}", hint=hint)
    if any(layout.gpu == gpu for layout in host.mig_layouts):
        hint = f"'vgpuctl mig release {host.name}' first: containers of the host may use it"
        raise Conflict("gpu.in_use", f"GPU {gpu} is kept for a MIG layout", hint=hint)
    closing = closing_fault(not_waived(gpu_faults(tx, host, snapshot, gpu), host.health_of(gpu)))
    if closing is not None and closing.remedy == "reboot_host":
        hint = f"'vgpuctl host reboot {host.name}' empties it first"
        raise Conflict("gpu.needs_reboot", f"a reset is no help: {closing.signal.words}", hint=hint)


_RESET_TOGETHER: Final = frozenset({"pascal", "volta", "turing"})


def _check_neighbours(tx: Transaction, host: Host, snapshot: HostSnapshot, gpu: GpuSnapshot) -> None:
    """That a reset of one GPU takes no other along. From Ampere on one may be reset alone, on an Ampere baseboard while
    the fabric manager is there to train its links anew; one of before only with all that NVLink joins it to
    (docs.nvidia.com/deploy/nvidia-smi: --gpu-reset).

    :raises Conflict: ``gpu.in_use``"""
    fabric, model = snapshot.fabric, model_of(gpu)
    for partition in () if fabric is None else fabric.partitions:
        if partition.active and gpu.module_id in partition.modules:
            hint = f"whoever activated it deactivates it: 'fmpm -d {partition.id}' on {host.name}"
            words = f"GPU {gpu.address} is in fabric partition {partition.id}, which is active"
            raise Conflict("gpu.in_use", words, hint=hint)
    if model is None or not model.nvlink:
        return
    untrained = model.architecture == "ampere" and fabric is not None and fabric.problem is not None
    if model.architecture not in _RESET_TOGETHER and not untrained:
        return
    at_work = [other.address for other in snapshot.gpus if other.address != gpu.address and _is_linked(other)]
    users = {address: vms for address in at_work if (vms := users_of_gpu(tx, host.name, address))}
    if users:
        first, names = next(iter(users)), "; ".join(f"{at} ({', '.join(vms)})" for at, vms in users.items())
        words = f"NVLink may join GPU {gpu.address} to {names}, and its reset would break their links"
        start = "start the fabric manager, or " if untrained else ""
        raise Conflict("gpu.in_use", words, hint=f"{start}'vgpuctl health empty {host.name} {first}' first")


def _is_linked(gpu: GpuSnapshot) -> bool:
    model = model_of(gpu)
    return model is not None and model.nvlink
