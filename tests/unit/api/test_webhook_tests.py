# SPDX-License-Identifier: Apache-2.0
"""Tests of addresses that do not answer hold up nobody who asks the server for something else."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Mapping
from pathlib import Path

import anyio.to_thread
import httpx2

from orchestrator.api.app import create_app
from orchestrator.api.limits import Activity
from orchestrator.api.services import Process
from tests.fakes.control_plane import ControlPlane, plane_with
from tests.fakes.webhooks import FakeSender

TESTS = 12


class HangingSender(FakeSender):
    """Until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = threading.Event()
        self.let_go = threading.Event()

    def send(self, url: str, headers: Mapping[str, str], body: bytes) -> None:
        self.asked.set()
        self.let_go.wait(30)
        super().send(url, headers, body)


async def _threads_of_tests(plane: ControlPlane, sender: HangingSender) -> float:
    """How many of those that serve requests they hold; they have ended then."""
    app = create_app(plane.services, Process(started_at=0, idle_seconds=None, activity=Activity()))
    own = httpx2.ASGITransport(app=app, client=(f"uid:{os.geteuid()}", 1))
    async with httpx2.AsyncClient(transport=own, base_url="https://server") as client:
        tests = [asyncio.ensure_future(client.post("/v1/webhooks/hook/test")) for _ in range(TESTS)]
        await asyncio.to_thread(sender.asked.wait, 30)
        assert (await client.get("/v1/whoami")).status_code == 200
        held = anyio.to_thread.current_default_thread_limiter().borrowed_tokens
        sender.let_go.set()
        assert {(await test).status_code for test in tests} == {204}
    return held


def test_tests_of_an_address_that_hangs_hold_no_thread_that_serves_requests(tmp_path: Path) -> None:
    with plane_with(tmp_path) as plane:
        sender = HangingSender()
        plane.services.webhooks.sender = sender
        plane.services.webhooks.create("default", "hook", "https://example.org/hook", [])
        assert asyncio.run(_threads_of_tests(plane, sender)) == 0
        assert len(sender.taken) == TESTS
