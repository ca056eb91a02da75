# SPDX-License-Identifier: Apache-2.0
"""What ``--profile`` takes, and how much of it is free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.core.offering import Offering
from orchestrator.ports.store import Store
from orchestrator.services.fleet_view import Overcommit, fleet_of
from orchestrator.services.gpus import free_places
from orchestrator.services.messages import ProfileInfo
from orchestrator.services.planning import Resolve, offered_types


@dataclass(frozen=True, kw_only=True)
class ProfileService:
    """``offerings``: everything that was written down as an offering."""

    store: Store
    resolve: Resolve
    offerings: Callable[[], tuple[Offering, ...]]
    overcommit: Overcommit

    def get(self, name: str) -> ProfileInfo:
        """:raises InvalidInput: ``profile.unknown`` with near names"""
        with self.store.read() as tx:
            types = offered_types(tx)
        return self._infos([name], types)[0]

    def _infos(self, names: list[str], types: frozenset[str]) -> tuple[ProfileInfo, ...]:
        with self.store.read() as tx:
            fleet = fleet_of(tx, self.overcommit)
        infos = []
        for name in names:
            offering = self.resolve(name, types)
            wanted = offering.vgpu_type or ""
            hosts = [host for host in fleet if any(gpu.geometry.supports(wanted) for gpu in host.gpus)]
            free = sum(
                free_places(gpu, wanted) for host in hosts if not host.cordoned for gpu in host.gpus if gpu.usable
            )
            infos.append(ProfileInfo(offering=offering, hosts=tuple(host.name for host in hosts), free=free))
        return tuple(infos)

    def list(self) -> tuple[ProfileInfo, ...]:
        """Offerings, and vGPU types that some host offers now."""
        with self.store.read() as tx:
            types = offered_types(tx)
        names = [offering.name for offering in self.offerings()]
        return self._infos([*sorted(names), *sorted(types - set(names))], types)
