# SPDX-License-Identifier: Apache-2.0
"""Addresses that are told what happens, and up to where each was told."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy import delete, insert, literal, select, update

from orchestrator.core.webhook import Webhook
from orchestrator.store.statements import AnyRow, Statements
from orchestrator.store.tables import secrets, webhooks

_ROW = "webhook:"
"""How ids of their secrets begin."""


def secret_id(webhook_id: str) -> str:
    """Under which the secret of one is kept."""
    return f"{_ROW}{webhook_id}"


class Webhooks:
    """Of tenants, and of the pool (``*``)."""

    def __init__(self, db: Statements) -> None:
        self._db = db

    def add(self, webhook: Webhook) -> None:
        self._db.execute(insert(webhooks).values({**asdict(webhook), "nouns": list(webhook.nouns)}))

    def find(self, tenant: str, name: str) -> Webhook | None:
        its = select(webhooks).where(webhooks.c.tenant == tenant, webhooks.c.name == name)
        row = self._db.execute(its).one_or_none()
        return None if row is None else _webhook_of(row)

    def list(self, tenant: str | None = None) -> tuple[Webhook, ...]:
        """By tenant and name. None: all."""
        query = select(webhooks).order_by(webhooks.c.tenant, webhooks.c.name)
        if tenant is not None:
            query = query.where(webhooks.c.tenant == tenant)
        return tuple(map(_webhook_of, self._db.execute(query)))

    def change(self, webhook_id: str, **values: Any) -> None:
        """Gone already is fine."""
        self._db.execute(update(webhooks).where(webhooks.c.id == webhook_id).values(**values))

    def remove(self, webhook_id: str) -> None:
        """With its secret. Gone already is fine."""
        self._db.execute(delete(secrets).where(secrets.c.id == secret_id(webhook_id)))
        self._db.execute(delete(webhooks).where(webhooks.c.id == webhook_id))

    def remove_of(self, tenant: str) -> None:
        """All of the tenant, with their secrets."""
        its = select(literal(_ROW) + webhooks.c.id).where(webhooks.c.tenant == tenant)
        self._db.execute(delete(secrets).where(secrets.c.id.in_(its)))
        self._db.execute(delete(webhooks).where(webhooks.c.tenant == tenant))


def _webhook_of(row: AnyRow) -> Webhook:
    return Webhook(**{**row._asdict(), "nouns": tuple(row.nouns)})
