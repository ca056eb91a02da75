# SPDX-License-Identifier: Apache-2.0
"""One reader of the database for everybody who watches, and nothing that grows with those who are slow."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
from anyio import from_thread, to_thread

from orchestrator.api import event_feed
from orchestrator.api.app import create_app
from orchestrator.api.limits import Activity
from orchestrator.api.services import Process
from orchestrator.core.event import EventFilter, FleetEvent
from orchestrator.services.events import EventPage, EventService
from tests.fakes.control_plane import ControlPlane, plane_with
from tests.fakes.event_streams import EventStream

T = TypeVar("T")
READERS = 200


class Scene:
    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane
        process = Process(started_at=0, idle_seconds=None, activity=Activity())
        self.app = create_app(plane.services, process)
        self.log: EventService = plane.services.events

    def happen(self, *names: str) -> None:
        for name in names:
            with self.plane.store.begin() as tx:
                tx.events.note("vm", name, "state", tenant="default", host="t4")

    def prune(self, kept: int) -> None:
        with self.plane.store.begin() as tx:
            tx.events.prune(kept=kept, before=0.0, recent=1e12, most=10_000)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    with plane_with(tmp_path) as plane:
        yield Scene(plane)


def play(course: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(course)


def has(stream: EventStream, events: int) -> bool:
    return len(stream.events) == events


def names(stream: EventStream) -> list[str]:
    return [str(event["name"]) for event in stream.events]


def test_who_watches_is_told_what_happens_from_then_on_in_order(scene: Scene) -> None:
    async def course() -> None:
        scene.happen("before")
        async with EventStream(scene.app) as stream:
            await asyncio.to_thread(scene.happen, "a", "b", "c")
            await stream.until(lambda: len(stream.events) == 3)
            assert names(stream) == ["a", "b", "c"]
            assert [one.event for one in stream.told if one.event] == ["vm"] * 3
            assert stream.events[0]["host"] == "t4"
            assert [one.id for one in stream.told if one.event] == [event["id"] for event in stream.events]

    play(course())


def test_who_comes_back_is_told_what_it_missed_whichever_way_it_says_where_it_was(scene: Scene) -> None:
    async def course() -> None:
        async with EventStream(scene.app) as stream:
            position = str(stream.last_id)
        scene.happen("a", "b")
        async with EventStream(scene.app, f"after={position}&wait=0") as stream:
            await stream.ended()
            assert names(stream) == ["a", "b"]
            first = stream.events[0]["id"]
        headers = [(b"last-event-id", first.encode())]
        async with EventStream(scene.app, "wait=0", headers) as stream:
            await stream.ended()
            assert names(stream) == ["b"]

    play(course())


def test_what_has_happened_already_is_told_to_who_asks_for_the_last_so_many(scene: Scene) -> None:
    async def course() -> None:
        scene.happen("a", "b", "c")
        async with EventStream(scene.app, "last=2&wait=0&noun=vm&noun=host") as stream:
            await stream.ended()
            assert names(stream) == ["b", "c"]
        async with EventStream(scene.app, "last=2&wait=0&noun=host") as stream:
            await stream.ended()
            assert names(stream) == []
        async with EventStream(scene.app, "last=9&wait=0&name=a") as stream:
            await stream.ended()
            assert names(stream) == ["a"]

    play(course())


def test_what_is_no_longer_kept_is_a_gap_and_what_is_comes_after_it(scene: Scene) -> None:
    async def course() -> None:
        async with EventStream(scene.app) as stream:
            position = str(stream.last_id)
        scene.happen("a", "b", "c", "d")
        scene.prune(kept=2)
        async with EventStream(scene.app, f"after={position}&wait=0") as stream:
            await stream.ended()
            assert [one.event for one in stream.told if one.event] == ["gap", "vm", "vm"]
            assert [one.data for one in stream.told if one.event == "gap"] == [{"noun": "gap", "reason": "forgotten"}]
            assert names(stream) == ["c", "d"]
        position = scene.log.ids.of(10**9)  # of a database that this one was restored from
        async with EventStream(scene.app, f"after={position}&wait=0") as stream:
            await stream.ended()
            assert [one.event for one in stream.told if one.event] == ["gap"]
        scene.happen("e")
        async with EventStream(scene.app, f"after={stream.last_id}&wait=0") as again:
            await again.ended()
            assert names(again) == ["e"]

    play(course())


def test_who_has_the_name_of_a_tenant_that_was_removed_is_told_nothing_of_it(scene: Scene) -> None:
    tenants = scene.plane.services.tenancy.tenants

    async def course() -> None:
        async with EventStream(scene.app) as watches:
            position = str(watches.last_id)
            tenants.create("red")
            scene.plane.services.networks.add("lan", None, "red")
            await watches.until(partial(has, watches, 2))
            tenants.delete("red")
            tenants.create("red")
            await watches.until(partial(has, watches, 5))
            for begin in (f"after={position}", "last=9"):
                async with EventStream(scene.app, f"{begin}&wait=0&tenant=red") as later:
                    await later.ended()
                    assert [(event["noun"], event["change"]) for event in later.events] == [("tenant", "created")]

    play(course())


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("after=1", "event.id_invalid"), ("after=zz", "event.id_invalid"), ("noun=planet", "request.invalid"),
        ("name=a&name=b", "request.said_twice"), ("last=1001", "request.invalid"), ("wait=1e9", "request.invalid"),
        ("nouns=vm", "request.unknown_parameter"), ("after=" + "f" * 16, "event.id_invalid"),
    ],
)  # fmt: skip
def test_what_nobody_can_be_told_is_refused(scene: Scene, query: str, code: str) -> None:
    async def course() -> None:
        async with EventStream(scene.app, query) as stream:
            await stream.ended()
            assert (stream.status, stream.problem()["code"]) == (400, code)

    play(course())


def test_two_hundred_readers_are_one_reader_of_the_database(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    questions = list[int]()
    new = EventService.new

    def counted(self: EventService, after: int) -> EventPage:
        questions.append(after)
        return new(self, after)

    monkeypatch.setattr(EventService, "new", counted)
    monkeypatch.setattr(event_feed, "ELSEWHERE_S", 3600.0)

    async def course() -> None:
        async with AsyncExitStack() as stack:
            streams = [await stack.enter_async_context(EventStream(scene.app)) for _ in range(READERS)]
            questions.clear()
            await asyncio.to_thread(scene.happen, *"abcdefghij")
            for stream in streams:
                await stream.until(partial(has, stream, 10))
            assert {tuple(names(stream)) for stream in streams} == {tuple("abcdefghij")}
            assert len(questions) <= 11

    play(course())


def test_who_takes_nothing_is_told_of_a_gap_and_cut_and_goes_on_where_it_was(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "KEPT", 20)
    monkeypatch.setattr(event_feed, "PAGE", 10)

    async def course() -> None:
        async with EventStream(scene.app) as slow, EventStream(scene.app) as quick:
            slow.taking.clear()
            for first in range(0, 100, 10):
                await asyncio.to_thread(scene.happen, *map(str, range(first, first + 10)))
                await quick.until(partial(has, quick, first + 10))
            feed = scene.app.state.event_feed
            assert feed.end - feed.begin <= 30
            slow.taking.set()
            await slow.ended()
            assert slow.told[-1].data == {"noun": "gap", "reason": "slow"}
            taken = len(slow.events)
            assert names(slow) == [str(number) for number in range(taken)]
            assert taken < 100
        async with EventStream(scene.app, f"after={slow.last_id}&wait=0") as again:
            await again.ended()
            assert names(again) == [str(number) for number in range(taken, 100)]

    play(course())


def test_who_asks_for_what_was_before_holds_no_thread_that_serves_requests(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = list[float]()
    last = EventService.last

    def counted(self: EventService, until: int, only: EventFilter, most: int) -> tuple[FleetEvent, ...]:
        held.append(from_thread.run_sync(lambda: to_thread.current_default_thread_limiter().borrowed_tokens))
        return last(self, until, only, most)

    monkeypatch.setattr(EventService, "last", counted)

    async def course() -> None:
        async with EventStream(scene.app, "last=1&wait=0") as stream:
            await stream.ended()

    play(course())
    assert held == [0]


def test_who_has_many_streams_leaves_some_to_who_has_none(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "MAX_STREAMS", 4)
    tokens = scene.plane.services.tenancy.tokens
    tenant = [(b"authorization", f"Bearer {tokens.create('default', 'read-only', None)[1]}".encode())]

    async def course() -> None:
        async with EventStream(scene.app), EventStream(scene.app), EventStream(scene.app) as third:
            await third.ended()
            assert third.problem()["detail"] == (
                "2 streams of events are open already for you, and 2 are free for everybody"
            )
            async with EventStream(scene.app, "", tenant, "192.0.2.1") as one:
                assert one.status == 200

    play(course())


def test_no_tenant_has_more_streams_than_its_part_by_whatever_tokens(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_feed, "MAX_STREAMS_OF_TENANT", 2)
    tokens = scene.plane.services.tenancy.tokens
    token, other = (
        [(b"authorization", f"Bearer {tokens.create('default', 'read-only', None)[1]}".encode())] for _ in range(2)
    )

    async def course() -> None:
        async with EventStream(scene.app, "", token, "192.0.2.1"), EventStream(scene.app, "", other, "192.0.2.1"):
            async with EventStream(scene.app, "", token, "192.0.2.1") as third:
                await third.ended()
                assert (third.status, third.problem()["code"]) == (502, "server.streams_busy")
            async with EventStream(scene.app) as owner:
                assert owner.status == 200
        async with EventStream(scene.app, "", token, "192.0.2.1") as later:
            assert later.status == 200

    play(course())


def test_streams_end_when_the_process_leaves(scene: Scene) -> None:
    async def course() -> None:
        async with EventStream(scene.app) as stream:
            scene.app.state.event_feed.close()
            await stream.ended()

    play(course())
