# SPDX-License-Identifier: Apache-2.0
"""What ``--profile`` takes, and how much of it is free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.services.fleet_index import Fleet, FleetIndex
from orchestrator.services.gpus import free_places
from orchestrator.services.messages import ProfileInfo


@dataclass(frozen=True, kw_only=True)
class ProfileService:
    index: FleetIndex

    def get(self, name: str) -> ProfileInfo:
        """:raises InvalidInput: ``profile.unknown`` with near names"""
        return self._infos([name], self._fleet())[0]

    def _fleet(self) -> Fleet:
        with self.index.current() as now:
            return now.fleet()

    def _infos(self, names: Sequence[str], now: Fleet) -> tuple[ProfileInfo, ...]:
        fleet, known = now.views, now.known
        infos = []
        for name in names:
            offering = known.resolve(name)
            wanted = offering.vgpu_type or ""
            hosts = [host for host in fleet if any(gpu.geometry.supports(wanted) for gpu in host.gpus)]
            free = sum(
                free_places(gpu, wanted) for host in hosts if not host.cordoned for gpu in host.gpus if gpu.usable
            )
            infos.append(ProfileInfo(offering=offering, hosts=tuple(host.name for host in hosts), free=free))
        return tuple(infos)

    def list(self) -> tuple[ProfileInfo, ...]:
        """Offerings, and vGPU types that some host offers now."""
        fleet = self._fleet()
        names = [offering.name for offering in fleet.known.offerings]
        return self._infos([*sorted(names), *sorted(fleet.known.types - set(names))], fleet)
