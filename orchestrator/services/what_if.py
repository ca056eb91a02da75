# SPDX-License-Identifier: Apache-2.0
"""The fleet for questions that claim nothing: every way of cutting that hosts have, not only what is made so far."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from orchestrator.catalogue.gpu_tables import GpuTables, Tables
from orchestrator.core.advice.remedies import OtherMode
from orchestrator.core.attachments import observed_on
from orchestrator.core.placement.views import GpuView, HostView
from orchestrator.core.snapshot import GpuSnapshot
from orchestrator.ports.store.transaction import Transaction
from orchestrator.services.fleet_view import Overcommit, fleet_of, set_aside


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """Hosts as they are, and what their GPUs could be switched to."""

    hosts: tuple[HostView, ...]
    modes: tuple[OtherMode, ...]


def what_if(
    tx: Transaction, overcommit: Overcommit, tables: Tables, migratable: Callable[[str], bool] = lambda _: False
) -> WhatIf:
    """All hosts that were observed at least once. ``migratable``: whether the VM of that id may be moved.

    GPU instances that somebody made by hand are not observed and therefore not seen here.
    """
    hosts: list[HostView] = []
    modes: list[OtherMode] = []
    snapshots = tx.hosts.snapshots()
    managed = {host.name: frozenset(host.managed_gpus) for host in tx.hosts.list()}
    for view in fleet_of(tx, overcommit):
        found = {gpu.address: (gpu, tables(gpu)) for gpu in snapshots[view.host_id].gpus}
        gpus = tuple(_widened(gpu, *found[gpu.gpu_id], managed[view.host_id], migratable) for gpu in view.gpus)
        modes += [
            OtherMode(host_id=view.host_id, gpu_id=gpu.gpu_id, mode=words, geometry=geometry)
            for gpu in gpus
            for words, geometry in found[gpu.gpu_id][1].others
        ]
        hosts.append(replace(view, gpus=gpus, fabric_partitions=_partitions(gpus, found)))
    return WhatIf(hosts=tuple(hosts), modes=tuple(modes))


def _widened(
    view: GpuView, gpu: GpuSnapshot, tables: GpuTables, managed: frozenset[str], migratable: Callable[[str], bool]
) -> GpuView:
    """A GPU that is only in another mode than vGPUs need is usable here; claims keep the cut they were made with."""
    reason = view.reason_unusable
    if not view.usable and set_aside(managed, gpu) is None and not view.occupied and not any(observed_on(gpu)):
        reason = None
    held = tuple(replace(item, migratable=migratable(item.vm_id)) for item in view.occupied)
    lost = view.cut is not None and tables.now.cut(view.cut) is None
    return replace(
        view, geometry=view.geometry if lost else tables.now, occupied=held, usable=reason is None,
        reason_unusable=reason,
    )  # fmt: skip


def _partitions(
    gpus: tuple[GpuView, ...], found: dict[str, tuple[GpuSnapshot, GpuTables]]
) -> tuple[tuple[int, ...], ...]:
    """The partitions of the baseboard that all GPUs of a host sit on; module ids must be known."""
    boards = {found[gpu.gpu_id][1].partitions for gpu in gpus}
    return next(iter(boards)) if len(boards) == 1 and all(gpu.module_id is not None for gpu in gpus) else ()
