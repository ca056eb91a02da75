# SPDX-License-Identifier: Apache-2.0
"""Where a VM may move, now: the rules of moves (core/moves/) over the fleet as placement sees it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Final, cast

from orchestrator.catalogue.profiles import shipped_profiles
from orchestrator.core.actions.live_move import MoveLoad
from orchestrator.core.errors import NotFound
from orchestrator.core.geometry.cut import MIXES, CutKind
from orchestrator.core.gpu.vgpu_metadata import VgpuQuestion
from orchestrator.core.hosts.host import Host
from orchestrator.core.moves.answers import NO_DRIVER, DriverAnswers
from orchestrator.core.moves.moves import (
    Moving,
    has_unread_vgpu,
    limits_of_resume,
    moves_to,
    own_verdicts,
    questions,
    waits_for_answer,
)
from orchestrator.core.moves.rules import Traveller
from orchestrator.core.moves.verdicts import HostMoves, MoveKind, MoveLimit, MoveVerdict
from orchestrator.core.offerings.offering import Offering
from orchestrator.core.placement.engine import PlacementEngine
from orchestrator.core.placement.from_offering import request_for
from orchestrator.core.placement.rules import disk
from orchestrator.core.placement.rules.rule import with_more
from orchestrator.core.placement.rules.wanted import Wanted
from orchestrator.core.placement.victims import vms_on, without
from orchestrator.core.placement.views import HostView
from orchestrator.core.vms.vm import Vm
from orchestrator.operations.steps.move_forecast import load_of
from orchestrator.services.fleet.index import FleetIndex
from orchestrator.services.fleet.view import Viewed
from orchestrator.services.vm_checks import known_vm
from orchestrator.services.vms.driver_answers import ASK_S, AskedDrivers
from orchestrator.services.vms.placement_request import models_kept, on_networks, with_site_rules
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction

_Asked = tuple[Mapping[str, tuple[VgpuQuestion, ...]], Mapping[str, Host]]
_AT_ONCE: Final = 200
"""Hosts judged before others get at the fleet again."""


@dataclass(frozen=True, kw_only=True)
class MoveService:
    """Tells of a VM where it may move, and what keeps it from it. Asks drivers where they have the last word."""

    store: Store
    index: FleetIndex
    drivers: AskedDrivers
    observe: Callable[[str], object]
    """Observes the host of that name; raises nothing that the host does wrong."""

    def of_vm(
        self, tenant: str, name: str, *, after: str | None = None, most: int, legal: MoveKind | None = None
    ) -> tuple[HostMoves, ...]:
        """To each host by name: ``most`` of those behind ``after``; ``legal``: only where it may move in that way.

        :raises NotFound: ``vm.unknown``, ``tenant.unknown``, ``profile.unknown``"""
        self._read_own(tenant, name)
        at_once = _AT_ONCE if legal is not None else min(most, _AT_ONCE)
        return tuple(islice(self._hosts(tenant, name, after, legal, at_once), most))

    def to_host(self, tenant: str, name: str, host: str) -> HostMoves:
        """To that one.

        :raises NotFound: ``vm.unknown``, ``tenant.unknown``, ``profile.unknown``; ``host.unknown``: it is none, or was
            never observed"""
        with self.store.read() as tx:
            tx.hosts.get(host)
        self._read_own(tenant, name)
        return self._judged(tenant, name, lambda _: [host], self.drivers.clock.monotonic() + ASK_S)[0]

    def load(self, host: Host, vm: Vm) -> MoveLoad | None:
        """What the VM, which runs there, has to move; None: its host does not tell."""
        return load_of(self.drivers.link, host, vm.id)

    def _read_own(self, tenant: str, name: str) -> None:
        """Its host is observed for a VM that has only just started: what the driver there says of its vGPU, another
        one has to judge."""
        with self.index.current() as fleet, self.store.read() as tx:
            vm = known_vm(tx, tenant, name)
            unread = has_unread_vgpu(self.moving(tx, fleet, vm))
        if unread:
            self.observe(vm.host)

    def own(self, tenant: str, name: str) -> tuple[MoveVerdict, ...]:
        """What of the VM itself rules each way out: all that its tenant learns.

        :raises NotFound: ``vm.unknown``, ``tenant.unknown``, ``profile.unknown``"""
        with self.index.current() as fleet, self.store.read() as tx:
            vm = known_vm(tx, tenant, name)
            return own_verdicts(_traveller(fleet, vm, _offering_of(fleet, vm)))

    def onto_itself(self, tenant: str, name: str) -> tuple[MoveLimit, ...]:
        """What keeps the VM's state from going on where it is, once its driver was asked.

        :raises NotFound: ``vm.unknown``, ``tenant.unknown``, ``profile.unknown``, ``host.unknown``"""
        self._read_own(tenant, name)
        end = self.drivers.clock.monotonic() + ASK_S
        limits, unknown = self._onto_itself(tenant, name)
        return self._onto_itself(tenant, name)[0] if self.drivers.ask(*unknown, end) else limits

    def _onto_itself(self, tenant: str, name: str) -> tuple[tuple[MoveLimit, ...], _Asked]:
        """And what its host's driver would be asked."""
        with self.index.current() as fleet, self.store.read() as tx:
            vm = known_vm(tx, tenant, name)
            moving, viewed = self.moving(tx, fleet, vm), fleet.host(vm.host)
            if viewed is None:
                raise _never_observed(vm.host)
            unknown = {vm.host: _questions(fleet, moving, vm.host)}
            return limits_of_resume(moving, viewed.facts), (unknown, {vm.host: viewed.seen.host})

    def how_many(self) -> int:
        """Hosts that are judged."""
        with self.index.current() as fleet:
            return len(fleet.fleet().hosts)

    def _hosts(
        self, tenant: str, name: str, after: str | None, legal: MoveKind | None, at_once: int
    ) -> Iterator[HostMoves]:
        end = self.drivers.clock.monotonic() + ASK_S
        while True:
            judged = self._judged(tenant, name, partial(_names, after, at_once), end)
            yield from (moves for moves in judged if legal is None or moves.may(legal))
            if not judged:
                return
            after = judged[-1].host

    def _judged(
        self, tenant: str, name: str, names: Callable[[FleetIndex], Iterable[str]], end: float
    ) -> list[HostMoves]:
        """To those hosts: once by what is known, and where the driver's word alone is missing again with that.
        ``end``: until when drivers are asked."""
        with self.index.current() as fleet, self.store.read() as tx:
            moving = self.moving(tx, fleet, known_vm(tx, tenant, name))
            judged = {host: towards(fleet, moving, host) for host in names(fleet)}
            wait = (host for host in judged if waits_for_answer(judged[host]))
            waiting = {host: open_to for host in wait if (open_to := _questions(fleet, moving, host))}
            hosts = {host: viewed.seen.host for host in waiting if (viewed := fleet.host(host)) is not None}
        if answered := self.drivers.ask(waiting, hosts, end):
            with self.index.current() as fleet, self.store.read() as tx:
                moving = self.moving(tx, fleet, known_vm(tx, tenant, name))
                judged |= {host: towards(fleet, moving, host) for host in answered if fleet.host(host) is not None}
        return list(judged.values())

    def moving(self, tx: Transaction, fleet: FleetIndex, vm: Vm) -> Moving:
        """With what drivers have answered. Ask inside :meth:`FleetIndex.current`.

        :raises NotFound: ``profile.unknown``"""
        drivers = DriverAnswers(metadata=tx.vgpu_metadata.of(vm.id), answer=self.drivers.answer)
        return moving_of(tx, fleet, vm, drivers)


def _names(after: str | None, most: int, fleet: FleetIndex) -> list[str]:
    hosts = fleet.fleet().hosts
    first = 0 if after is None else bisect_right(hosts, after, key=lambda host: host.view.name)
    return [host.view.name for host in hosts[first : first + most]]


def _questions(fleet: FleetIndex, moving: Moving, name: str) -> tuple[VgpuQuestion, ...]:
    viewed, host = fleet.host(name), fleet.engine.fleet.host(name)
    return () if viewed is None or host is None else questions(moving, viewed.facts, host)


def moving_of(tx: Transaction, fleet: FleetIndex, vm: Vm, drivers: DriverAnswers = NO_DRIVER) -> Moving:
    """Ask inside :meth:`FleetIndex.current`. :raises NotFound: ``profile.unknown``"""
    offering = _offering_of(fleet, vm)
    anywhere = replace(vm.spec, host=None, gpu=None, disk_bytes=vm.spec.host_disk_bytes)
    models = models_kept(fleet, offering, vm)
    wanted = Wanted(vm_id=vm.id, vm=anywhere, offering=offering, models=models, made=vm, moves=True)
    bare = on_networks(tx, wanted, vm.spec.networks)
    source, kept = fleet.host(vm.host), tx.suspended.facts(vm.id)
    return Moving(
        traveller=_traveller(fleet, vm, offering),
        request=request_for(with_site_rules(tx, fleet, bare)),
        source=kept or (None if source is None else source.facts),
        cuts=() if source is None else _cuts(source, vm),
        guest_driver=_guest_driver(tx, vm),
        matrix=shipped_profiles().catalogue.driver_matrix,
        drivers=drivers,
    )


def towards(fleet: FleetIndex, moving: Moving, name: str) -> HostMoves:
    """To the host of that name. Ask inside :meth:`FleetIndex.current`.

    :raises NotFound: ``host.unknown``: it was never observed"""
    viewed, vm, engine = fleet.host(name), moving.traveller.vm, fleet.engine
    if viewed is not None and vm.host == name:
        engine = PlacementEngine((_left_by(viewed.view, vm),))
    host = engine.fleet.host(name)
    if viewed is None or host is None:
        raise _never_observed(name)
    return moves_to(moving, viewed.facts, engine, host)


def _never_observed(name: str) -> NotFound:
    hint = f"'vgpuctl host show {name}' tells how it stands"
    return NotFound("host.unknown", f"host {name} was never observed", hint=hint)


def _offering_of(fleet: FleetIndex, vm: Vm) -> Offering:
    return fleet.known.of_tenants({vm.spec.tenant}).resolve(vm.spec.profile)


def _traveller(fleet: FleetIndex, vm: Vm, offering: Offering) -> Traveller:
    host = fleet.host(vm.host)
    return Traveller(vm=vm, host_state=None if host is None else host.seen.host.state, offered=offering.migratable)


def _left_by(view: HostView, vm: Vm) -> HostView:
    """The VM's own host as if it were not there."""
    held = vms_on(view).get(vm.id)
    if held is not None:
        return without(view, (held,))
    own_disk = disk.amounts_of(disk.gib_of(vm.spec.host_disk_bytes))
    return replace(view, vms=view.vms - {vm.id}, free=tuple(with_more(dict(view.free), (own_disk,)).items()))


def _cuts(source: Viewed, vm: Vm) -> tuple[CutKind, ...]:
    """Ways of cutting that its state goes on under: its GPU's own."""
    cut = next((claim.devices[0].cut for claim in source.seen.claims if claim.vm == vm.id), "whole")
    kind = cast("CutKind", cut.partition(":")[0])
    return () if kind == "whole" else MIXES if kind in MIXES else (kind,)


def _guest_driver(tx: Transaction, vm: Vm) -> str | None:
    try:
        return tx.images.get(vm.spec.image).guest_driver
    except NotFound:  # of an adopted VM
        return None
