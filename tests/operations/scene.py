# SPDX-License-Identifier: Apache-2.0
"""Every kind of operation, ready to be started again and again from one and the same picture of the world."""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.core.offerings.offering import Offering
from orchestrator.core.operation import Operation
from orchestrator.core.vms.lease import WantedEnd
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.runner import Runner
from orchestrator.operations.step import Definition
from orchestrator.services.messages import AdoptVm
from tests.fakes import foreign
from tests.fakes.control_plane import A100_HOST, L40S_HOST, T4_HOST, ControlPlane, add_host, control_plane, create_vm
from tests.fakes.fake_actions import lose_ledger, take_network_away
from tests.fakes.fake_host import no_fault
from tests.fakes.recount import miscounted
from tests.operations import (
    backups,
    cards_of_vms,
    disk_snapshots,
    driver_swaps,
    evacuations,
    fabric,
    gpu_cards,
    gpu_resets,
    guests,
    layouts,
    mediated_instances,
    moves,
    network_functions,
    pools,
    preemption,
    resizes,
    schedulers,
    several_vgpus,
    shared_instances,
    suspending,
    volumes,
)
from tests.operations.evidence import Slot, claimed_slots, without_evidence
from tests.operations.resettable import ResettableDatabase, ResettablePostgres, ResettableSqlite, lasting
from tests.operations.striking_journal import StrikingJournal

_VOLATILE = (
    "last_seen_at", "epoch", "blob", "operation", "created_at", "addresses", "changed", "capacity_bytes", "free_bytes",
)  # fmt: skip
"""``epoch`` among them: a higher one harms nobody, and a step done twice raises it twice."""
_MEMORY = Path("/dev/shm")

NOTHING_TO_TAKE_BACK = {"upgrade_agent", "clean_up", "provision_vm", "fence_host", "verify_backup", "reboot_host"}
"""Kinds that end ``undone`` with what they did left as it is."""


@dataclass(frozen=True)
class Scene:
    """``prepare`` makes the world before; ``begin`` starts the operation and returns its id."""

    name: str
    kind: str
    prepare: Callable[[ControlPlane], None]
    begin: Callable[[ControlPlane], str | None]
    taken_back: Callable[[ControlPlane], None] | None = None
    """After ``begin``, for one whose beginning did more than it takes back: makes the world that it leaves when it
    fails. None: that is the world before."""

    @property
    def forward_only(self) -> bool:
        return DEFINITIONS[self.kind].forward_only


_BY_UEFI = Offering(name="whole-uefi", origin="site", kind="passthrough", gpu_count=2, firmware="uefi")
PROFILES = {T4_HOST: "GRID T4-2Q", L40S_HOST: "NVIDIA L40S-12Q", A100_HOST: "GRID A100D-1-20C"}


def _hosts(plane: ControlPlane) -> None:
    plane.add_host(T4_HOST)
    plane.add_host(L40S_HOST)


def _with_sibling(plane: ControlPlane) -> None:
    """An A100 in MIG mode, with another VM in a GPU instance of its own that nothing may disturb."""
    plane.add_host(A100_HOST)
    plane.services.vms.create(create_vm("sibling", profile="GRID A100D-1-10C"))
    plane.engine.drain()


def _prepared(host: str) -> Callable[[ControlPlane], None]:
    return _with_sibling if host == A100_HOST else _hosts


def _with_vm(host: str, *, start: bool) -> Callable[[ControlPlane], None]:
    def prepare(plane: ControlPlane) -> None:
        _prepared(host)(plane)
        plane.services.vms.create(create_vm(profile=PROFILES[host], start=start))
        plane.engine.drain()

    return prepare


def _create(host: str, *, start: bool) -> Callable[[ControlPlane], str | None]:
    return lambda plane: plane.services.vms.create(create_vm(profile=PROFILES[host], start=start)).operation


def _whole_gpus(plane: ControlPlane) -> str | None:
    return plane.services.vms.create(replace(create_vm(profile=_BY_UEFI.name), host=L40S_HOST)).operation


def _by_uefi(plane: ControlPlane) -> None:
    """Hosts, and an offering whose VMs have UEFI variables of their own."""
    _hosts(plane)
    with plane.store.begin() as tx:
        tx.offerings.put(_BY_UEFI)


def _with_whole_gpus(plane: ControlPlane) -> None:
    _by_uefi(plane)
    _whole_gpus(plane)
    plane.engine.drain()


def _whole_gpu_scenes() -> list[Scene]:
    return [
        Scene("create whole gpus", "create_vm", _by_uefi, _whole_gpus),
        Scene("stop whole gpus", "stop_vm", _with_whole_gpus, _stop),
        Scene("delete whole gpus", "delete_vm", _with_whole_gpus, _delete),
    ]


def _stop(plane: ControlPlane) -> str | None:
    return plane.services.vms.stop("default", "train").operation


def _delete(plane: ControlPlane) -> str | None:
    return plane.services.vms.delete("default", "train").operation


def _now(verb: str, *more: str) -> Callable[[ControlPlane], str | None]:
    return lambda plane: getattr(plane.services.vms, verb)("default", "train", *more).operation


def _vm_scenes(host: str) -> list[Scene]:
    return [
        Scene(f"create {host}", "create_vm", _prepared(host), _create(host, start=True)),
        Scene(f"create stopped {host}", "create_stopped_vm", _prepared(host), _create(host, start=False)),
        Scene(
            f"start {host}",
            "start_vm",
            _with_vm(host, start=False),
            lambda plane: plane.services.vms.start("default", "train").operation,
        ),
        Scene(f"stop {host}", "stop_vm", _with_vm(host, start=True), _stop),
        Scene(f"delete {host}", "delete_vm", _with_vm(host, start=True), _delete),
        Scene(f"rename {host}", "rename_vm", _with_vm(host, start=False), _now("rename", "train-2")),
        Scene(f"restart {host}", "restart_vm", _with_vm(host, start=True), _now("restart")),
    ]


def _with_device_left(plane: ControlPlane) -> None:
    _with_vm(T4_HOST, start=True)(plane)
    mdevs = dict(plane.machine(T4_HOST).mdevs)
    plane.services.vms.stop("default", "train")
    plane.engine.drain()
    plane.machine(T4_HOST).mdevs.update(mdevs)


def _with_foreign(host: str) -> Callable[[ControlPlane], None]:
    """On the host with T4s one vGPU, on that with L40S several."""

    def prepare(plane: ControlPlane) -> None:
        _hosts(plane)
        if host == T4_HOST:
            foreign.with_mdev(plane.machine(host))
        else:
            foreign.with_functions(plane.machine(host))
        plane.observer.observe(host)

    return prepare


def _adopt(host: str) -> Callable[[ControlPlane], str | None]:
    wanted = AdoptVm(host=host, domain="byhand", tenant="default", name="train")
    return lambda plane: plane.services.adoption.adopt(wanted).operation


def _with_adopted(host: str, *, start: bool) -> Callable[[ControlPlane], None]:
    def prepare(plane: ControlPlane) -> None:
        _with_foreign(host)(plane)
        _adopt(host)(plane)
        plane.engine.drain()
        if not start:
            plane.services.vms.stop("default", "train")
            plane.engine.drain()

    return prepare


def _adoption_scenes(host: str) -> list[Scene]:
    return [
        Scene(f"adopt {host}", "adopt_vm", _with_foreign(host), _adopt(host)),
        Scene(
            f"start adopted {host}",
            "start_vm",
            _with_adopted(host, start=False),
            lambda plane: plane.services.vms.start("default", "train").operation,
        ),
        Scene(f"delete adopted {host}", "delete_vm", _with_adopted(host, start=True), _delete),
    ]


def _with_lost_vm(plane: ControlPlane) -> None:
    _with_vm(T4_HOST, start=True)(plane)
    plane.machine(T4_HOST).answers = False
    plane.observer.observe(T4_HOST)
    plane.services.hosts.forget(T4_HOST, confirm=T4_HOST)


def _reconcile(plane: ControlPlane) -> str | None:
    return plane.findings.observe(T4_HOST)[0].operation


def _with_lease_over(plane: ControlPlane) -> None:
    _hosts(plane)
    plane.services.vms.create(replace(create_vm(profile=PROFILES[L40S_HOST]), end=WantedEnd(after_s=3600)))
    plane.engine.drain()
    plane.world.clock.sleep(3600)


def _end_lease(plane: ControlPlane) -> str:
    return plane.reconciler.leases.end_leases(L40S_HOST)[0]


def _with_place_given_back(plane: ControlPlane) -> None:
    _with_lease_over(plane)
    _end_lease(plane)
    plane.engine.drain()
    plane.services.vms.extend("default", "train", WantedEnd(after_s=1000 * 86400))


def _with_lost_ledger(plane: ControlPlane) -> None:
    _hosts(plane)
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    lose_ledger(plane.machine(T4_HOST))


def _without_its_network(plane: ControlPlane) -> None:
    _with_vm(T4_HOST, start=True)(plane)
    take_network_away(plane.machine(T4_HOST), plane.services.vms.get("default", "train").spec.network)


def _repair(plane: ControlPlane) -> str | None:
    plane.findings.observe(T4_HOST)
    (operation,) = plane.findings.repair(host=T4_HOST)
    return operation


SCENES = (
    Scene("delete lost", "delete_lost_vm", _with_lost_vm, _delete),
    *(Scene(*case) for case in preemption.CASES),
    Scene("lease over", "free_vm", _with_lease_over, _end_lease),
    Scene(
        "start freed",
        "start_freed_vm",
        _with_place_given_back,
        lambda plane: plane.services.vms.start("default", "train").operation,
    ),
    *_vm_scenes(L40S_HOST),
    *_vm_scenes(T4_HOST)[:1],
    *(scene for scene in _vm_scenes(A100_HOST) if scene.kind != "create_stopped_vm"),
    *_whole_gpu_scenes(),
    *(Scene(*case) for case in (*layouts.CASES, *schedulers.CASES, *several_vgpus.CASES, *network_functions.CASES)),
    *(Scene(*case) for case in (*fabric.CASES, *volumes.CASES, *gpu_cards.CASES, *shared_instances.CASES)),
    *(Scene(*case) for case in gpu_resets.CASES),
    *(Scene(*case) for case in (*mediated_instances.CASES, *moves.CASES, *pools.CASES, *suspending.CASES)),
    *(Scene(*case) for case in (*disk_snapshots.CASES, *backups.CASES)),
    *(Scene(*case) for case in (*resizes.CASES, *cards_of_vms.CASES, *evacuations.CASES)),
    *_adoption_scenes(T4_HOST),
    *_adoption_scenes(L40S_HOST)[:1],
    Scene(
        "add host", "add_host", lambda _: None, lambda plane: plane.services.hosts.add(add_host(L40S_HOST)).operation
    ),
    Scene("remove host", "remove_host", _hosts, lambda plane: plane.services.hosts.remove(L40S_HOST).operation),
    Scene(
        "upgrade agent", "upgrade_agent", _hosts, lambda plane: plane.services.hosts.upgrade_agent(T4_HOST).operation
    ),
    Scene("provision vm", "provision_vm", guests.with_reachable_vm, guests.provision),
    *(Scene(*case) for case in driver_swaps.CASES),
    Scene("clean up", "clean_up", _with_device_left, _reconcile),
    Scene("settle ledger", "settle_ledger", _with_lost_ledger, _repair),
    Scene("mend host", "mend_host", _without_its_network, _repair),
)


@dataclass(frozen=True)
class World:
    """One copy of the scene's world, with the operation begun and not yet run. ``held``: slots claimed then."""

    plane: ControlPlane
    books: ResettableDatabase
    operation_id: str
    before: dict[str, object]
    held: frozenset[Slot]

    @property
    def journal(self) -> StrikingJournal:
        assert isinstance(self.plane.journal, StrikingJournal)
        return self.plane.journal

    def run(self, definitions: Mapping[str, Definition] = DEFINITIONS) -> Operation:
        """As a fresh process would: from the journal alone."""
        self.plane.engine.waiting.clear()
        Runner(self.plane.world, self.journal, definitions).run(self.operation_id)
        return self.operation

    @property
    def operation(self) -> Operation:
        return self.plane.services.operations.get(self.operation_id)

    def picture(self) -> dict[str, object]:
        with self.plane.store.read() as tx:
            assert list(miscounted(tx)) == []
            assert not (lacking := list(without_evidence(tx, self.held, self.operation))), lacking
        return picture(self.plane, self.books)


def picture(plane: ControlPlane, books: ResettableDatabase) -> dict[str, object]:
    """Hosts and database, without journals, times and what was merely observed."""
    seen: dict[str, object] = {name: machine.state() for name, machine in plane.hosts.machines.items()}
    for table, rows in sorted(books.compared().items()):
        seen[table] = lasting(table, rows, _VOLATILE)
    seen["keys"] = dict(plane.keys.keys)
    return seen


class Stage:
    """The world before, made once; :meth:`world` gives a fresh copy of it with the operation begun."""

    def __init__(self, scene: Scene, directory: Path, books: ResettableDatabase, shares: int) -> None:
        self.scene, self.shares, self.worlds = scene, shares, 0
        self._books = books
        self._plane = control_plane(directory, journal=StrikingJournal, url=books.url)
        self._plane.services.networks.add("default", None)  # of the site, so that enrolment has one to make
        scene.prepare(self._plane)
        books.keep()
        self._machines = copy.deepcopy(self._plane.hosts.machines)
        self._keys = dict(self._plane.keys.keys)
        self._drawn = self._plane.ids.count
        self._before = picture(self._plane, self._books)
        if scene.taken_back is not None:
            self._begun()
            scene.taken_back(self._plane)
            self._before = picture(self._plane, self._books)

    def _begun(self) -> str:
        """Id of the operation. What its beginning did on hosts is not counted."""
        plane = self._plane
        assert isinstance(plane.journal, StrikingJournal)
        plane.journal.strike = no_fault
        operation_id = self.scene.begin(plane)
        assert operation_id is not None
        plane.hosts.effects.clear()
        return operation_id

    @contextmanager
    def world(self) -> Iterator[World]:
        """The clock goes on, everything else is as it was."""
        plane = self._plane
        self.worlds += 1
        self._books.restore()
        plane.hosts.reset(copy.deepcopy(self._machines))
        plane.keys.keys = dict(self._keys)
        plane.ids.count = self._drawn
        plane.engine.waiting.clear()
        operation_id = self._begun()
        world = World(plane, self._books, operation_id, self._before, claimed_slots(plane.store))
        world.journal.strike, world.journal.writes = no_fault, 0
        yield world

    def close(self) -> None:
        self._plane.store.close()
        self._books.close()


@contextmanager
def stage(scene: Scene, database: str | None = None, shares: int = 1) -> Iterator[Stage]:
    """``database``: URL of an empty one on PostgreSQL; SQLite in memory without it. ``shares``: a fault strikes at one
    moment of so many."""
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as name:
        books = ResettablePostgres(database) if database else ResettableSqlite(Path(name))
        made = Stage(scene, Path(name), books, shares)
        yield made
        made.close()
