# SPDX-License-Identifier: Apache-2.0
"""What ``--profile`` takes, and how much of it is free."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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

    def get(self, name: str, tenants: Collection[str] | None = None) -> ProfileInfo:
        """``tenants``: whose offerings may be told; None: all.

        :raises NotFound: ``profile.unknown`` with near names"""
        with self.index.current() as now:
            offering = now.known.of_tenants(tenants).resolve(name)
            return self._infos({name: offering}, now.fleet())[0]

    def _infos(self, offerings: Mapping[str, Offering], now: Fleet) -> tuple[ProfileInfo, ...]:
        free = self.capacity.free(offerings)
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

    def list(self, tenants: Collection[str] | None = None) -> tuple[ProfileInfo, ...]:
        """Offerings that these tenants have (None: all), and vGPU types that some host offers now."""
        with self.index.current() as now:
            fleet = now.fleet()
            known = fleet.known.of_tenants(tenants)
            names = {offering.name for offering in known.offerings}
            listed = [*sorted(names), *sorted(known.types - names)]
            return self._infos({name: known.resolve(name) for name in listed}, fleet)


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
