# SPDX-License-Identifier: Apache-2.0
"""A real browser over TLS, sent to an identity provider at another origin and back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import BREAKS_RULES, FLEET, TIMEOUT_MS
from tests.fakes.certificate import over_tls
from tests.fakes.oidc_provider import CLIENT, OidcProvider, oidc_provider
from tests.fakes.running import client_of, running_server


@pytest.fixture(scope="module")
def provider() -> Iterator[OidcProvider]:
    with oidc_provider() as one:
        yield one


@pytest.fixture(scope="module")
def base(provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server where ann is a member."""
    directory = tmp_path_factory.mktemp("over_tls")
    (directory / "fleet.yaml").write_text(FLEET)
    tls = over_tls(directory)
    words = ("--simulate", str(directory / "fleet.yaml"), *tls.words)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("VGPUCTL_OIDC_ISSUER", provider.issuer)
        patched.setenv("VGPUCTL_OIDC_CLIENT_ID", CLIENT)
        with running_server(directory / "s", *words, module="orchestrator.server.serve") as state:
            with client_of(state) as client:
                client.put_member("*", "oidc:sub:ann", "read-only")
            yield tls.url


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    context = chromium.new_context(ignore_https_errors=True)
    context.set_default_timeout(TIMEOUT_MS)
    yield context.new_page()
    context.close()


def test_a_browser_logs_in_at_the_provider_and_out_again(base: str, provider: OidcProvider, page: Page) -> None:
    broken: list[str] = []
    page.on("console", lambda message: broken.append(message.text))
    provider.claims = {"groups": [f"group-{number:04}-of-a-large-company" for number in range(150)]}
    page.goto(f"{base}/web/hosts")
    page.get_by_role("link", name="Log in at 127.0.0.1").click()
    page.wait_for_url(f"{base}/web/hosts")
    expect(page.get_by_text("oidc:sub:ann")).to_be_visible()
    expect(page.get_by_role("link", name="t4-0")).to_be_visible()
    cookies = {cookie["name"]: cookie for cookie in page.context.cookies()}
    assert sorted(cookies) == ["__Host-vgpuctl", "__Host-vgpuctl-2", "__Host-vgpuctl-3"]
    assert all(cookie["httpOnly"] and cookie["secure"] and cookie["sameSite"] == "Lax" for cookie in cookies.values())
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("link", name="Log out at 127.0.0.1, too")).to_be_visible()
    assert page.context.cookies() == []
    assert [text for text in broken if any(word in text for word in BREAKS_RULES)] == []


def test_a_refusal_of_the_provider_stands_beside_the_login(base: str, provider: OidcProvider, page: Page) -> None:
    provider.refuses = True
    page.goto(f"{base}/web/map")
    page.get_by_role("link", name="Log in at 127.0.0.1").click()
    expect(page.get_by_role("alert")).to_contain_text("<b>not</b> today")
    provider.refuses = False
    page.get_by_role("link", name="Log in at 127.0.0.1").click()
    page.wait_for_url(f"{base}/web/map")
