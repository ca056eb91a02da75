# SPDX-License-Identifier: Apache-2.0
"""MIG layouts that stand without VMs: planned, applied, released."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from orchestrator.catalogue.gpu_tables import tables_of
from orchestrator.core.actions.host_actions import HostAction
from orchestrator.core.attachments import observed_on
from orchestrator.core.errors import Conflict, InvalidInput, Reason, Retryable
from orchestrator.core.geometry.build import MIG
from orchestrator.core.geometry.cut import pack
from orchestrator.core.geometry.nested import instances_of
from orchestrator.core.gpu.device import InstancePlace
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.mig_layout import (
    KEEPER,
    MigEntry,
    MigLayout,
    WantedMig,
    difference,
    empty,
    shown,
    wanted_of,
)
from orchestrator.core.hosts.snapshot import GpuSnapshot
from orchestrator.operations.steps.mig_layout import actions
from orchestrator.ports.clock import Clock, Ids
from orchestrator.ports.engine import Engine
from orchestrator.services.begin import begin_on_host
from orchestrator.services.fleet.view import SANITISING, set_aside
from orchestrator.services.messages import Started
from orchestrator.store.database import Store
from orchestrator.store.records import ClaimLost
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class LayoutChange:
    """From what a GPU is kept for to what it shall be."""

    before: MigLayout
    """In the mode that the GPU is in; empty when it is kept for nothing."""
    kept: bool
    wanted: MigLayout


@dataclass(frozen=True, kw_only=True)
class LayoutPlan:
    """What a configuration means for one GPU."""

    number: int
    """In the order of PCI addresses."""
    change: LayoutChange
    actions: tuple[HostAction, ...]
    """Empty: it is so already."""
    in_the_way: tuple[str, ...]
    """Names of what others have on the GPU, which nothing is changed beside."""


@dataclass(frozen=True, kw_only=True)
class MigLayoutService:
    store: Store
    engine: Engine
    clock: Clock
    ids: Ids

    def plan(self, host: str, entries: Sequence[MigEntry]) -> tuple[LayoutPlan, ...]:
        """For each GPU that they speak of; nothing is changed.

        :raises InvalidInput: those of hosts/mig_config, ``mig.config_no_such_profile``, ``mig.config_does_not_fit``
        :raises NotFound: ``host.unknown``; :raises Retryable: ``host.not_observed``
        """
        with self.store.read() as tx:
            return _plans(tx, tx.hosts.get(host), entries)

    def apply(self, host: str, entries: Sequence[MigEntry]) -> Started:
        """Make the host's GPUs so, and keep those in MIG mode so until they are released.

        :raises Conflict: ``gpu.in_use`` with the names of what is there, ``host.busy``; otherwise as :meth:`plan`
        """
        with self.store.begin() as tx:
            standing = tx.hosts.get(host)
            plans = [plan for plan in _plans(tx, standing, entries) if plan.actions]
            if not plans:
                return Started(operation=None, name=host)
            _check_free(plans)
            started = self._begin(tx, standing, "apply_mig", [plan.change for plan in plans])
            _keep(tx, host, plans)
        return self._submitted(started)

    def release(self, host: str, gpu: str | None) -> Started:
        """Take layouts away; VMs may have the GPUs again. ``gpu``: PCI address; None: all that have one.

        :raises InvalidInput: ``mig.layout_none``; :raises Conflict: ``host.busy``
        """
        with self.store.begin() as tx:
            standing = tx.hosts.get(host)
            kept = [layout for layout in standing.mig_layouts if gpu in {None, layout.gpu}]
            if not kept:
                raise InvalidInput(
                    "mig.layout_none",
                    f"{'no GPU' if gpu is None else ascii(gpu)[:40]} of host {host} is kept for a MIG layout",
                    hint=f"'vgpuctl mig show {host}' tells which are",
                )
            started = self._begin(tx, standing, "release_mig", [_released(layout) for layout in kept])
        return self._submitted(started)

    def _begin(self, tx: Transaction, host: Host, kind: str, changes: Sequence[LayoutChange]) -> Started:
        inputs: dict[str, object] = {"gpus": [asdict(change) for change in changes]}
        operation = begin_on_host(tx, host, kind, inputs, clock=self.clock, ids=self.ids)
        return Started(operation=operation.id, name=host.name)

    def _submitted(self, started: Started) -> Started:
        if started.operation is not None:
            self.engine.submit(started.operation)
        return started


def _keep(tx: Transaction, host: str, plans: Sequence[LayoutPlan]) -> None:
    """From now on no VM is placed there."""
    for plan in plans:
        try:
            tx.hosts.keep_layout(host, plan.change.wanted)
        except ClaimLost as error:
            raise _in_use(plan.change.wanted.gpu, ("a VM that has just come",)) from error


def _gpus_of(tx: Transaction, host: Host) -> list[GpuSnapshot]:
    """By PCI address."""
    snapshot = tx.hosts.snapshot(host.name)
    if snapshot is None:
        raise Retryable("host.not_observed", f"host {host.name} was not observed so far", hint="try again in a minute")
    return sorted(snapshot.gpus, key=lambda gpu: gpu.address)


def _plans(tx: Transaction, host: Host, entries: Sequence[MigEntry]) -> tuple[LayoutPlan, ...]:
    gpus = _gpus_of(tx, host)
    layouts = wanted_of(entries, gpus, host.managed_gpus, host.name)
    return tuple(_plan(tx, host, gpus.index(wanted.gpu), wanted) for wanted in layouts)


def _plan(tx: Transaction, host: Host, number: int, wanted: WantedMig) -> LayoutPlan:
    gpu = wanted.gpu
    kept = next((layout for layout in host.mig_layouts if layout.gpu == gpu.address), None)
    layout = MigLayout(gpu=gpu.address, on=wanted.enabled, instances=_places(wanted))
    before = kept or empty(gpu.address, on=gpu.mig_enabled is True)
    so_already = difference(layout, gpu) is None and kept == (layout if layout.on else None)
    return LayoutPlan(
        number=number,
        change=LayoutChange(before=before, kept=kept is not None, wanted=layout),
        actions=() if so_already else tuple(actions(before, layout)),
        in_the_way=() if so_already else tuple(_in_the_way(tx, host, gpu)),
    )


def _released(kept: MigLayout) -> LayoutChange:
    return LayoutChange(before=kept, kept=True, wanted=empty(kept.gpu, on=kept.on))


def _places(wanted: WantedMig) -> tuple[InstancePlace, ...]:
    gpu, profiles = wanted.gpu, wanted.profiles
    cut = instances_of(tables_of(gpu).ever.cut(MIG))
    unknown = sorted({profile for profile in profiles if cut is None or profile not in cut.shapes})
    if unknown:
        raise InvalidInput(
            "mig.config_no_such_profile",
            f"GPU {gpu.address} ({gpu.model}) has no MIG profile {', '.join(unknown)}",
            hint=f"it has {', '.join(cut.shapes)}" if cut is not None else "the tables have no profiles of it",
        )
    packed = () if cut is None else pack(cut, profiles)
    if packed is None:
        counts = ", ".join(f"{count} x {name}" for name, count in wanted.counts)
        raise InvalidInput(
            "mig.config_does_not_fit",
            f"{counts} do not fit on GPU {gpu.address} together",
            hint=f"a {gpu.model} takes them at certain memory slots only: ask for fewer or smaller ones",
        )
    return tuple(InstancePlace(profile, start) for profile, start in packed)


def _in_the_way(tx: Transaction, host: Host, gpu: GpuSnapshot) -> Iterator[str]:
    reason = set_aside(host, gpu)
    if reason is not None:
        yield reason
    if any(cleaning.gpu == gpu.address for cleaning in tx.cleanings.open_on((host.name,))):
        yield SANITISING
    vms = {vm.id: vm for vm in tx.vms.list(host=host.name)}
    claims = [
        claim for claim in tx.claims.of_host(host.name) if any(device.gpu == gpu.address for device in claim.devices)
    ]
    yield from (f"VM {vms[claim.vm].full_name}" for claim in claims)
    claiming = {claim.vm for claim in claims}
    for observed in observed_on(gpu):
        if observed.owner == KEEPER or observed.owner in claiming:
            continue
        place = observed.device.instance
        yield f"vGPU {observed.device.name}" if place is None else f"GPU instance {shown(place)}"


def _check_free(plans: Sequence[LayoutPlan]) -> None:
    """:raises Conflict: ``gpu.in_use``"""
    for plan in plans:
        if plan.in_the_way:
            raise _in_use(plan.change.wanted.gpu, plan.in_the_way)


def _in_use(gpu: str, names: Sequence[str]) -> Conflict:
    return Conflict(
        "gpu.in_use",
        f"GPU {gpu} is in use: {', '.join(names[:5])}{' and more' if len(names) > 5 else ''}",
        hint="a layout takes a GPU without anything of others on it; stop or delete these first",
        reasons=tuple(Reason(code="gpu.in_use", message=name, subjects=(gpu,)) for name in names),
    )
