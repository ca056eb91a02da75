# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from orchestrator.adapters.engine.places import Bounds, RunPlaces
from orchestrator.ports.store.operations import DueOperation


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
    assert places.begin("found", "h")
    assert not places.begin("found", "h")
    places.stand_in_line([waiting("next")])
    assert taken(places) == []
    places.leave("found")
    assert taken(places) == ["next"]
    assert places.running() == set()
    assert places.begin("next", "h")
    assert places.running() == {"next"}


def test_who_gives_up_waiting_is_not_known_and_a_closed_house_gives_no_place() -> None:
    places = RunPlaces(Bounds(workers=9, per_host=1))
    places.stand_in_line([waiting("one"), waiting("two", "other")])
    places.give_up_waiting()
    assert places.known() == set()
    places.stand_in_line([waiting("one")])
    places.close()
    assert taken(places) == []
