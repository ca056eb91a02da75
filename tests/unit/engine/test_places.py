# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import gc
import threading
from types import ModuleType

from orchestrator.adapters.engine.places import COMPANIONS, HELD_UP_S, Bounds, RunPlaces
from orchestrator.store.records import DueOperation

LIMIT_S = 60.0


def queued(operation: str, host: str = "h", kind: str = "") -> DueOperation:
    return DueOperation(operation=operation, subject=operation, host=host, attempt=0, kind=kind)


def provisioning(operation: str, tenant: str) -> DueOperation:
    return DueOperation(operation=operation, subject=operation, host="h", attempt=0, kind="provision_vm", tenant=tenant)


def reachable(root: object) -> list[object]:
    """Everything that ``root`` keeps."""
    seen: dict[int, object] = {}
    due = [root]
    while due:
        item = due.pop()
        if id(item) not in seen and not isinstance(item, type | ModuleType):
            seen[id(item)] = item
            due += gc.get_referents(item)
    return list(seen.values())


def taken(places: RunPlaces, *runs: DueOperation) -> list[str]:
    return [run.operation for run in runs if places.take(run, 0)]


def test_all_hosts_together_get_no_more_places_than_there_are_workers() -> None:
    places = RunPlaces(Bounds(workers=3, per_host=2))
    runs = [queued(f"{host}{number}", host) for host in "abc" for number in range(2)]
    assert taken(places, *runs) == ["a0", "a1", "b0"]
    places.leave("a1")
    assert taken(places, *runs[3:]) == ["b1"]


def test_a_host_gets_no_more_places_than_it_has_and_leaves_others_theirs() -> None:
    places = RunPlaces(Bounds(workers=8, per_host=2))
    runs = [queued(f"a{number}", "a") for number in range(3)]
    assert taken(places, *runs, queued("b0", "b")) == ["a0", "a1", "b0"]
    places.leave("b0")
    assert taken(places, runs[2]) == []
    places.leave("a0")
    assert taken(places, runs[2]) == ["a2"]


def test_a_run_that_waits_for_its_host_begins_when_another_one_of_it_ends() -> None:
    places = RunPlaces(Bounds(workers=8, per_host=1))
    assert taken(places, queued("first"), queued("next")) == ["first"]
    waited: list[bool] = []
    waiting = threading.Thread(target=lambda: waited.append(places.take(queued("next"), 2 * LIMIT_S)))
    waiting.start()
    places.leave("first")
    waiting.join(LIMIT_S)
    assert waited == [True]


def test_a_line_that_nobody_waits_in_leaves_nothing_in_memory() -> None:
    places = RunPlaces(Bounds(workers=1, per_host=1))
    for number in range(50):
        run = queued(f"operation{number}", f"host{number}")
        assert taken(places, run) == [run.operation]
        places.leave(run.operation)
    assert sum(isinstance(kept, threading.Condition) for kept in reachable(places)) == 0


def test_an_operation_runs_once_whether_it_has_a_place_or_not() -> None:
    places = RunPlaces(Bounds(workers=1, per_host=1))
    assert places.begin("first")
    assert places.begin("second")
    assert not places.begin("first")
    assert taken(places, queued("first"), queued("second")) == ["first"]
    assert not places.begin("first")
    assert places.running() == {"first", "second"}
    places.leave("first")
    assert places.running() == {"second"}
    assert taken(places, queued("second")) == ["second"]
    assert places.begin("first")


def test_hosts_that_hang_keep_no_worker_from_a_healthy_one() -> None:
    now = [0.0]
    places = RunPlaces(Bounds(workers=8, per_host=4), clock=lambda: now[0])
    hanging = [queued(f"{host}-{number}", host) for host in ("x", "y") for number in range(4)]
    assert len(taken(places, *hanging)) == 8
    assert taken(places, queued("healthy", "good")) == []
    now[0] += HELD_UP_S
    assert taken(places, queued("healthy", "good")) == ["healthy"]


def test_no_more_are_held_up_than_there_may_be() -> None:
    now = [0.0]
    places = RunPlaces(Bounds(workers=2, per_host=1), clock=lambda: now[0])
    runs = [queued(f"op{number}", f"host{number}") for number in range(20)]
    count = 0
    for _ in range(10):
        count += len(taken(places, *runs[count:]))
        now[0] += HELD_UP_S
    assert count == 2 * COMPANIONS


def test_runs_of_ansible_are_at_work_however_long_they_last() -> None:
    now = [0.0]
    places = RunPlaces(Bounds(workers=2, per_host=4), clock=lambda: now[0])
    runs = [queued(f"op{number}", f"h{number}", "add_host") for number in range(4)]
    assert taken(places, *runs) == ["op0", "op1"]
    now[0] += 100 * HELD_UP_S
    assert taken(places, *runs[2:]) == []


def test_runs_in_guests_take_half_of_the_workers_at_most() -> None:
    places = RunPlaces(Bounds(workers=8, per_host=4))
    assert len(taken(places, *(provisioning(f"op{number}", f"tenant{number}") for number in range(8)))) == 4
    assert taken(places, queued("stop")) == ["stop"]
    places.leave("op0")
    assert taken(places, provisioning("op9", "tenant9")) == ["op9"]


def test_copies_of_disks_hold_nothing_else_of_their_hosts_up() -> None:
    now = [0.0]
    places = RunPlaces(Bounds(workers=2, per_host=2), clock=lambda: now[0])
    copies = [queued(f"copy{number}", f"h{number // 3}", "create_snapshot") for number in range(9)]
    count = 0
    for _ in range(9):
        count += len(taken(places, *copies[count:]))
        now[0] += HELD_UP_S
    assert count == 2 * COMPANIONS // 2
    assert taken(places, queued("stop", "h0"), queued("other", "h0")) == ["stop", "other"]
