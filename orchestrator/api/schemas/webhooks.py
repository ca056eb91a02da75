# SPDX-License-Identifier: Apache-2.0
"""Bodies about webhooks."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from orchestrator.api.schemas.base import AnswerBody, CopiedAnswer, Moment, Name
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.event import NOUNS, Noun
from orchestrator.core.webhook import MAX_URL, Webhook


class CreateWebhookBody(StrictForm):
    """An address that is told what happens from now on."""

    model_config = ConfigDict(
        title="CreateWebhook",
        json_schema_extra={"examples": [{"name": "chat", "url": "https://example.org/hook", "nouns": ["vm"]}]},
    )

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
