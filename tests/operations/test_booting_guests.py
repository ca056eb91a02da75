# SPDX-License-Identifier: Apache-2.0
"""An operation whose guest boots waits for it without a worker, and ends as it would have with one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.core.errors import Retryable
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import DomainSnapshot
from orchestrator.core.operation import Operation
from orchestrator.ports.clock import Clock
from orchestrator.reconcile.guests import MOST, BootingGuests
from tests.contract.engine.test_durable import add
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.fake_host import Crash, FakeHosts, Strike
from tests.fakes.fake_world import FakeClock
from tests.fakes.several import until
from tests.operations.scene import SCENES, Stage, World, stage

LIMIT_S = 60.0
GUEST_S = 120.0
L40S = "NVIDIA L40S-12Q"


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST, L40S_HOST) as made:
        made.machine(T4_HOST).gives_addresses = False
        yield made


def server(plane: ControlPlane, link: FakeHosts | None = None) -> BootingGuests:
    """The part of a server that asks; each counts for itself."""
    return BootingGuests(plane.store, link or plane.hosts, plane.world.clock, plane.engine, limit_s=GUEST_S)


def ask(plane: ControlPlane, guests: BootingGuests, *, after_s: float = 0.0) -> None:
    plane.world.clock.sleep(after_s)
    for host, ones in guests.waiting().items():
        guests.ask(host, ones)


def run(plane: ControlPlane) -> None:
    """What was submitted, as far as it goes without a guest."""
    idle, plane.engine.idle = plane.engine.idle, lambda: None
    plane.engine.drain()
    plane.engine.idle = idle


def begun(plane: ControlPlane, name: str = "train", profile: str = "GRID T4-2Q") -> str:
    operation = plane.services.vms.create(create_vm(name, profile=profile)).operation
    assert operation is not None
    run(plane)
    return operation


def now(plane: ControlPlane, operation: str) -> Operation:
    return plane.services.operations.get(operation)


def due(plane: ControlPlane) -> set[str]:
    with plane.store.read() as tx:
        return {one.operation for one in tx.operations.due()}


def test_it_is_not_due_while_its_guest_boots_and_ends_when_that_has_an_address(plane: ControlPlane) -> None:
    operation, guests = begun(plane), server(plane)
    first = now(plane, operation)
    assert (first.state, first.guest_wait, due(plane)) == ("running", "waiting", set())
    ask(plane, guests, after_s=30.0)
    assert now(plane, operation) == first, "nothing is written while nothing has happened"

    plane.machine(T4_HOST).gives_addresses = True
    ask(plane, guests, after_s=1.0)
    assert due(plane) == {operation}
    run(plane)
    ended = now(plane, operation)
    assert (ended.state, ended.guest_wait, ended.warnings) == ("done", None, ())
    assert (ended.tries, ended.attempt) == (1, 2), "it was tried once, in two runs"
    step = next(one for one in ended.steps if one.name == "guest_seen.1")
    assert step.started_at is not None
    assert step.finished_at is not None
    assert step.finished_at - step.started_at > 30.0, "people are told how long the guest took"
    assert plane.services.vms.get("default", "train").addresses


def test_other_operations_of_its_vm_stay_behind_it(plane: ControlPlane) -> None:
    operation = begun(plane)
    with plane.store.read() as tx:
        assert tx.operations.unfinished() == 0, "the end of another run is no news for it"
    deleted = plane.services.vms.delete("default", "train").operation
    assert due(plane) == {operation}, "cancelled by the delete, it is taken back first"
    run(plane)
    assert deleted is not None
    assert (now(plane, operation).state, now(plane, deleted).state) == ("undone", "done")
    assert not plane.machine(T4_HOST).mdevs


def test_a_guest_gets_its_time_by_the_monotonic_clock_of_each_server(plane: ControlPlane) -> None:
    operation, guests = begun(plane), server(plane)
    ask(plane, guests)
    ask(plane, guests, after_s=GUEST_S - 1.0)
    assert isinstance(plane.world.clock, FakeClock)
    plane.world.clock.ahead = 86400.0
    ask(plane, guests)
    assert due(plane) == set()
    other = server(plane)
    ask(plane, other, after_s=1.0)
    assert due(plane) == set(), "one that has just begun has not seen it wait"
    ask(plane, guests)
    run(plane)
    assert now(plane, operation).state == "done"
    assert "no address" in now(plane, operation).warnings[0]


def test_one_that_is_cancelled_while_its_guest_boots_is_taken_back(plane: ControlPlane) -> None:
    operation = begun(plane)
    plane.services.operations.cancel(operation)
    run(plane)
    assert now(plane, operation).state == "undone"
    assert not plane.machine(T4_HOST).mdevs
    assert plane.services.vms.list(None) == ()


def test_a_guest_that_dies_while_it_boots_is_taken_back(plane: ControlPlane) -> None:
    operation, machine = begun(plane), plane.machine(T4_HOST)
    machine.domains = {vm: (xml, False) for vm, (xml, _) in machine.domains.items()}
    ask(plane, server(plane))
    run(plane)
    assert now(plane, operation).state == "undone"
    assert (now(plane, operation).error or {})["code"] == "vm.guest_died"


def test_one_whose_host_goes_away_waits_for_the_host_instead(plane: ControlPlane) -> None:
    operation, guests, machine = begun(plane), server(plane), plane.machine(T4_HOST)
    machine.answers = False
    ask(plane, guests)
    run(plane)
    missing = now(plane, operation)
    assert missing.host_wait is not None
    assert (missing.state, missing.host_wait.state) == ("running", "waiting")
    machine.answers, machine.gives_addresses = True, True
    plane.look(T4_HOST)
    assert now(plane, operation).state == "done"


def test_two_servers_that_see_it_boot_make_it_go_on_once(plane: ControlPlane) -> None:
    operation, one, two = begun(plane), server(plane), server(plane)
    plane.machine(T4_HOST).gives_addresses = True
    waiting = one.waiting()[T4_HOST], two.waiting()[T4_HOST]
    one.ask(T4_HOST, waiting[0])
    two.ask(T4_HOST, waiting[1])
    attempt = now(plane, operation).attempt
    run(plane)
    assert (now(plane, operation).state, now(plane, operation).attempt) == ("done", attempt + 1)


class Slow(FakeHosts):
    """One of its hosts does not tell of its domains before it is let go."""

    let_go: threading.Event
    asked: list[str]

    def observe_domain(self, host: Host, vm: str) -> DomainSnapshot | None:
        self.asked.append(host.name)
        if host.name == T4_HOST:
            assert self.let_go.wait(LIMIT_S)
            raise Retryable("host.unreachable", "it does not answer")
        return super().observe_domain(host, vm)


def slow(plane: ControlPlane) -> Slow:
    hosts = Slow(plane.hosts.machines)
    hosts.let_go, hosts.asked = threading.Event(), []
    return hosts


def until_due(plane: ControlPlane, operation: str, guests: BootingGuests) -> None:
    """With one round after the other."""
    end, pause = time.monotonic() + LIMIT_S, threading.Event()
    while operation not in due(plane):
        assert time.monotonic() < end, "it does not go on"
        guests.round()
        pause.wait(0.01)


def test_a_host_that_does_not_answer_holds_up_only_its_own_guests(plane: ControlPlane) -> None:
    plane.machine(L40S_HOST).gives_addresses = False
    there, elsewhere = begun(plane), begun(plane, "other", L40S)
    hosts = slow(plane)
    guests = server(plane, hosts)
    guests.round()
    plane.machine(L40S_HOST).gives_addresses = True
    until_due(plane, elsewhere, guests)
    assert hosts.asked.count(T4_HOST) == 1, "it is asked again when it has answered"
    hosts.let_go.set()
    until_due(plane, there, guests)
    guests.close()


class Busy(FakeHosts):
    """Its hosts take their time to tell of a domain."""

    clock: Clock
    answer_s: float
    asked: int

    def observe_domain(self, host: Host, vm: str) -> DomainSnapshot | None:
        self.asked += 1
        self.clock.sleep(self.answer_s)
        return super().observe_domain(host, vm)


@pytest.mark.parametrize(("answer_s", "rest_s"), [(0.2, 1.8), (0.5, 4.5), (30.0, 5.0)])
def test_a_host_that_takes_its_time_to_answer_is_left_to_its_guests_before_it_is_asked_again(
    plane: ControlPlane, answer_s: float, rest_s: float
) -> None:
    begun(plane)
    hosts = Busy(plane.hosts.machines)
    hosts.clock, hosts.answer_s, hosts.asked = plane.world.clock, answer_s, 0
    guests = server(plane, hosts)
    ask(plane, guests)
    plane.world.clock.sleep(rest_s - 0.1)
    guests.round()
    assert hosts.asked == 1
    plane.world.clock.sleep(0.2)
    guests.round()
    until(lambda: hosts.asked == 2)
    guests.close()


def test_where_many_boot_some_are_asked_for_in_each_round_and_none_is_forgotten(plane: ControlPlane) -> None:
    operations, guests = [f"op{number}" for number in range(MOST + 10)], server(plane)
    for one in operations:
        add(plane.store, one, subject=f"vm of {one}", host=f"host of {one}")
        job = plane.journal.take_up(one)
        assert job is not None
        plane.journal.waits_for_guest(job.operation)
    for expected in (MOST, len(operations)):  # nobody knows those hosts, so all that are asked for go on
        guests.round()
        end, pause = time.monotonic() + LIMIT_S, threading.Event()
        while len(due(plane)) < expected:
            assert time.monotonic() < end
            pause.wait(0.01)
        assert len(due(plane)) == expected
    guests.close()


@pytest.fixture(scope="module", params=["create t4", "start l40s", "restart l40s", "create a100"])
def staged(request: pytest.FixtureRequest) -> Iterator[Stage]:
    (scene,) = [one for one in SCENES if one.name == request.param]
    with stage(scene) as made:
        yield made


def booted(world: World) -> Operation:
    """To its end, by processes that die and are followed by others; its guest boots when it is first waited for."""
    for machine in world.plane.hosts.machines.values():
        machine.gives_addresses = False
    for _ in range(9):
        try:
            if world.run().state != "running":
                return world.operation
        except Crash:
            continue
        if world.operation.guest_wait == "waiting":
            for machine in world.plane.hosts.machines.values():
                machine.gives_addresses = True
            ask(world.plane, server(world.plane))
    raise AssertionError(f"it did not end: {world.operation}")


def killed(at: int, moment: str) -> Strike:
    return lambda number, when, _name: Crash() if (number, when) == (at, moment) else None


@pytest.mark.parametrize("moment", ["before", "after"])
def test_killed_at_any_write_while_its_guest_boots_it_finishes_when_taken_up_again(staged: Stage, moment: str) -> None:
    with staged.world() as world:
        assert booted(world).state == "done"
        after, writes = world.picture(), world.journal.writes
    for number in range(writes):
        with staged.world() as world:
            world.journal.strike = killed(number, moment)
            assert booted(world).state == "done", (number, world.operation.error)
            assert world.picture() == after, f"{moment} write {number}"
