# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from starlette.testclient import TestClient
from starlette.types import ASGIApp

from orchestrator.api.app import create_app
from orchestrator.api.limits import Activity
from orchestrator.api.loopback import Loopback
from orchestrator.api.services import Process
from orchestrator.core.tenancy.access import Role
from orchestrator.oidc.identities import OidcIdentities
from orchestrator.web.pages import pages_beside
from tests.contract.api.real_app import AsPeer, furnished_plane
from tests.fakes.control_plane import ControlPlane

ORIGIN = "https://pool.test"
FROM_A_PAGE = {"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"}


@dataclass(frozen=True)
class Site:
    """The pages and the API over a plane's services."""

    plane: ControlPlane
    app: ASGIApp
    loopback: Loopback

    def token(self, tenant: str, role: Role) -> str:
        return self.plane.services.tenancy.tokens.create(tenant, role, None)[1]

    def browser(self) -> TestClient:
        """One that nobody has logged in with."""
        return TestClient(self.app, base_url=ORIGIN, follow_redirects=False)

    def logged_in(self, token: str) -> TestClient:
        browser = self.browser()
        answer = browser.post("/web/login", data={"token": token}, headers=FROM_A_PAGE)
        assert (answer.status_code, answer.headers["location"]) == (303, "/web/map"), answer.text
        return browser

    def api(self, token: str) -> TestClient:
        return TestClient(self.app, base_url=ORIGIN, headers={"Authorization": f"Bearer {token}"})

    def local_command(self, uid: int | None = None) -> TestClient:
        """As the command line asks over the unix socket; None: the server's owner's."""
        return TestClient(AsPeer(self.app, os.geteuid() if uid is None else uid), base_url=ORIGIN)


def local_browser(site: Site, uid: int | None = None) -> TestClient:
    """One at the port of this machine alone, opened by 'vgpuctl web'; None: for the server's owner."""
    given = site.local_command(uid).post("/web/tickets").json()
    assert site.loopback.serves is not None
    browser = TestClient(site.loopback.serves, base_url=given["address"], follow_redirects=False)
    answer = browser.post("/web/ticket", data={"ticket": given["ticket"]}, headers={"Sec-Fetch-Site": "same-origin"})
    assert answer.headers["location"] == "/web/map", answer.text
    browser.headers["Cookie"] = answer.headers["set-cookie"].partition(";")[0]  # secure ones are sent over TLS alone
    return browser


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with site_with(tmp_path, None) as made:
        yield made


@contextmanager
def site_with(state: Path, provider: OidcIdentities | None) -> Iterator[Site]:
    plane = furnished_plane(state)  # a running VM default/train, hosts t4 and l40s
    if provider is not None:
        access = replace(plane.services.tenancy.access, identities=provider)
        plane = replace(plane, services=replace(plane.services, tenancy=replace(plane.services.tenancy, access=access)))
    process = Process(started_at=time.time(), idle_seconds=None, activity=Activity())
    api = create_app(plane.services, process)
    loopback = Loopback(lambda _app, listener: listener.close())
    yield Site(plane, pages_beside(Fernet.generate_key(), plane.store, provider)(api, loopback), loopback)
    plane.store.close()
