# SPDX-License-Identifier: Apache-2.0
"""Signals that make a page fetch what is live again: of what it shows, of what its reader may know, and few."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import Any

import httpx2
import pytest

from orchestrator.api import auth, event_feed
from orchestrator.core.tenancy.tenant import token_id_of
from orchestrator.web import live
from orchestrator.web.api_calls import ApiCalls
from orchestrator.web.proofs import COOKIE
from orchestrator.web.sharing import APART_S, Shared
from tests.contract.web.conftest import Site
from tests.fakes.event_streams import EventStream

FRAGMENT = {"HX-Request": "true", "HX-Target": "div#live"}
PAGES = ("map", "hosts", "hosts/t4", "vms", "vms/default/train", "operations", "findings")
SILENT_S = 0.4
"""Longer than a signal takes that is not to come."""


def happen(site: Site, *names: str, noun: Any = "vm", change: str = "state", tenant: str | None = "default") -> None:
    for name in names:
        with site.plane.store.begin() as tx:
            tx.events.note(noun, name, change, tenant=tenant, host="t4")


def watching(site: Site, token: str, query: str) -> EventStream:
    cookie = site.logged_in(token).cookies[COOKIE]
    headers = [(b"cookie", f"{COOKIE}={cookie}".encode())]
    return EventStream(site.app, query, headers, path="/web/news")


def signals(stream: EventStream) -> int:
    assert {one.event for one in stream.told} <= {"news"}
    assert stream.events == []
    return len(stream.told)


def play(course: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(course())


def address_of(html: str) -> str:
    found = re.search(r'hx-sse:connect="/web/news\?([^"]*)"', html)
    assert found is not None
    return found[1].replace("&amp;", "&")


def test_what_happens_to_a_thing_on_the_page_is_a_signal_without_a_word_of_it(site: Site) -> None:
    stream = watching(site, site.token("*", "read-only"), "noun=vm&since=0")

    async def course() -> None:
        async with stream:
            before = signals(stream)
            await asyncio.to_thread(happen, site, "train")
            await stream.until(lambda: signals(stream) == before + 1)

    play(course)


def test_a_burst_is_two_signals_at_most(site: Site) -> None:
    stream = watching(site, site.token("*", "read-only"), "noun=vm&since=99999999999")

    async def course() -> None:
        async with stream:
            began = time.monotonic()
            await asyncio.to_thread(happen, site, *["train"] * 40)
            lasted = time.monotonic() - began
            await asyncio.sleep(3 * live.BETWEEN_S)
            assert signals(stream) <= 2 + lasted // live.BETWEEN_S

    play(course)


@pytest.mark.parametrize(
    ("query", "about", "told"),
    [
        ("noun=vm", {"noun": "operation"}, False),
        ("noun=operation", {"noun": "operation"}, True),
        ("noun=operation", {"noun": "operation", "change": "step"}, False),
        ("noun=operation&noun=step", {"noun": "operation", "change": "step"}, True),
        ("noun=vm&name=other", {}, False),
        ("noun=vm&name=other&name=train", {}, True),
        ("noun=vm&name=t4", {}, True),
        ("noun=vm&tenant=default", {}, True),
        ("noun=vm&tenant=default", {"tenant": None}, False),
    ],
)
def test_a_page_is_told_of_what_it_shows_alone(site: Site, query: str, about: dict[str, Any], told: bool) -> None:
    stream = watching(site, site.token("*", "read-only"), query + "&since=1")

    async def course() -> None:
        async with stream:
            await asyncio.sleep(SILENT_S + live.BETWEEN_S)
            before = signals(stream)
            await asyncio.to_thread(happen, site, "train", **about)
            if told:
                await stream.until(lambda: signals(stream) > before)
            else:
                await asyncio.sleep(SILENT_S)
                assert signals(stream) == before

    play(course)


def test_a_tenant_s_page_is_not_told_that_others_do_something(site: Site) -> None:
    site.plane.services.tenancy.tenants.create("other")
    stream = watching(site, site.token("other", "tenant-user"), "noun=vm&noun=host&since=0")

    async def course() -> None:
        async with stream:
            await asyncio.to_thread(happen, site, "train")
            await asyncio.to_thread(happen, site, "t4", noun="host", tenant=None)
            await asyncio.sleep(SILENT_S)
            assert signals(stream) == 0

    play(course)


def test_what_happened_between_a_page_and_its_stream_is_not_missed(site: Site) -> None:
    happen(site, "train")
    token = site.token("*", "read-only")
    early, late = (watching(site, token, f"noun=vm&since={since}") for since in (0, 99999999999))

    async def course() -> None:
        async with early, late:
            await early.until(lambda: signals(early) == 1)
            await asyncio.sleep(SILENT_S)
            assert signals(late) == 0

    play(course)


def test_a_page_without_a_stream_fetches_all_the_same(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_feed, "MAX_STREAMS", 0)
    stream = watching(site, site.token("*", "read-only"), "noun=vm")

    async def course() -> None:
        async with stream:
            await stream.ended()
            assert stream.status == 200
            assert [(one.event, one.id) for one in stream.told] == [("news", None)]

    play(course)


def test_a_page_whose_reader_may_no_more_is_led_to_the_login(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.api.auth.ASK_AGAIN_S", 0.05)
    token = site.token("*", "read-only")
    stream = watching(site, token, "noun=vm&since=99999999999")
    browser = site.logged_in(token)

    async def course() -> None:
        async with stream:
            await asyncio.to_thread(site.plane.services.tenancy.tokens.revoke, "*", token_id_of(token) or "")
            await asyncio.to_thread(happen, site, "train")
            await stream.ended()
            assert signals(stream) >= 1

    play(course)
    answer = browser.get("/web/vms", headers=FRAGMENT)
    assert (answer.status_code, answer.headers["hx-redirect"]) == (204, "/web/login?because=over&to=%2Fweb%2Fvms")


def test_who_reads_is_known_without_a_request_to_the_api_and_who_may_not_is_refused_by_one(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two hundred readers fetch a list at once: it is made once, and what each of them costs besides is what counts."""
    paths: list[str] = []
    answer = ApiCalls.answer

    async def counted(api: ApiCalls, method: str, path: str, *arguments: Any, **more: Any) -> Any:
        paths.append(path)
        return await answer(api, method, path, *arguments, **more)

    token = site.token("*", "read-only")
    browser = site.logged_in(token)
    monkeypatch.setattr(ApiCalls, "answer", counted)
    assert browser.get("/web/vms", headers=FRAGMENT).status_code == 200
    assert (paths.count("/v1/vms"), paths.count("/v1/whoami")) == (1, 0)
    site.plane.services.tenancy.tokens.revoke("*", token_id_of(token) or "")
    paths.clear()
    assert browser.get("/web/vms", headers=FRAGMENT).status_code == 204
    assert paths == ["/v1/whoami"]


def test_readers_at_once_are_asked_for_by_their_streams_and_their_rights_are_old_for_2_s_at_most(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who makes it for all is asked each time; where that one may no more, the others have theirs all the same."""
    access = type(site.plane.services.tenancy.access)
    asked: list[str] = []
    of_token = access.of_token

    def counted(service: Any, text: str) -> Any:
        asked.append(text)
        return of_token(service, text)

    monkeypatch.setattr(access, "of_token", counted)
    tokens = [site.token("*", "read-only") for _ in range(5)]
    cookies = [site.logged_in(token).cookies[COOKIE] for token in tokens]

    async def fetched() -> list[int]:
        transport = httpx2.ASGITransport(site.app, client=("192.0.2.1", 1))
        async with httpx2.AsyncClient(transport=transport, base_url="https://testserver") as client:
            headers = [{**FRAGMENT, "Cookie": f"{COOKIE}={cookie}"} for cookie in cookies]
            answers = await asyncio.gather(*(client.get("/web/vms", headers=one) for one in headers))
            return [answer.status_code for answer in answers]

    async def course() -> None:
        assert auth.ASK_AGAIN_S == 2.0
        monkeypatch.setattr(auth, "ASK_AGAIN_S", 1000.0)  # a busy machine takes longer than 2 s for five readers
        await fetched()
        asked.clear()
        assert await fetched() == [200] * 5
        assert asked.count(tokens[0]) == len(asked)
        await asyncio.to_thread(site.plane.services.tenancy.tokens.revoke, "*", token_id_of(tokens[0]) or "")
        assert await fetched() == [204, 200, 200, 200, 200]
        monkeypatch.setattr(auth, "ASK_AGAIN_S", 0.0)
        asked.clear()
        await fetched()
        assert set(asked) == set(tokens)

    play(course)


def test_streams_are_told_one_after_the_other_and_none_waits_for_long() -> None:
    assert live.waits_s(7, 1) == 0
    for streams in (2, 50, 200, 10_000):
        waits = sorted(live.waits_s(number, streams) for number in range(1000, 1000 + streams))
        assert len(set(waits)) == min(streams, live.MAX_TURNS)
        assert waits[-1] < 0.5


def test_a_stream_that_is_over_counts_no_more(site: Site) -> None:
    before = live.Signals.open
    stream = watching(site, site.token("*", "read-only"), "noun=vm&since=0")

    async def course() -> None:
        async with stream:
            assert live.Signals.open == before + 1

    play(course)
    assert live.Signals.open == before


@pytest.mark.parametrize("path", PAGES)
def test_what_is_live_is_the_same_for_all_with_the_same_rights(site: Site, path: str) -> None:
    """One is made for all who fetch it at once."""
    one, other = (site.logged_in(site.token("*", "operator")).get(f"/web/{path}", headers=FRAGMENT) for _ in range(2))
    assert one.status_code == 200
    hidden = re.compile(r'value="[0-9a-f]{32}')
    assert hidden.sub("", one.text) == hidden.sub("", other.text)
    assert re.search(r"nonce|request [0-9a-f]{12}", one.text) is None


@pytest.mark.parametrize("path", PAGES)
def test_each_live_page_has_one_stream_that_the_api_takes(site: Site, path: str) -> None:
    token = site.token("*", "operator")
    html = site.logged_in(token).get(f"/web/{path}").text
    assert html.count("hx-sse:connect") == 1
    stream = watching(site, token, address_of(html))

    async def course() -> None:
        async with stream:
            assert stream.status == 200

    play(course)


def test_what_many_ask_for_at_once_is_made_once_and_never_older_than_the_question() -> None:
    async def course() -> None:
        shared: Shared[int] = Shared()
        state, begun, go = 0, 0, asyncio.Event()

        async def make() -> int:
            nonlocal begun
            begun += 1
            seen = state
            await go.wait()
            return seen

        first = [asyncio.create_task(shared.made("map", make)) for _ in range(100)]
        await asyncio.sleep(0.01)
        state = 1
        later = [asyncio.create_task(shared.made("map", make)) for _ in range(100)]
        await asyncio.sleep(0.01)
        go.set()
        assert await asyncio.gather(*first) == [0] * 100
        assert await asyncio.gather(*later) == [1] * 100
        assert begun == 2

    play(course)


def test_what_is_asked_for_again_and_again_is_made_a_few_times() -> None:
    async def course() -> None:
        shared: Shared[float] = Shared()
        begun: list[float] = []

        async def make() -> float:
            begun.append(time.monotonic())
            return begun[-1]

        asking = []
        for _ in range(30):
            asking.append(asyncio.create_task(shared.made("map", make)))
            await asyncio.sleep(0.01)
        await asyncio.gather(*asking)
        assert len(begun) > 2
        assert all(later - before >= APART_S for before, later in pairwise(begun))

    play(course)


def test_a_failure_is_everybody_s_who_asked_and_nobody_s_after() -> None:
    async def course() -> None:
        shared: Shared[int] = Shared()

        async def fail() -> int:
            raise ValueError

        async def make() -> int:
            return 1

        failed = await asyncio.gather(*(shared.made("map", fail) for _ in range(3)), return_exceptions=True)
        assert [type(error) for error in failed] == [ValueError] * 3
        assert await shared.made("map", make) == 1

    play(course)
