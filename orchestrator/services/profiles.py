# SPDX-License-Identifier: Apache-2.0
"""What ``--profile`` takes, and how much of it is free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.core.offering import Offering
from orchestrator.core.placement.views import HostView
from orchestrator.services.fleet_index import Fleet, FleetIndex
from orchestrator.services.gpus import free_places, free_sets, whole_gpus
from orchestrator.services.messages import ProfileInfo


@dataclass(frozen=True, kw_only=True)
class ProfileService:
    index: FleetIndex

    def get(self, name: str) -> ProfileInfo:
        """:raises NotFound: ``profile.unknown`` with near names"""
        return self._infos([name], self._fleet())[0]

    def _fleet(self) -> Fleet:
        with self.index.current() as now:
            return now.fleet()

    def _infos(self, names: Sequence[str], now: Fleet) -> tuple[ProfileInfo, ...]:
        fleet, known = now.views, now.known
        infos = []
        for name in names:
            offering = known.resolve(name)
            wanted, count = offering.vgpu_type or "", offering.gpu_count
            hosts = [host for host in fleet if _offers(host, offering)]
            free = sum(
                free_sets(host, offering.gpu_models, count)
                if count
                else sum(free_places(gpu, wanted) for gpu in host.gpus if gpu.usable) // offering.vgpu_count
                for host in hosts
                if not host.cordoned
            )
            infos.append(ProfileInfo(offering=offering, hosts=tuple(host.name for host in hosts), free=free))
        return tuple(infos)

    def list(self) -> tuple[ProfileInfo, ...]:
        """Offerings, and vGPU types that some host offers now."""
        fleet = self._fleet()
        names = [offering.name for offering in fleet.known.offerings]
        return self._infos([*sorted(names), *sorted(fleet.known.types - set(names))], fleet)


def _offers(host: HostView, offering: Offering) -> bool:
    """Whether a VM of the offering could ever be there."""
    if not set(offering.hosts).issubset(host.labels):
        return False
    if offering.gpu_count:
        return len(whole_gpus(host, offering.gpu_models)) >= offering.gpu_count
    return any(gpu.geometry.supports(offering.vgpu_type or "") for gpu in host.gpus)
