# SPDX-License-Identifier: Apache-2.0
"""What would fit where, and why not: answers for people, over the fleet as it is now. Nothing is claimed."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.errors import InvalidInput
from orchestrator.core.names import check_name
from orchestrator.core.placement.capacity import CapacityRow, capacity
from orchestrator.core.placement.explain import Explanation, explain
from orchestrator.core.placement.gpu_map import GpuRow, gpu_map
from orchestrator.core.placement.views import HostView, Request
from orchestrator.core.units import GIB
from orchestrator.ports.store import Store, Transaction
from orchestrator.services.fleet_view import Overcommit, fleet_of
from orchestrator.services.planning import Resolve, offered_types

_WHAT_IF = "what-if"
"""Stands for the VM that is only asked about."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A VM that somebody thinks of."""

    profile: str
    count: int = 1
    """Devices of that profile in the VM."""
    tenant: str = "default"
    vcpus: int = 2
    memory_mib: int = 4096
    disk_bytes: int = 20 * GIB
    host: str | None = None


@dataclass(frozen=True, kw_only=True)
class Named:
    """VM id → ``name`` as people know it."""

    explanation: Explanation
    names: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class CapacityService:
    """Asks the placement engine about VMs that nobody has asked for yet."""

    store: Store
    resolve: Resolve
    overcommit: Overcommit

    def capacity(self, question: Question | None) -> tuple[CapacityRow, ...]:
        """How many more VMs fit: of one profile, or of every vGPU type that some host offers.

        :raises InvalidInput: ``profile.unknown``
        """
        with self.store.read() as tx:
            types = offered_types(tx)
            asked = [question] if question is not None else [Question(profile=name) for name in sorted(types)]
            requests = [self._request(one, types) for one in asked]
            fleet = fleet_of(tx, self.overcommit)
        return capacity(requests, fleet)

    def explain(self, question: Question) -> Named:
        """Where it would go and why, or why not and what would make it fit.

        :raises InvalidInput: ``profile.unknown``
        """
        with self.store.read() as tx:
            request = self._request(question, offered_types(tx))
            fleet, names = fleet_of(tx, self.overcommit), _names(tx)
        return Named(explanation=explain(request, fleet), names=names)

    def gpu_map(self) -> tuple[GpuRow, ...]:
        """Every GPU as its slots with the VMs in them."""
        with self.store.read() as tx:
            fleet: tuple[HostView, ...] = fleet_of(tx, self.overcommit)
            return gpu_map(fleet, names=_names(tx))

    def _request(self, question: Question, types: frozenset[str]) -> Request:
        offering = self.resolve(question.profile, types)
        check_name(question.tenant, what="tenant")
        whole = f"gpu:{offering.gpu_count}" if offering.gpu_count else None
        profile = whole or offering.vgpu_type or offering.mig_profile
        if profile is None:
            raise InvalidInput("profile.unsupported", f"profile {question.profile} names no vGPU type or MIG profile")
        return Request(
            vm_id=_WHAT_IF,
            profile=profile,
            count=question.count * (1 if whole else offering.vgpu_count),
            vcpus=question.vcpus,
            memory_mib=question.memory_mib,
            disk_gib=-(-question.disk_bytes // GIB),
            tenant=question.tenant,
            host=question.host,
            gpu_models=offering.gpu_models,
        )


def _names(tx: Transaction) -> dict[str, str]:
    return {vm.id: vm.spec.name for vm in tx.vms.list(tenant=None)}
