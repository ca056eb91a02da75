# SPDX-License-Identifier: Apache-2.0
"""Tenants that are kept apart share no GPU, or no host. Who says nothing (what was not made here, fleets without
tenants) keeps nobody off."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass

from orchestrator.core.geometry.geometry import Geometry
from orchestrator.core.placement.rules.rule import GpuInUse, HeldPart, HostInUse, Need, need_of
from orchestrator.core.placement.rules.wanted import Wanted
from orchestrator.core.vms.isolation import Isolation, may_share_gpu, may_share_host


@dataclass(frozen=True, slots=True)
class Isolated(Need):
    """How far its tenant is kept from others. ``profile``: of the VM, as its request has it."""

    codes = ("host.other_tenant", "gpu.other_tenant")
    after_shortage = True
    keeps_off = True

    tenant: str
    isolation: Isolation
    profile: str

    def off_host(self, host: HostInUse) -> Iterator[str]:
        held = (item for gpu in host.gpus for _, item in gpu.held)
        if any(not may_share_host(self.isolation, other.isolation) for _, other in self._strangers(held)):
            yield "host.other_tenant"

    def off_gpu(self, gpu: GpuInUse) -> Iterator[str]:
        held = (item for _, item in gpu.held)
        if next(self.in_the_way(held, gpu.geometry, gpu.cut_name), None) is not None:
            yield "gpu.other_tenant"

    def in_the_way(self, held: Iterable[HeldPart], geometry: Geometry, cut: str | None) -> Iterator[str]:
        for item, other in self._strangers(held):
            divided = _divides(geometry, cut, self.profile, item.profile)
            if not may_share_gpu(self.isolation, other.isolation, divided=divided):
                yield item.vm_id

    def as_neighbour(self, needs: tuple[Need, ...]) -> Hashable:
        return self.isolation

    def message(self, code: str) -> str:
        where = "host" if code == "host.other_tenant" else "GPU"
        return f"another tenant's VMs are on the {where}, which is not shared with them"

    def _strangers(self, held: Iterable[HeldPart]) -> Iterator[tuple[HeldPart, Isolated]]:
        for item in held:
            other = None if item.tenant == self.tenant else need_of(item.needs, Isolated)
            if other is not None:
                yield item, other


def needs_of(wanted: Wanted) -> Iterator[Need]:
    if wanted.isolation is not None:
        yield Isolated(wanted.vm.tenant, wanted.isolation, wanted.profile)


def _divides(geometry: Geometry, cut_name: str | None, profile: str, other: str) -> bool:
    """Whether the GPU itself keeps memory and engines of the two apart."""
    cut = None if cut_name is None else geometry.cut(cut_name)
    if cut is None:
        return False
    return cut.divides(geometry.shape_in(profile, cut.name), geometry.shape_in(other, cut.name))
