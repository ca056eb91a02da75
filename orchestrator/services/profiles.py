# SPDX-License-Identifier: Apache-2.0
"""What ``--profile`` takes, and how much of it is free."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from orchestrator.core.errors import NotFound
from orchestrator.core.names import near
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.placement.rules import labels, nodes
from orchestrator.core.placement.views import HostView
from orchestrator.services.fleet.index import Fleet, FleetIndex
from orchestrator.services.hosts.gpus import whole_gpus
from orchestrator.services.messages import ProfileFilter, ProfileInfo
from orchestrator.services.vms.capacity import CapacityService

_EVERY: Final = ProfileFilter()


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

    def list(self, tenants: Collection[str] | None = None, only: ProfileFilter = _EVERY) -> tuple[ProfileInfo, ...]:
        """Offerings that these tenants have (None: all), and vGPU types that some host offers now.

        :raises NotFound: ``gpu.model_unknown``"""
        with self.index.current() as now:
            fleet = now.fleet()
            _check_model(fleet, only.model)
            known = fleet.known.of_tenants(tenants)
            names = {offering.name for offering in known.offerings}
            listed = (known.resolve(name) for name in [*sorted(names), *sorted(known.types - names)])
            infos = self._infos({one.name: one for one in listed if _picks(fleet, only, one)}, fleet)
            return tuple(info for info in infos if info.free or not only.free)


def _framebuffer(now: Fleet, offering: Offering) -> int | None:
    each = now.known.profiles.framebuffer_mib(offering)
    return None if each is None else each * offering.devices


def _check_model(now: Fleet, wanted: str | None) -> None:
    """:raises NotFound: ``gpu.model_unknown``"""
    if wanted is None:
        return
    tables = now.known.profiles.catalogue.gpu_models
    known = {*(model.name for model in tables), *(gpu.geometry.model for host in now.views for gpu in host.gpus)}
    if not any(wanted.lower() in model.lower() for model in known):
        hint = near(wanted, sorted(known), "vgpuctl profile list --all")
        raise NotFound("gpu.model_unknown", f"no GPU model has {ascii(wanted)[:60]} in its name", hint=hint)


def _picks(now: Fleet, only: ProfileFilter, offering: Offering) -> bool:
    """All but whether it is free. A model counts that a host has, and where no host is named also one of the tables."""
    if only.kind not in {None, offering.kind}:
        return False
    if only.model is None and only.host is None:
        return True
    if only.host is None and _named(now.known.profiles.models(offering), only.model or ""):
        return True
    views = (view for view in now.views if only.host in {None, view.name})
    return any(
        _offers(view, replace(offering, gpu_models=models)) for view, models in _with_models(views, only, offering)
    )


def _named(models: Iterable[str], part: str) -> list[str]:
    return [model for model in models if part.lower() in model.lower()]


def _with_models(
    views: Iterable[HostView], only: ProfileFilter, offering: Offering
) -> Iterator[tuple[HostView, tuple[str, ...]]]:
    """Hosts, and which models will do there that the filter takes; none of those without one."""
    for view in views:
        if only.model is None:
            yield view, offering.gpu_models
            continue
        there = {gpu.geometry.model for gpu in view.gpus}
        fits = set(offering.gpu_models) & there if offering.gpu_models else there
        models = _named(sorted(fits), only.model)
        if models:
            yield view, tuple(models)


def _offers(host: HostView, offering: Offering) -> bool:
    """Whether a VM of the offering could ever be there."""
    if any(labels.NeedsLabels(offering.hosts).missing(host)):
        return False
    if offering.cpu == "pinned" and not nodes.keeps_cpus(host.facts):
        return False
    if offering.gpu_count:
        return len(whole_gpus(host, offering.gpu_models)) >= offering.gpu_count
    gives = offering.vgpu_type or offering.mig_profile or ""
    models = offering.gpu_models
    return any(gpu.geometry.supports(gives) and (not models or gpu.geometry.model in models) for gpu in host.gpus)
