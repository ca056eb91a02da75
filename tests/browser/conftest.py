# SPDX-License-Identifier: Apache-2.0
"""A real browser in front of a real server whose hosts live in memory."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from orchestrator.client.client import Client
from tests.fakes.simulated import serving_fleet, wish

PROFILE = "GRID T4-4Q"
FLEET = """\
groups:
  - name: t4
    count: 2
    gpu_model: Tesla T4
    gpus_per_host: 2
    vcpus: 64
    memory_gib: 256
  - name: l40s
    count: 1
    gpu_model: L40S
    gpus_per_host: 4
    vcpus: 128
    memory_gib: 512
"""
EVIL = "<img src=x onerror=alert(1)>"
"""A description that a tenant's admin wrote."""
TIMEOUT_MS = 60_000
"""Machines are shared: what is waited for may be late, and comes."""
expect.set_options(timeout=TIMEOUT_MS)
BREAKS_RULES = ("Content Security Policy", "TrustedHTML", "hx-csp", "Uncaught")


@dataclass
class Visitor:
    """A person at a browser; ``said``: what the console told of broken rules."""

    context: BrowserContext
    page: Page
    base: str
    said: list[str] = field(default_factory=list)

    def visit(self, path: str) -> Page:
        self.page.goto(f"{self.base}/web/{path}")
        return self.page

    def see(self, text: str) -> None:
        self.page.get_by_text(text, exact=False).first.wait_for(timeout=TIMEOUT_MS)


Arrive = Callable[..., Visitor]


@dataclass(frozen=True)
class ServedSite:
    client: Client

    def ticket(self) -> tuple[str, str]:
        """Address of the pages, and a ticket."""
        given = self.client.web_ticket()
        return given["address"], given["ticket"]

    def token(self, tenant: str, role: str) -> tuple[str, str]:
        """Its id and text."""
        made = self.client.create_token({"tenant": tenant, "role": role})
        return made["about"]["id"], made["token"]


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedSite]:
    with serving_fleet(tmp_path_factory.mktemp("site"), FLEET) as client:
        client.create_tenant("vision")
        client.describe_tenant("vision", {"description": EVIL})
        client.change_quota("vision", {"vms": 1})
        for name in ("train", "infer"):
            client.wait(client.create_vm(wish(name, PROFILE)))
        yield ServedSite(client)


@contextmanager
def started_chromium() -> Iterator[Browser]:
    """Debian's."""
    program = shutil.which("chromium") or shutil.which("chromium-headless-shell")
    assert program is not None, "packages/dev.txt has the browser"
    with sync_playwright() as driver:
        started = driver.chromium.launch(
            executable_path=program, args=["--no-sandbox"], env={**os.environ, "HOME": os.environ.get("HOME", "/tmp")}
        )
        yield started
        started.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """Not for the session: while the driver stands, this thread has a running event loop, and whatever else the same
    worker is given cannot begin one."""
    with started_chromium() as started:
        yield started


@pytest.fixture
def arrive(site: ServedSite, chromium: Browser) -> Iterator[Arrive]:
    """``arrive()``: by a local user's ticket; ``token=``: with one that is pasted; ``script=False``: without script."""
    contexts: list[BrowserContext] = []

    def begin(*, token: str | None = None, script: bool = True, width: int = 1280) -> Visitor:
        context = chromium.new_context(java_script_enabled=script, viewport={"width": width, "height": 900})
        context.set_default_timeout(TIMEOUT_MS)
        contexts.append(context)
        base, ticket = site.ticket()
        visitor = Visitor(context, context.new_page(), base)
        visitor.page.on("console", lambda message: _note(visitor, message))
        visitor.page.on("pageerror", lambda error: visitor.said.append(str(error)))
        if token is not None:
            visitor.visit("login").get_by_label("Token").fill(token)
            visitor.page.get_by_role("button", name="Log in").click()
        elif script:
            visitor.visit(f"ticket#{ticket}")
        else:
            visitor.visit("ticket").get_by_label("Ticket").fill(ticket)
            visitor.page.get_by_role("button", name="Log in").click()
        visitor.page.wait_for_url("**/web/map")
        return visitor

    yield begin
    for context in contexts:
        context.close()


def _note(visitor: Visitor, message: ConsoleMessage) -> None:
    if any(word in message.text for word in BREAKS_RULES):
        visitor.said.append(message.text)


@pytest.fixture(scope="session")
def axe() -> str:
    return (Path(__file__).parent / "vendor/axe.min.js").read_text(encoding="utf-8")
