# SPDX-License-Identifier: Apache-2.0
"""The offerings that a site adds itself."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from orchestrator.catalogue.offering_files import mistakes_in
from orchestrator.catalogue.profiles import Profiles, shipped_profiles
from orchestrator.core.errors import Conflict, InvalidInput, NotFound, Reason
from orchestrator.core.gpu.model import models_meant
from orchestrator.core.names import check_name
from orchestrator.core.offerings.offering import Offering, unsupported
from orchestrator.core.placement.rules import labels, nodes
from orchestrator.core.placement.views import HostView
from orchestrator.ports.clock import Clock
from orchestrator.services.acting import actor
from orchestrator.services.fleet.index import Fleet, FleetIndex
from orchestrator.services.hosts.gpus import whole_gpus
from orchestrator.services.messages import ProfileFilter, ProfileInfo
from orchestrator.services.pools import check_may_be_usual
from orchestrator.services.tenancy.tenants import known_tenant
from orchestrator.services.vms.capacity import CapacityService
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction


@dataclass(frozen=True, kw_only=True)
class OfferingService:
    """Offerings of the site: put, look, remove. What a VM was made under stays as it is as long as there is one."""

    store: Store
    index: FleetIndex
    clock: Clock

    def put(self, offering: Offering, *, look_up: bool) -> Offering:
        """Add it, or replace the one of that name; the same again is fine.

        ``look_up``: whether the names it has must be in the tables.

        :raises InvalidInput: ``offering.name_invalid``, ``offering.invalid`` with every mistake
        :raises NotFound: ``tenant.unknown``: its hosts are to be kept for that one; ``pool.unknown``
        :raises Conflict: ``offering.name_taken``, ``offering.in_use``, ``pool.busy``
        """
        check_name(offering.name, what="offering")
        shipped = shipped_profiles()
        mistakes = tuple(
            Reason(code="offering.invalid", message=reason, subjects=(field,))
            for field, reason in mistakes_in(offering, shipped.catalogue, look_up=look_up)
        )
        if mistakes:
            raise InvalidInput(
                "offering.invalid",
                f"offering {offering.name}: {mistakes[0].message}",
                hint="docs/reference/offerings.md says what goes together",
                reasons=mistakes[1:] and mistakes,
            )
        with self.index.current() as fleet:
            types = fleet.known.types
        with self.store.begin() as tx:
            existing = next((known for known in tx.offerings.list() if known.name == offering.name), None)
            if existing == offering:
                return offering
            if offering.kept_for is not None:
                known_tenant(tx, offering.kept_for)
            if offering.pool is not None:
                check_may_be_usual(tx, offering.pool)
            if existing is None:
                _check_free(shipped, offering, types)
            elif replace(existing, pool=offering.pool) != offering:  # a pool is of disks to come alone
                _check_unused(tx, offering.name, "changed", hint="add it under another name")
            tx.offerings.put(offering)
            self._note(tx, "set_offering", offering.name)
        return offering

    def list(self, tenants: Collection[str] | None = None) -> tuple[Offering, ...]:
        """Those that the site added and that these tenants have (None: all), by name."""
        with self.store.read() as tx:
            offerings = tx.offerings.list()
        return tuple(
            offering
            for offering in offerings
            if tenants is None or offering.kept_for is None or offering.kept_for in tenants
        )

    def remove(self, name: str) -> None:
        """:raises NotFound: ``offering.unknown``; :raises Conflict: ``offering.in_use``, ``offering.shipped``"""
        with self.store.begin() as tx:
            if name not in {offering.name for offering in tx.offerings.list()}:
                if name in shipped_profiles().offerings:
                    raise Conflict(
                        "offering.shipped",
                        f"offering {name} comes with vgpuctl and stays",
                        hint=f"'vgpuctl profile show {name}' tells what it gives",
                    )
                raise NotFound(
                    "offering.unknown",
                    f"this site has no offering {name[:63]!a} of its own",
                    hint="'vgpuctl profile list' shows what there is; those that are shipped stay",
                )
            _check_unused(tx, name, "removed", hint="delete them first")
            tx.offerings.remove(name)
            self._note(tx, "remove_offering", name)

    def _note(self, tx: Transaction, action: str, subject: str) -> None:
        tx.audit.append(at=self.clock.now(), actor=actor(), action=action, subject=subject, outcome="done")


def _check_free(shipped: Profiles, offering: Offering, types: frozenset[str]) -> None:
    taken = shipped.taken(offering, host_types=types)
    if taken is not None:
        raise Conflict("offering.name_taken", f"the name is taken: {taken}", hint="choose another name")


def _check_unused(tx: Transaction, name: str, verb: str, *, hint: str) -> None:
    users = [vm.full_name for vm in tx.vms.list() if vm.spec.profile == name]
    if users:
        raise Conflict(
            "offering.in_use",
            f"offering {name} cannot be {verb}: {len(users)} VMs have it: {', '.join(users[:5])}",
            hint=hint,
        )


_EVERY: Final = ProfileFilter()
HOSTS_NAMED: Final = 20
"""Of each profile of a list, as ten thousand names of each of fifty would take a second."""


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
            return self._infos({name: offering}, now.fleet(), _EVERY, most=None)[0]

    def _infos(
        self, offerings: Mapping[str, Offering], now: Fleet, only: ProfileFilter, most: int | None
    ) -> tuple[ProfileInfo, ...]:
        """Counts room only for those that are not left out before. ``most``: hosts that are named of each."""
        hosts, kinds_of = _OfferingHosts.of(now), dict[str, frozenset[int]]()
        for name, offering in offerings.items():
            kinds = hosts.kinds(offering)
            if not only.available or (kinds and not unsupported(offering)):
                kinds_of[name] = kinds
        free = self.capacity.free(kinds_of)
        return tuple(
            ProfileInfo(
                offering=offerings[name],
                hosts=hosts.names(kinds, most),
                host_count=hosts.how_many(kinds),
                free=free[name],
                framebuffer_mib=_framebuffer(now, offerings[name]),
                size=now.known.profiles.size(offerings[name]),
            )
            for name, kinds in kinds_of.items()
        )

    def list(self, tenants: Collection[str] | None = None, only: ProfileFilter = _EVERY) -> tuple[ProfileInfo, ...]:
        """Offerings that these tenants have (None: all), and vGPU types that some host offers now.

        :raises NotFound: ``gpu.model_unknown``"""
        with self.index.current() as now:
            fleet = now.fleet()
            meant = _models_meant(fleet, only.model)
            known = fleet.known.of_tenants(tenants)
            names = {offering.name for offering in known.offerings}
            listed = (known.resolve(name) for name in [*sorted(names), *sorted(known.types - names)])
            picked = {one.name: one for one in listed if _picks(fleet, only, meant, one)}
            infos = self._infos(picked, fleet, only, most=HOSTS_NAMED)
            return tuple(info for info in infos if info.free or not only.free)


@dataclass(frozen=True)
class _OfferingHosts:
    """Which hosts offer what. One host is asked for all that could ever hold the same: a pool has few kinds of them,
    and a list of profiles asks about each of some hundred. To be used inside :meth:`FleetIndex.current`."""

    fleet: Fleet
    alike: tuple[tuple[HostView, frozenset[int]], ...]
    """One host, and the kinds that differ from it at most in what they hold now."""
    named: dict[tuple[frozenset[int], int | None], tuple[str, ...]] = field(default_factory=dict)
    """What was answered already: most offerings are had by the same kinds."""

    @classmethod
    def of(cls, now: Fleet) -> _OfferingHosts:
        alike: dict[Hashable, tuple[HostView, set[int]]] = {}
        for kind in now.each.kinds:
            alike.setdefault(_offered_by(kind.first), (kind.first, set()))[1].add(kind.number)
        return cls(now, tuple((first, frozenset(numbers)) for first, numbers in alike.values()))

    def kinds(self, offering: Offering) -> frozenset[int]:
        """Of the hosts that offer it."""
        return frozenset[int]().union(*(numbers for first, numbers in self.alike if _offers(first, offering)))

    def how_many(self, kinds: frozenset[int]) -> int:
        return sum(kind.count for kind in self.fleet.each.kinds if kind.number in kinds)

    def names(self, kinds: frozenset[int], most: int | None) -> tuple[str, ...]:
        """The first of them in the fleet's order."""
        if (kinds, most) not in self.named:
            hosts = (viewed.view.name for viewed in self.fleet.hosts if viewed.kind in kinds)
            self.named[kinds, most] = tuple(islice(hosts, most)) if kinds else ()
        return self.named[kinds, most]


def _offered_by(host: HostView) -> Hashable:
    """All that :func:`_offers` asks a host about."""
    return host.facts, tuple((gpu.geometry.key, gpu.usable, gpu.reason_not_whole is None) for gpu in host.gpus)


def _framebuffer(now: Fleet, offering: Offering) -> int | None:
    each = now.known.profiles.framebuffer_mib(offering)
    return None if each is None else each * offering.devices


def _models_meant(now: Fleet, wanted: str | None) -> frozenset[str]:
    """Of models that a host has and those of the tables. :raises NotFound: ``gpu.model_unknown``"""
    tables = now.known.profiles.catalogue.gpu_models
    there = (gpu.geometry.model for kind in now.each.kinds for gpu in kind.first.gpus)
    return models_meant(wanted, {*(model.name for model in tables), *there})


def _picks(now: Fleet, only: ProfileFilter, meant: frozenset[str], offering: Offering) -> bool:
    """``meant``: by the model of the filter. All but whether it is free. A model counts that a host has, and where no
    host is named also one of the tables."""
    if only.kind not in {None, offering.kind}:
        return False
    if only.model is None and only.host is None:
        return True
    if only.host is None and not meant.isdisjoint(now.known.profiles.models(offering)):
        return True
    alike = (kind.first for kind in now.each.kinds)
    views = alike if only.host is None else (view for view in now.views if view.name == only.host)
    return any(
        _offers(view, replace(offering, gpu_models=models))
        for view, models in _with_models(views, only, meant, offering)
    )


def _with_models(
    views: Iterable[HostView], only: ProfileFilter, meant: frozenset[str], offering: Offering
) -> Iterator[tuple[HostView, tuple[str, ...]]]:
    """Hosts, and which models will do there that the filter takes; none of those without one."""
    for view in views:
        if only.model is None:
            yield view, offering.gpu_models
            continue
        models = meant.intersection((gpu.geometry.model for gpu in view.gpus), offering.gpu_models or meant)
        if models:
            yield view, tuple(sorted(models))


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
