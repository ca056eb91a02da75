# SPDX-License-Identifier: Apache-2.0
"""What ``--profile`` takes, and how much of it is free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.core.offering import Offering
from orchestrator.core.placement.views import HostView
from orchestrator.services.capacity import CapacityService
from orchestrator.services.fleet_index import Fleet, FleetIndex
from orchestrator.services.gpus import whole_gpus
from orchestrator.services.messages import ProfileInfo


@dataclass(frozen=True, kw_only=True)
class ProfileService:
    index: FleetIndex
    capacity: CapacityService
    """Counts what is free: one question has one answer."""

    def get(self, name: str) -> ProfileInfo:
        """:raises NotFound: ``profile.unknown`` with near names"""
        with self.index.current() as now:
            return self._infos([name], now.fleet())[0]

    def _infos(self, names: Sequence[str], now: Fleet) -> tuple[ProfileInfo, ...]:
        free = self.capacity.free(names)
        offerings = {name: now.known.resolve(name) for name in names}
        return tuple(
            ProfileInfo(
                offering=offering,
                hosts=tuple(host.name for host in now.views if _offers(host, offering)),
                free=free[name],
                framebuffer_mib=_framebuffer(now, offering),
                size=now.known.profiles.size(offering),
            )
            for name, offering in offerings.items()
        )

    def list(self) -> tuple[ProfileInfo, ...]:
        """Offerings, and vGPU types that some host offers now."""
        with self.index.current() as now:
            fleet = now.fleet()
            names = [offering.name for offering in fleet.known.offerings]
            return self._infos([*sorted(names), *sorted(fleet.known.types - set(names))], fleet)


def _framebuffer(now: Fleet, offering: Offering) -> int | None:
    each = now.known.profiles.framebuffer_mib(offering)
    return None if each is None else each * offering.devices


def _offers(host: HostView, offering: Offering) -> bool:
    """Whether a VM of the offering could ever be there."""
    if not set(offering.hosts).issubset(host.labels):
        return False
    if offering.cpu == "pinned" and not host.pinnable:
        return False
    if offering.gpu_count:
        return len(whole_gpus(host, offering.gpu_models)) >= offering.gpu_count
    gives = offering.vgpu_type or offering.mig_profile or ""
    models = offering.gpu_models
    return any(gpu.geometry.supports(gives) and (not models or gpu.geometry.model in models) for gpu in host.gpus)
