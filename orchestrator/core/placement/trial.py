# SPDX-License-Identifier: Apache-2.0
"""VMs taken out of an engine, and put back exactly."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.geometry.cut import Taken
from orchestrator.core.placement.engine import HeldClaim, PlacementEngine
from orchestrator.core.placement.fleet import FleetHost, Gpu
from orchestrator.core.placement.views import Occupied


@dataclass(frozen=True, slots=True)
class _GpuBefore:
    gpu: Gpu
    cut: int
    state: int
    whole: bool
    held: tuple[tuple[Taken, Occupied], ...]


@dataclass(frozen=True, slots=True)
class _HostBefore:
    host: FleetHost
    vcpus: int
    memory_mib: int
    disk_gib: int
    numa: dict[int, int]
    numa_memory: dict[int, int]
    pages: dict[int, dict[int, int]]
    nics: dict[str, int]
    vms: frozenset[str]


class Trial:
    """Applies releases to the engine and remembers how to undo them."""

    def __init__(self, engine: PlacementEngine) -> None:
        self.engine = engine
        self._log: list[tuple[str, HeldClaim | None, tuple[_GpuBefore, ...], tuple[_HostBefore, ...]]] = []

    @property
    def mark(self) -> int:
        """A point that ``undo`` can go back to."""
        return len(self._log)

    def release(self, vm_id: str) -> None:
        """Give back what a VM has."""
        held = self.engine.vms[vm_id]
        self._note(vm_id, held, list(held.gpus))
        self.engine.release(vm_id)

    def _note(self, vm_id: str, held: HeldClaim, gpus: list[Gpu]) -> None:
        seen = dict.fromkeys(gpus)
        before = tuple(_GpuBefore(g, g.cut, g.state, g.whole, tuple(g.held)) for g in seen)
        hosts = tuple(
            _HostBefore(h, h.vcpus, h.memory_mib, h.disk_gib, dict(h.numa_vcpus), dict(h.numa_memory),
                        _copied(h.pages), dict(h.nics), frozenset(h.vms))
            for h in dict.fromkeys(g.host for g in seen)
        )  # fmt: skip
        self._log.append((vm_id, held, before, hosts))

    def undo(self, mark: int = 0) -> None:
        """Go back to ``mark``."""
        while len(self._log) > mark:
            vm_id, held, gpus, hosts = self._log.pop()
            if held is not None:
                self._put_back(vm_id, held)
            for gpu in gpus:
                self.engine.fleet.unindex_gpu(gpu.gpu, gpu.gpu.state)
                gpu.gpu.cut, gpu.gpu.state, gpu.gpu.whole = gpu.cut, gpu.state, gpu.whole
                gpu.gpu.held = list(gpu.held)
            for host in hosts:
                now = host.host
                now.vcpus, now.memory_mib, now.disk_gib = host.vcpus, host.memory_mib, host.disk_gib
                now.nics, now.numa_vcpus, now.vms = dict(host.nics), dict(host.numa), set(host.vms)
                now.numa_memory, now.pages = dict(host.numa_memory), _copied(host.pages)
                self.engine.fleet.reindex(now)

    def _put_back(self, vm_id: str, held: HeldClaim) -> None:
        if vm_id not in self.engine.vms:
            self.engine.count(held.request, 1)
        self.engine.vms[vm_id] = held


def _copied(pages: dict[int, dict[int, int]]) -> dict[int, dict[int, int]]:
    return {size: dict(free) for size, free in pages.items()}
