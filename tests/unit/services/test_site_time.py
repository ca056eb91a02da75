# SPDX-License-Identifier: Apache-2.0
"""A wall clock that is wrong, or set right, ends nothing and lets nothing be forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.vms.lease import DAY_S, WantedEnd
from orchestrator.operations.restored import CODE
from orchestrator.services.retention import Retention
from orchestrator.services.site_time import EVEN_FOR_S, SiteTime
from tests.fakes.control_plane import T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.fake_world import FakeClock

ROUND_S = 30.0
HALF_DAY_S = DAY_S / 2


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    """A host, and a VM whose lease has half a day to go."""
    made = control_plane(tmp_path)
    made.add_host(T4_HOST)
    made.services.vms.create(replace(create_vm(), end=WantedEnd(after_s=int(HALF_DAY_S))))
    made.engine.drain()
    yield made
    made.reconciler.close()
    made.store.close()


def fake(plane: ControlPlane) -> FakeClock:
    clock = plane.world.clock
    assert isinstance(clock, FakeClock)
    return clock


def started(plane: ControlPlane, *, ahead_s: float) -> SiteTime:
    """The time of a server that starts now."""
    plane.time.look()
    fake(plane).ahead = ahead_s
    return SiteTime(plane.store, plane.world.clock)


def passes(plane: ControlPlane, time: SiteTime, seconds: float) -> None:
    """Rounds, as its timer makes them."""
    for _ in range(int(seconds / ROUND_S)):
        plane.world.clock.sleep(ROUND_S)
        time.look()


def ended(plane: ControlPlane, time: SiteTime) -> int:
    return len(replace(plane.reconciler.leases, time=time).end_leases(T4_HOST))


@pytest.mark.fault("F101")
@pytest.mark.parametrize("ahead_s", [DAY_S, 100 * DAY_S])
def test_a_server_that_starts_with_its_clock_ahead_ends_no_lease_and_says_so(
    plane: ControlPlane, ahead_s: float
) -> None:
    time = started(plane, ahead_s=ahead_s)
    passes(plane, time, EVEN_FOR_S / 2)
    assert ended(plane, time) == 0
    assert "ahead" in str(time.health().error)
    fake(plane).ahead = 0.0
    passes(plane, time, 2 * ROUND_S)
    assert time.health().error is None
    passes(plane, time, HALF_DAY_S)
    assert ended(plane, time) == 1


@pytest.mark.fault("F101")
def test_a_lease_ends_in_time_while_the_clock_is_ahead(plane: ControlPlane) -> None:
    time = started(plane, ahead_s=0.0)
    passes(plane, time, HALF_DAY_S - ROUND_S * 4)
    fake(plane).ahead = DAY_S
    time.look()
    assert ended(plane, time) == 0
    passes(plane, time, ROUND_S * 5)
    assert ended(plane, time) == 1


@pytest.mark.fault("F101")
def test_a_clock_that_is_ahead_for_some_seconds_at_the_start_lets_nothing_be_forgotten(plane: ControlPlane) -> None:
    with plane.store.read() as tx:
        before = len(tx.operations.list())
    time = started(plane, ahead_s=100 * DAY_S)
    retention = Retention(store=plane.store, clock=plane.world.clock, time=time, days=30)
    assert retention.round() == 0
    plane.services.vms.stop("default", "train")
    plane.engine.drain()
    fake(plane).ahead = 0.0
    passes(plane, time, EVEN_FOR_S * 3)
    assert retention.round() == 0
    with plane.store.read() as tx:
        assert len(tx.operations.list()) == before + 1


@pytest.mark.fault("F101")
def test_an_answer_that_is_kept_under_a_key_is_not_forgotten_by_a_clock_that_is_ahead(plane: ControlPlane) -> None:
    keys = plane.services.tenancy.request_keys
    keys.finish(keys.begin("ann", "key-1", b"create"), 200, "made")
    time = started(plane, ahead_s=100 * DAY_S)
    retention = Retention(store=plane.store, clock=plane.world.clock, time=time, days=30)
    retention.round()
    assert keys.begin("ann", "key-1", b"create").answer == "made"
    plane.world.clock.sleep(DAY_S + 1.0)
    retention.round()
    assert keys.begin("ann", "key-1", b"create").answer is None


def test_after_a_long_stop_what_is_due_ends_once_the_clock_has_run_evenly_for_long_enough(plane: ControlPlane) -> None:
    time = started(plane, ahead_s=DAY_S)  # the clock that only grows knows nothing of the stop
    passes(plane, time, EVEN_FOR_S - 4 * ROUND_S)
    assert ended(plane, time) == 0
    passes(plane, time, 6 * ROUND_S)
    assert ended(plane, time) == 1
    assert time.health().error is None


def test_a_clock_that_was_behind_when_the_mark_was_set_is_believed_when_it_is_right(plane: ControlPlane) -> None:
    time = started(plane, ahead_s=-DAY_S)
    assert "behind" in str(time.health().error) or time.now() <= fake(plane).now()
    passes(plane, time, EVEN_FOR_S + 2 * ROUND_S)
    assert time.health().error is None
    assert abs(time.now() - fake(plane).now()) < ROUND_S


def test_a_short_stop_is_not_wondered_at(plane: ControlPlane) -> None:
    time = started(plane, ahead_s=300.0)
    time.look()
    assert time.health().error is None
    assert abs(time.now() - fake(plane).now()) < 1.0


@pytest.mark.fault("F101")
def test_a_lease_that_is_given_while_the_clock_is_behind_lasts_as_long_as_was_asked(plane: ControlPlane) -> None:
    time, vms = started(plane, ahead_s=-100 * DAY_S), plane.services.vms
    vms.create(replace(create_vm("late"), end=WantedEnd(after_s=int(DAY_S))))
    plane.engine.drain()
    fake(plane).ahead = 0.0
    passes(plane, time, ROUND_S * 5)
    assert ended(plane, time) == 0


def stuck(plane: ControlPlane, code: str) -> str:
    """Id of the operation that stopped a VM, which runs again since."""
    plane.services.vms.stop("default", "train")
    plane.engine.drain()
    with plane.store.begin() as tx:
        stopped = tx.operations.list(kind="stop_vm")[0]
        tx.operations.update(replace(stopped, state="stuck", finished_at=fake(plane).now(), error={"code": code}))
    return stopped.id


def stop_twice(plane: ControlPlane) -> None:
    """The later one is kept as the last of all."""
    for _ in range(2):
        plane.services.vms.stop("default", "train")
        plane.engine.drain()
        plane.services.vms.start("default", "train")
        plane.engine.drain()


def abandon(plane: ControlPlane) -> None:
    plane.services.operations.abandon(stuck(plane, "agent.bug"))
    stop_twice(plane)


def record_after_a_restore(plane: ControlPlane) -> None:
    plane.services.operations.retry(stuck(plane, CODE))
    stop_twice(plane)


def give_a_host_up(plane: ControlPlane) -> None:
    stop_twice(plane)
    stuck(plane, "agent.bug")
    with plane.store.begin() as tx:
        tx.hosts.update(replace(tx.hosts.get(T4_HOST), state="unreachable"))
    plane.services.hosts.forget(T4_HOST, confirm=T4_HOST)


@pytest.mark.fault("F101")
@pytest.mark.parametrize("end", [stop_twice, abandon, record_after_a_restore, give_a_host_up])
def test_an_operation_that_ends_while_the_clock_is_behind_is_not_forgotten(
    plane: ControlPlane, end: Callable[[ControlPlane], None]
) -> None:
    time = started(plane, ahead_s=-100 * DAY_S)
    end(plane)
    fake(plane).ahead = 0.0
    passes(plane, time, ROUND_S * 5)
    with plane.store.read() as tx:
        before = {one.id for one in tx.operations.list()}
    assert Retention(store=plane.store, clock=plane.world.clock, time=time, days=30).round() == 0
    with plane.store.read() as tx:
        assert {one.id for one in tx.operations.list()} == before


@pytest.mark.fault("F101")
def test_answers_and_findings_of_a_clock_that_is_behind_are_not_forgotten(plane: ControlPlane) -> None:
    keys, machine = plane.services.tenancy.request_keys, plane.machine(T4_HOST)
    time = started(plane, ahead_s=-100 * DAY_S)
    keys.finish(keys.begin("ann", "key-1", b"create"), 200, "made")
    before = dict(machine.domains)
    for runs in (False, True):
        machine.domains |= {uuid: (xml, runs) for uuid, (xml, _) in before.items()}
        plane.reconciler.observe(T4_HOST)
    fake(plane).ahead = 0.0
    passes(plane, time, ROUND_S * 5)
    with plane.store.read() as tx:
        cleared = [one.finding.code for one in tx.findings.list(cleared=True) if one.cleared_at is not None]
    assert cleared
    Retention(store=plane.store, clock=plane.world.clock, time=time, days=30).round()
    assert keys.begin("ann", "key-1", b"create").answer == "made"
    with plane.store.read() as tx:
        assert [one.finding.code for one in tx.findings.list(cleared=True) if one.cleared_at is not None] == cleared
