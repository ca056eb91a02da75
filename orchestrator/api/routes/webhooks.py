# SPDX-License-Identifier: Apache-2.0
"""/v1/webhooks"""

from __future__ import annotations

from typing import Final

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter
from pydantic import Field

from orchestrator.api.paging import PagingOf
from orchestrator.api.schemas.base import AnswerBody, CopiedAnswer, Moment, Name, NameInPath
from orchestrator.api.services import ServicesOf, TenantOf
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.event import NOUNS, Noun
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT
from orchestrator.core.webhook import MAX_URL, Webhook


class CreateWebhookBody(StrictForm, example={"name": "chat", "url": "https://example.org/hook", "nouns": ["vm"]}):
    """An address that is told what happens from now on."""

    name: Name
    """What it is called."""
    url: str = Field(max_length=MAX_URL)
    """Where events are sent; https, a public address."""
    tenant: str = Field(default="default", max_length=255)
    """Whose events; *: everybody's and the pool's."""
    nouns: list[Noun] = Field(default=[], max_length=len(NOUNS))
    """Only about these; empty: about everything."""


class WebhookAnswer(CopiedAnswer, copies=Webhook, without={"position"}):
    """An address that is told what happens."""

    created_at: Moment
    failing_since: Moment | None
    next_at: Moment
    """While it fails it is not told anything before then."""


class NewWebhookAnswer(AnswerBody):
    """The only answer that holds the secret."""

    secret: str
    """What requests are signed with, which no other answer shows."""
    webhook: WebhookAnswer
    """The webhook as lists show it."""


router = APIRouter(prefix="/webhooks", tags=["webhooks"])

_TESTS: Final = CapacityLimiter(4)
"""Threads that wait for addresses, so that none of those that serve requests does."""


@router.post("", status_code=201)
def create(body: CreateWebhookBody, services: ServicesOf) -> NewWebhookAnswer:
    """Create a webhook. This answer is the only one that shows its secret."""
    webhook, secret = services.webhooks.create(body.tenant, body.name, body.url, body.nouns)
    return NewWebhookAnswer(secret=secret, webhook=WebhookAnswer.of(webhook))


@router.get("")
def list_all(services: ServicesOf, paging: PagingOf, tenant: TenantOf = DEFAULT_TENANT) -> list[WebhookAnswer]:
    """List webhooks. The tenant's by name."""
    webhooks = paging.cut(services.webhooks.list(tenant), lambda webhook: (webhook.name,))
    return [WebhookAnswer.of(webhook) for webhook in webhooks]


@router.get("/{name}")
def get(name: NameInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT) -> WebhookAnswer:
    """Get a webhook. With what came of the last request."""
    return WebhookAnswer.of(services.webhooks.get(tenant, name))


@router.delete("/{name}", status_code=204)
def delete(name: NameInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT) -> None:
    """Delete a webhook. It is told nothing more."""
    services.webhooks.delete(tenant, name)


@router.post("/{name}/test", status_code=204)
async def send_test(name: NameInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT) -> None:
    """Test a webhook. Send one request now; a dead one goes on when it is taken."""
    await to_thread.run_sync(services.webhooks.test, tenant, name, limiter=_TESTS)
