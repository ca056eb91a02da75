# SPDX-License-Identifier: Apache-2.0
"""Tenants are told of what is theirs and of nothing else: no host, no sibling, nothing once their rights have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from orchestrator.api.app import create_app
from orchestrator.api.limits import Activity
from orchestrator.api.services import Process
from orchestrator.core.tenancy.tenant import Member
from tests.fakes.control_plane import ControlPlane, create_vm, plane_with
from tests.fakes.event_streams import EventStream

HOST = "t4"
MEMBER = 4242


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, HOST) as made:
        for name in ("red", "blue"):
            made.services.tenancy.tenants.create(name)
            made.services.tenancy.policies.change(name, {"isolation": "none"})
        yield made


def app_of(plane: ControlPlane) -> Any:
    return create_app(plane.services, Process(started_at=0, idle_seconds=None, activity=Activity()))


def token_of(plane: ControlPlane, tenant: str) -> tuple[str, list[tuple[bytes, bytes]]]:
    token, text = plane.services.tenancy.tokens.create(tenant, "tenant-user", None)
    return token.id, [(b"authorization", f"Bearer {text}".encode())]


def lives(plane: ControlPlane, tenant: str) -> None:
    """A VM of the tenant comes and goes."""
    plane.services.vms.create(replace(create_vm(f"{tenant}-vm"), tenant=tenant))
    plane.engine.drain()
    plane.services.vms.delete(tenant, f"{tenant}-vm")
    plane.engine.drain()


def test_two_tenants_are_told_of_their_own_and_nothing_that_names_a_host_or_the_other(plane: ControlPlane) -> None:
    app = app_of(plane)
    _, red = token_of(plane, "red")
    _, blue = token_of(plane, "blue")

    async def course() -> None:
        async with (
            EventStream(app, "", red, "192.0.2.1") as one,
            EventStream(app, "", blue, "192.0.2.2") as other,
            EventStream(app) as owner,
        ):
            for tenant in ("red", "blue"):
                await asyncio.to_thread(lives, plane, tenant)
            await asyncio.to_thread(plane.look, HOST)
            for stream in (one, other):
                await stream.until(partial(removed, stream))
            await owner.until(lambda: {"red", "blue"} <= {event["tenant"] for event in owner.events})
            own_of(one, "red", "blue")
            own_of(other, "blue", "red")
            assert HOST in {event["host"] for event in owner.events}
        async with EventStream(app, "last=1000&wait=0", red, "192.0.2.1") as later:
            await later.ended()
            assert removed(later)
            own_of(later, "red", "blue")

    def removed(stream: EventStream) -> bool:
        return any((event["noun"], event["change"]) == ("vm", "removed") for event in stream.events)

    def own_of(stream: EventStream, tenant: str, sibling: str) -> None:
        assert {event["tenant"] for event in stream.events} == {tenant}
        assert {event["host"] for event in stream.events} == {None}
        assert {"vm", "operation"} <= {event["noun"] for event in stream.events}
        values = [text for event in stream.events for text in (*event.values(), *event["details"].values())]
        assert not [text for text in values if isinstance(text, str) and (sibling in text or HOST in text.split())]

    asyncio.run(course())


def test_what_is_asked_for_of_another_tenant_is_unknown(plane: ControlPlane) -> None:
    app = app_of(plane)
    _, red = token_of(plane, "red")

    async def course() -> None:
        for tenant in ("blue", "nobody"):
            async with EventStream(app, f"tenant={tenant}", red, "192.0.2.1") as stream:
                await stream.ended()
                assert (stream.status, stream.problem()["code"]) == (404, "tenant.unknown")
        async with EventStream(app, "", (), "192.0.2.1") as stranger:
            await stranger.ended()
            assert (stranger.status, stranger.problem()["code"]) == (401, "token.missing")

    asyncio.run(course())


def by_token(plane: ControlPlane) -> tuple[list[tuple[bytes, bytes]], str, Callable[[], object]]:
    token, headers = token_of(plane, "red")
    return headers, "192.0.2.1", lambda: plane.services.tenancy.tokens.revoke("red", token)


def by_uid(plane: ControlPlane) -> tuple[list[tuple[bytes, bytes]], str, Callable[[], object]]:
    tenants, subject = plane.services.tenancy.tenants, f"uid:{MEMBER}"
    tenants.put_member(Member(tenant="red", subject=subject, role="read-only"))
    return [], subject, lambda: tenants.remove_member("red", subject)


@pytest.mark.parametrize("by", [by_token, by_uid])
def test_a_stream_ends_with_the_right_to_it(
    plane: ControlPlane, by: Callable[[ControlPlane], tuple[list[tuple[bytes, bytes]], str, Callable[[], object]]]
) -> None:
    headers, client, revoke = by(plane)

    async def course() -> None:
        async with EventStream(app_of(plane), "", headers, client) as stream:
            await asyncio.to_thread(revoke)
            await stream.ended()
            assert stream.status == 200

    asyncio.run(course())


def test_who_is_no_longer_a_member_of_one_tenant_is_told_of_the_other_alone(plane: ControlPlane) -> None:
    tenants, subject = plane.services.tenancy.tenants, f"uid:{MEMBER}"
    for tenant in ("red", "blue"):
        tenants.put_member(Member(tenant=tenant, subject=subject, role="read-only"))

    async def course() -> None:
        app = app_of(plane)
        async with EventStream(app, "noun=vm", (), subject) as stream:
            await asyncio.to_thread(lives, plane, "red")
            await stream.until(lambda: any(event["change"] == "removed" for event in stream.events))
            before = len(stream.events)
            await asyncio.to_thread(tenants.remove_member, "red", subject)
            await asyncio.sleep(2.1)  # orchestrator/api/auth.py, ASK_AGAIN_S
            await asyncio.to_thread(lives, plane, "red")
            await asyncio.to_thread(lives, plane, "blue")
            await stream.until(lambda: any(event["tenant"] == "blue" for event in stream.events))
            assert {event["tenant"] for event in stream.events[before:]} == {"blue"}

    asyncio.run(course())
