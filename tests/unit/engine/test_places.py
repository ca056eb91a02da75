# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from orchestrator.adapters.engine.places import COMPANIONS, HELD_UP_S, Bounds, RunPlaces
from orchestrator.store.records import DueOperation


def waiting(operation: str, host: str = "h") -> DueOperation:
    return DueOperation(operation=operation, subject=operation, host=host, attempt=0)


def taken(places: RunPlaces) -> list[str]:
    found = []
    while (one := places.take()) is not None:
        found.append(one.operation)
    return found


def test_a_host_gives_so_many_places_in_order_and_another_host_is_not_kept_waiting() -> None:
    places = RunPlaces(Bounds(workers=9, per_host=2))
    places.stand_in_line([*(waiting(f"a{number}") for number in range(4)), waiting("b", "other")])
    assert sorted(taken(places)) == ["a0", "a1", "b"]
    places.leave("a0")
    assert taken(places) == ["a2"]


def test_all_hosts_together_get_no_more_places_than_there_are_workers() -> None:
    places = RunPlaces(Bounds(workers=3, per_host=2))
    places.stand_in_line(waiting(f"{host}{number}", host) for host in "abc" for number in range(2))
    assert taken(places) == ["a0", "b0", "c0"]
    places.leave("b0")
    assert taken(places) == ["a1"]


def test_who_waits_or_has_a_place_does_not_stand_in_line_again() -> None:
    places = RunPlaces(Bounds(workers=9, per_host=1))
    for _ in range(2):
        places.stand_in_line([waiting("first"), waiting("second")])
    assert taken(places) == ["first"]
    places.stand_in_line([waiting("first")])
    assert places.known() == {"first", "second"}
    places.leave("first")
    assert taken(places) == ["second"]


def test_a_run_that_came_without_a_place_is_counted_and_does_not_run_twice() -> None:
    places = RunPlaces(Bounds(workers=9, per_host=1))
    assert places.begin(waiting("found"))
    assert not places.begin(waiting("found"))
    places.stand_in_line([waiting("next")])
    assert taken(places) == []
    places.leave("found")
    assert taken(places) == ["next"]
    assert places.running() == set()
    assert places.begin(waiting("next"))
    assert places.running() == {"next"}


def test_who_gives_up_waiting_is_not_known_and_a_closed_house_gives_no_place() -> None:
    places = RunPlaces(Bounds(workers=9, per_host=1))
    places.stand_in_line([waiting("one"), waiting("two", "other")])
    places.give_up_waiting()
    assert places.known() == set()
    places.stand_in_line([waiting("one")])
    places.close()
    assert taken(places) == []


def provisioning(operation: str, tenant: str, host: str = "h") -> DueOperation:
    return DueOperation(
        operation=operation, subject=operation, host=host, attempt=0, kind="provision_vm", tenant=tenant
    )


def test_hosts_that_hang_keep_no_worker_from_a_healthy_one() -> None:
    now = [0.0]
    places = RunPlaces(Bounds(workers=8, per_host=4), clock=lambda: now[0])
    places.stand_in_line(waiting(f"{host}-{number}", host) for host in ("x", "y", "z") for number in range(4))
    assert len(taken(places)) == 8
    places.stand_in_line([waiting("healthy", "good")])
    assert taken(places) == []
    now[0] += HELD_UP_S
    assert "healthy" in taken(places)


def test_no_more_are_held_up_than_there_may_be() -> None:
    now = [0.0]
    places = RunPlaces(Bounds(workers=2, per_host=1), clock=lambda: now[0])
    places.stand_in_line(waiting(f"op{number}", f"host{number}") for number in range(20))
    for _ in range(10):
        taken(places)
        now[0] += HELD_UP_S
    assert len(places.known()) == 20
    places.give_up_waiting()
    assert len(places.known()) == 2 * COMPANIONS


def test_runs_of_ansible_are_at_work_however_long_they_last() -> None:
    now = [0.0]
    places = RunPlaces(Bounds(workers=2, per_host=4), clock=lambda: now[0])
    places.stand_in_line(
        DueOperation(operation=f"op{number}", subject="s", host=f"h{number}", attempt=0, kind="add_host")
        for number in range(4)
    )
    assert len(taken(places)) == 2
    now[0] += 100 * HELD_UP_S
    assert taken(places) == []


def test_guests_that_hang_take_no_place_of_their_host_nor_of_another_tenant() -> None:
    places = RunPlaces(Bounds(workers=16, per_host=4))
    places.stand_in_line(provisioning(f"red{number}", "red") for number in range(6))
    assert taken(places) == ["red0", "red1", "red2", "red3"]
    places.stand_in_line([waiting("stop"), provisioning("blue0", "blue")])
    assert sorted(taken(places)) == ["blue0", "stop"]


def test_runs_in_guests_take_half_of_the_workers_at_most() -> None:
    places = RunPlaces(Bounds(workers=8, per_host=4))
    places.stand_in_line(provisioning(f"op{number}", f"tenant{number}") for number in range(8))
    assert len(taken(places)) == 4
    places.stand_in_line([waiting("stop")])
    assert taken(places) == ["stop"]
