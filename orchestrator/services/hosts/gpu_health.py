# SPDX-License-Identifier: Apache-2.0
"""Health of GPUs: what is known of it, and an operator's word."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from orchestrator.core.advice.alike import CapacityGpus
from orchestrator.core.advice.gpu_map import EVERY_GPU, GpuFilter
from orchestrator.core.advice.overview import FleetUse
from orchestrator.core.errors import Conflict, NotFound
from orchestrator.core.gpu.health import GpuFault, GpuSignal
from orchestrator.core.gpu.health_states import (
    Breaker,
    GpuHealth,
    HealthState,
    acknowledged,
    closed_to_mend,
    quarantined,
    returned,
)
from orchestrator.core.hosts.host import Host
from orchestrator.core.names import near
from orchestrator.operations.gpu_health import gpu_faults, put_health, signals_of
from orchestrator.ports.clock import Clock
from orchestrator.services.acting import actor
from orchestrator.services.begin import busy_with
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class KnownHealth:
    """Of one managed GPU."""

    host: str
    gpu: str
    """PCI address, of the GPU or of one of its virtual functions."""
    health: GpuHealth
    function_of: str | None = None
    """PCI address of the GPU whose virtual function it is; None: it is a GPU."""
    signals: tuple[GpuSignal, ...] = ()
    """All that its host tells of it now, and tenants have said; of one GPU that was asked for alone."""


@dataclass(frozen=True, kw_only=True)
class PoolHealth:
    """``gpus``: those that are not healthy, and virtual functions that are not; ``counts``: of all GPUs."""

    breaker: Breaker
    counts: Mapping[HealthState, int]
    gpus: tuple[KnownHealth, ...]


@dataclass(frozen=True, kw_only=True)
class GpuHealthService:
    """Each word of an operator's is one transaction, with its record in the audit."""

    store: Store
    clock: Clock

    def all(self) -> PoolHealth:
        with self.store.read() as tx:
            ill = tuple(
                KnownHealth(host=host, gpu=address, health=its, function_of=None if address == gpu else gpu)
                for host, gpu, health in tx.gpu_health.all()
                for address, its in ((gpu, health), *health.functions)
                if its.state != "healthy"
            )
            counts: Counter[HealthState] = Counter(known.health.state for known in ill if known.function_of is None)
            counts["healthy"] = tx.gpu_health.models().total() - counts.total()
            return PoolHealth(breaker=tx.gpu_health.breaker(), counts=counts, gpus=ill)

    def capacity(self, use: FleetUse) -> CapacityGpus:
        """How many new VMs may be put on, and how many are closed for their health. ``use``: of all GPUs."""
        counts = self.all().counts
        allocatable = use.how_many(EVERY_GPU) - use.how_many(GpuFilter(use="unusable"))
        return CapacityGpus(allocatable, counts.get("unfit", 0), counts.get("quarantined", 0))

    def get(self, host: str, gpu: str) -> KnownHealth:
        """:raises NotFound: ``host.unknown``, ``gpu.not_ours``"""
        with self.store.read() as tx:
            return _known(tx, host, gpu)

    def quarantine(self, host: str, gpu: str, reason: str) -> KnownHealth:
        """Nothing new is put on it until it is returned; what is on it stays. Raises what :meth:`get` raises."""
        by = actor()
        return self._say(
            host, gpu, "quarantine_gpu", reason,
            lambda before, _, now: quarantined(before, now, by=by, reason=reason),
        )  # fmt: skip

    def give_back(self, host: str, gpu: str, reason: str) -> KnownHealth:
        """It is on watch; what is told of it now counts no more. Raises what :meth:`get` and ``returned`` raise.

        :raises Conflict: ``gpu.in_use``: it is being reset"""
        by = actor()
        return self._say(
            host, gpu, "return_gpu", reason,
            lambda before, faults, now: returned(before, faults, now, by=by, reason=reason),
        )  # fmt: skip

    def acknowledge(self, host: str, gpu: str) -> KnownHealth:
        """Raises what :meth:`get` and ``acknowledged`` raise."""
        by = actor()
        return self._say(host, gpu, "acknowledge_gpu", "", lambda before, _faults, _now: acknowledged(before, by=by))

    def reset_breaker(self) -> PoolHealth:
        """Rules may close GPUs again. Those that were not closed meanwhile count for no new opening of it."""
        with self.store.begin() as tx:
            now = tx.time.no_earlier(self.clock.now())
            tx.gpu_health.put_breaker(Breaker(reset=now))
            tx.audit.append(at=now, actor=actor(), action="reset_breaker", subject="health", outcome="done")
        return self.all()

    def _say(
        self,
        host: str,
        gpu: str,
        action: str,
        reason: str,
        word: Callable[[GpuHealth | None, tuple[GpuFault, ...], float], GpuHealth],
    ) -> KnownHealth:
        with self.store.begin() as tx:
            now = tx.time.no_earlier(self.clock.now())
            known = _known(tx, host, gpu)
            standing, snapshot = tx.hosts.get(host), tx.hosts.snapshot(host)
            if action == "return_gpu":
                _check_not_reset(tx, standing, gpu)
            faults = () if snapshot is None else gpu_faults(tx, standing, snapshot, gpu)
            before = standing.health_of(gpu)
            after = word(before, faults, now)
            was = "healthy" if before is None else before.state
            put_health(tx, standing, known.function_of or gpu, gpu, after, changed=was != after.state)
            tx.audit.append(at=now, actor=actor(), action=action, subject=f"{host}/{gpu}", outcome=reason or "done")
            return _known(tx, host, gpu)


def close_for_mending(tx: Transaction, host: Host, gpu: str, now: float, reason: str) -> None:
    """It, or a virtual function of it, stays closed when its faults are over: nothing new comes onto it while it is
    emptied, or before it is reset.

    :raises NotFound: ``gpu.not_ours``"""
    whole = gpu_of(tx, host, gpu)
    before = host.health_of(gpu)
    after = closed_to_mend(before, now, by=actor(), reason=reason)
    if after != before:
        put_health(tx, host, whole, gpu, after, changed=True)


def gpu_of(tx: Transaction, host: Host, address: str) -> str:
    """The GPU of ours that has the PCI address, or whose virtual function has it.

    :raises NotFound: ``gpu.not_ours``"""
    snapshot = tx.hosts.snapshot(host.name)
    for gpu in () if snapshot is None else snapshot.gpus:
        if gpu.address in host.managed_gpus and any(part.is_vf and part.address == address for part in gpu.parents):
            return gpu.address
    for gpu_address, health in host.gpu_health:
        if address in dict(health.functions):
            return gpu_address
    check_ours(host, address)
    return address


def check_ours(host: Host, gpu: str) -> None:
    """:raises NotFound: ``gpu.not_ours``"""
    if gpu not in host.managed_gpus:
        raise NotFound(
            "gpu.not_ours",
            f"host {host.name} has no GPU {ascii(gpu)[1:-1][:40]} that was given to us",
            hint=near(gpu, host.managed_gpus, f"vgpuctl gpu list --host {host.name}"),
        )


def _check_not_reset(tx: Transaction, host: Host, gpu: str) -> None:
    """Its reset would find it open, and VMs on it. :raises Conflict: ``gpu.in_use``"""
    busy = busy_with(tx, host)
    if busy is not None and busy.kind == "reset_gpu" and tx.operations.get(busy.id).inputs.get("gpu") == gpu:
        hint = f"wait until it has ended, or 'vgpuctl operation cancel {busy.id}'"
        raise Conflict("gpu.in_use", f"operation {busy.id} resets GPU {gpu}", hint=hint)


def _known(tx: Transaction, name: str, gpu: str) -> KnownHealth:
    host, snapshot = tx.hosts.get(name), tx.hosts.snapshot(name)
    whole = gpu_of(tx, host, gpu)
    health = host.health_of(gpu) or GpuHealth()
    signals = () if snapshot is None else signals_of(host, snapshot, gpu)
    return KnownHealth(
        host=name, gpu=gpu, health=health, signals=signals, function_of=None if whole == gpu else whole
    )  # fmt: skip
