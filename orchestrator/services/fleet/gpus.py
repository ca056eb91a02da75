# SPDX-License-Identifier: Apache-2.0
"""Hosts as the engine takes them: every way of cutting that their GPUs have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from orchestrator.catalogue.gpu_tables import GpuTables, Tables, tables_of
from orchestrator.core.advice.alike import KnownRooms
from orchestrator.core.attachments.host_facts import HostFacts
from orchestrator.core.byte_cache import ByteCache
from orchestrator.core.hosts.cpus import NumaNode
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import GpuSnapshot
from orchestrator.core.placement.rules import facts_of, nics
from orchestrator.core.placement.rules.rule import Fact
from orchestrator.core.placement.rules.tenants import Isolated
from orchestrator.core.placement.views import GpuView, HostView, Occupied
from orchestrator.core.units import MIB
from orchestrator.core.vms.isolation import Isolation
from orchestrator.core.vms.vm import Vm
from orchestrator.services.fleet.fabric import reason_not_joined
from orchestrator.services.fleet.nics import free_of_nics, near_nics
from orchestrator.services.fleet.numa import spent_of_nodes, vms_coming
from orchestrator.services.fleet.view import SANITISING, Overcommit, Viewed, free_on_host, gpu_view
from orchestrator.store.records import HostRecord

_KNOWN_BYTES: Final = 64 * MIB
_IDLE_BYTES: Final = 64 * MIB
"""Enough for 16,000 GPUs."""
_VIEW_BYTES: Final = 2048
"""Of a view of a GPU that holds nothing."""
_CLEARED: Final = "it is being cleared for another VM"


@dataclass(frozen=True, kw_only=True)
class SiteRules:
    """What holds for the VMs of a site, wherever they are."""

    apart: Callable[[str], Isolation]
    """Tenant → how far it is kept apart from others."""
    label_keys: frozenset[str] = frozenset()
    """Keys of the hosts' labels that say something about placement."""


@dataclass(frozen=True, kw_only=True)
class Viewer:
    """Makes views. What is worked out for one GPU is found again for those like it."""

    overcommit: Overcommit
    tables: Tables = tables_of
    rooms: KnownRooms = field(init=False, default_factory=KnownRooms)
    _known: ByteCache[GpuTables] = field(init=False, default_factory=lambda: ByteCache(_KNOWN_BYTES))
    _idle: ByteCache[GpuView] = field(init=False, default_factory=lambda: ByteCache(_IDLE_BYTES))

    def view(self, seen: HostRecord, facts: HostFacts, rules: SiteRules) -> Viewed:
        narrow = free_on_host(seen, facts, self.overcommit)
        tables = [self._tables_of(gpu) for gpu in facts.gpus]
        near = near_nics(seen.host, facts)
        gpus = tuple(_with_facts(gpu, near[gpu.gpu_id]) for gpu in self._gpus(seen, facts, tables, rules))
        labels = tuple(label for label in seen.host.labels if label[0] in rules.label_keys)
        joinable = _partitions(facts, gpus, tables)
        has = (*narrow.facts, *facts_of(facts, seen.host.name, labels))
        free = (*narrow.free, *free_of_nics(seen, facts))
        view = replace(narrow, gpus=gpus, fabric_partitions=joinable, facts=has, free=free)
        return Viewed(seen=seen, facts=facts, view=view, rooms=self.rooms)

    def empty(self, viewed: Viewed) -> HostView:
        """As if it were ready, nothing were on it and its GPUs were in whatever mode is asked for; GPUs that are not
        ours stay out."""
        host = replace(viewed.seen.host, cordoned=False, state="ready")
        seen = replace(viewed.seen, host=host, claims=(), vms=(), volume_bytes=0)
        gpus = tuple(self._emptied(*pair, host) for pair in zip(viewed.view.gpus, viewed.facts.gpus, strict=True))
        narrow = free_on_host(seen, viewed.facts, self.overcommit)
        return replace(
            narrow, gpus=gpus, cordoned=False, facts=viewed.view.facts,
            free=(*narrow.free, *free_of_nics(seen, viewed.facts)), fabric_partitions=viewed.view.fabric_partitions,
        )  # fmt: skip

    def _emptied(self, view: GpuView, gpu: GpuSnapshot, host: Host) -> GpuView:
        in_mode_only = gpu.mig_enabled and gpu.iommu_shared_with == ()
        return replace(
            view, geometry=self._tables_of(gpu).ever, cut=None, occupied=(), usable=gpu.address in host.managed_gpus,
            reason_not_whole=None if in_mode_only else view.reason_not_whole,
        )  # fmt: skip

    def _gpus(
        self, seen: HostRecord, facts: HostFacts, tables: list[GpuTables], rules: SiteRules
    ) -> tuple[GpuView, ...]:
        vms = {vm.id: vm for vm in seen.vms}
        managed = frozenset(seen.host.managed_gpus)
        kept = dict.fromkeys((device.gpu for vm in vms_coming(seen) for device in vm.devices), _CLEARED)
        kept |= dict.fromkeys(seen.sanitising, SANITISING)
        claimed = {claimed_device.gpu for claim in seen.claims for claimed_device in claim.devices} | kept.keys()

        def made(gpu: GpuSnapshot, table: GpuTables) -> GpuView:
            view = gpu_view(seen.host, gpu, table, seen.claims, vms, kept)
            if view.reason_not_whole is None:
                view = replace(view, reason_not_whole=reason_not_joined(gpu, table, facts.fabric))
            held = (_held(item, vms.get(item.vm_id), rules, facts.nodes) for item in view.occupied)
            return replace(view, occupied=tuple(held))

        views = []
        for gpu, table in zip(facts.gpus, tables, strict=True):
            if gpu.parents or gpu.instances or gpu.address in claimed:
                views.append(made(gpu, table))
                continue
            key = (gpu, gpu.address in managed, seen.host.health_of(gpu.address), facts.fabric)
            view = self._idle.get(key)
            if view is None:
                view = made(gpu, table)
                self._idle.put(key, view, _VIEW_BYTES)
            views.append(view)
        return tuple(views)

    def _tables_of(self, gpu: GpuSnapshot) -> GpuTables:
        key = (
            gpu.types, gpu.model, gpu.memory_mib, gpu.pci_device, gpu.pci_subsystem_device, gpu.framework,
            gpu.mig_enabled, gpu.heterogeneous, gpu.sriov_enabled_vfs,
        )  # fmt: skip
        tables = self._known.get(key)
        if tables is None:
            tables = self.tables(gpu)
            self._known.put(key, tables, tables.size)
        return tables


def _with_facts(gpu: GpuView, more: tuple[Fact, ...]) -> GpuView:
    return replace(gpu, facts=(*gpu.facts, *more)) if more else gpu


def _held(item: Occupied, vm: Vm | None, rules: SiteRules, nodes: Sequence[NumaNode]) -> Occupied:
    """With whom it keeps off, and with what its VM has that is counted near GPUs. ``vm``: whose it is; None: somebody
    else made it."""
    if item.tenant:
        item = replace(item, needs=(*item.needs, Isolated(item.tenant, rules.apart(item.tenant), item.profile)))
    if vm is None:
        return item
    functions = () if vm.nic is None else nics.functions_of({vm.nic.card: 1})
    return replace(item, spent=(*item.spent, *spent_of_nodes(vm, nodes), *functions))


def _partitions(facts: HostFacts, gpus: tuple[GpuView, ...], tables: list[GpuTables]) -> tuple[tuple[int, ...], ...]:
    """The partitions of the baseboard that all GPUs of a host sit on; module ids must be known. The host's own fabric
    manager knows better than the tables."""
    if facts.fabric is not None and facts.fabric.partitions:
        return tuple(partition.modules for partition in facts.fabric.partitions)
    boards = {table.partitions for table in tables}
    return next(iter(boards)) if len(boards) == 1 and all(gpu.module_id is not None for gpu in gpus) else ()
