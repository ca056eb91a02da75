# SPDX-License-Identifier: Apache-2.0
"""A backup was made while an operation was under way. It ended, and was long over when the backup was restored."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.core.operation import FINISHED
from orchestrator.reconcile.repairs import Repairer
from orchestrator.server.backup import settle_in
from tests.fakes.control_plane import ControlPlane
from tests.fakes.fake_host import Crash, Strike, no_fault
from tests.operations.resettable import ResettableDatabase, ResettablePostgres, ResettableSqlite
from tests.operations.scene import SCENES, Scene, Stage, World, stage

NOW = 1_800_000_000.0
ON_POSTGRESQL = frozenset({"create l40s", "start l40s", "attach a volume"})
EACH = 6
"""A backup is made at each sixth effect."""


def _cases() -> Iterator[object]:
    for scene in SCENES:
        name = scene.name.replace(" ", "-")
        yield pytest.param((scene, "sqlite"), id=name)
        if scene.name in ON_POSTGRESQL:
            yield pytest.param((scene, "postgresql"), id=f"{name}-postgresql")


@pytest.fixture(scope="module", params=_cases())
def staged(request: pytest.FixtureRequest) -> Iterator[Stage]:
    scene, backend = request.param
    assert isinstance(scene, Scene)
    database = request.getfixturevalue("postgres").database() if backend == "postgresql" else None
    with stage(scene, database) as made:
        yield made


def killed_at(number: int) -> Strike:
    return lambda n, moment, _name: Crash() if (n, moment) == (number, "after") else None


def copy_of(books: ResettableDatabase) -> ResettableDatabase:
    """The database as it is now."""
    url = books.url
    kept = ResettablePostgres(url) if url.startswith("postgresql") else ResettableSqlite(Path(url[10:]).parent)
    kept.keep()
    return kept


def hosts(plane: ControlPlane) -> dict[str, object]:
    return {name: machine.state() for name, machine in plane.hosts.machines.items()}


def restored_after(world: World, number: int) -> dict[str, object]:
    """The backup is of when that effect had just been done; the operation ended well since. How the hosts are."""
    world.plane.hosts.strike = killed_at(number)
    with pytest.raises(Crash):
        world.run()
    backup = copy_of(world.books)
    world.plane.hosts.strike = no_fault
    assert world.run().state == "done"
    backup.restore()
    backup.close()
    settle_in(world.plane.store, NOW)
    return hosts(world.plane)


def look_and_repair(plane: ControlPlane) -> None:
    """Whatever the policy lets reconciling do by itself."""
    by_itself = plane.reconciler.repairer
    everything = Repairer(
        store=plane.store, engine=plane.engine, clock=plane.world.clock, ids=plane.ids, pacing=by_itself.pacing,
        policy="all",
    )  # fmt: skip
    for _ in range(3):
        plane.world.clock.sleep(3600.0)
        plane.reconciler.round()
        everything.repair(host=None, asked=False)
        plane.engine.drain()


def hosts_of(plane: ControlPlane) -> set[str]:
    return {host.host.name for host in plane.services.hosts.list()}


def course(made: Stage) -> int:
    with made.world() as world:
        assert world.run().state == "done"
        return len(world.plane.hosts.effects)


@pytest.mark.fault("F99")
@pytest.mark.parametrize("way_out", ["retry", "abandon"])
def test_a_way_out_of_a_restored_operation_changes_nothing_that_its_hosts_have(staged: Stage, way_out: str) -> None:
    """And its VM is as its host shows it."""
    for number in range(way_out == "abandon", course(staged), EACH):
        with staged.world() as world:
            before = restored_after(world, number)
            plane, operation = world.plane, world.operation
            if way_out == "abandon" and operation.subject in hosts_of(plane):
                continue  # that is the operator's word that the host has nothing
            getattr(plane.services.operations, way_out)(operation.id)
            world.run()
            assert world.operation.state in _ended(world), (number, world.operation)
            look_and_repair(plane)
            assert hosts(plane) == before, f"{way_out} after effect {number}"
            check_vm(plane, operation.subject)


def _ended(world: World) -> frozenset[str]:
    """The host that was removed has no agent any more: only a person can say that it is gone."""
    return FINISHED if world.operation.kind == "remove_host" else FINISHED - {"stuck"}


def check_vm(plane: ControlPlane, subject: str) -> None:
    domains = {one: found for machine in plane.hosts.machines.values() for one, found in machine.domains.items()}
    with plane.store.read() as tx:
        vm = tx.vms.find_id(subject)
    if subject in domains:
        assert vm is not None
        assert vm.state == vm.wanted == ("running" if domains[subject][1] else "stopped")
    else:
        assert vm is None or vm.state in {"stopped", "lost"}
