# SPDX-License-Identifier: Apache-2.0
"""Addresses that are told what happens: who asks for it, and the telling."""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from orchestrator.core.errors import Conflict, InvalidInput, NotFound, WorldError
from orchestrator.core.event import EventIds, FleetEvent, Noun
from orchestrator.core.names import check_name, near
from orchestrator.core.tenancy.access import EVERYWHERE
from orchestrator.core.webhook import ANSWERED, MAX_OF_TENANT, Webhook, after_failure, check_url, due, signature
from orchestrator.ports.clock import Clock, Ids
from orchestrator.ports.timers import TimerHealth
from orchestrator.ports.webhooks import WebhookSender
from orchestrator.services.acting import actor
from orchestrator.services.events import EventService
from orchestrator.services.tenancy.tenants import known_tenant
from orchestrator.store.database import Store
from orchestrator.store.transaction import Transaction
from orchestrator.store.webhooks import secret_id

_SECRET_BYTES: Final = 32
_AT_ONCE: Final = 8
"""Addresses that are told side by side."""
_IN_A_ROUND: Final = 50
"""Events of one address, so that its place is written down."""
_TURN_S: Final = 10.0
"""After so long an address that is slow to answer leaves its thread to the others."""
ROUND_S: Final = 1.0
"""How often it is asked whether there is something to tell."""
_NAMED: Final = 5
_TEST: Final = {"noun": "test"}


@dataclass(kw_only=True)
class WebhookService:
    """Those of a site."""

    store: Store
    clock: Clock
    ids: Ids
    events: EventService
    sender: WebhookSender

    def create(self, tenant: str, name: str, url: str, nouns: Sequence[Noun]) -> tuple[Webhook, str]:
        """It and its secret, which nothing shows again. It is told what happens from now on.

        :raises InvalidInput: ``webhook.name_invalid``, ``webhook.url_invalid``, ``webhook.address_refused``
        :raises NotFound: ``tenant.unknown``; :raises Conflict: ``webhook.exists``, ``webhook.too_many``
        """
        self.sender.check(check_url(url))
        now, secret = self.clock.now(), secrets.token_urlsafe(_SECRET_BYTES)
        webhook = Webhook(
            id=self.ids.new_uuid(), tenant=tenant, name=check_name(name, what="webhook"), url=url,
            nouns=tuple(sorted(set(nouns))), created_at=now, position=self.events.end(),
        )  # fmt: skip
        with self.store.begin() as tx:
            if tenant != EVERYWHERE:
                known_tenant(tx, tenant)
            if tx.webhooks.find(tenant, name) is not None:
                raise Conflict(
                    "webhook.exists",
                    f"there is already a webhook {name}",
                    hint="delete it first, or choose another name",
                )
            if len(tx.webhooks.list(tenant)) >= MAX_OF_TENANT:
                raise Conflict(
                    "webhook.too_many", f"there are {MAX_OF_TENANT} webhooks already", hint="delete one of them"
                )
            tx.webhooks.add(webhook)
            tx.secrets.put(secret_id(webhook.id), secret)
            self._note(tx, "create_webhook", webhook)
        return webhook, secret

    def list(self, tenant: str) -> tuple[Webhook, ...]:
        """By name. :raises NotFound: ``tenant.unknown``"""
        with self.store.read() as tx:
            if tenant != EVERYWHERE:
                known_tenant(tx, tenant)
            return tx.webhooks.list(tenant)

    def get(self, tenant: str, name: str) -> Webhook:
        """:raises NotFound: ``webhook.unknown``"""
        with self.store.read() as tx:
            return _known(tx, tenant, name)

    def delete(self, tenant: str, name: str) -> None:
        """:raises NotFound: ``webhook.unknown``"""
        with self.store.begin() as tx:
            webhook = _known(tx, tenant, name)
            tx.webhooks.remove(webhook.id)
            self._note(tx, "delete_webhook", webhook)

    def test(self, tenant: str, name: str) -> None:
        """Send one request now; when it is taken, a dead one is told again from where it was.

        :raises NotFound: ``webhook.unknown``; :raises Retryable: ``webhook.failed``
        :raises InvalidInput: ``webhook.address_refused``
        """
        webhook = self.get(tenant, name)
        with self.store.read() as tx:
            secret = tx.secrets.get(secret_id(webhook.id))
        send(self.sender, webhook, secret, self.clock.now(), "test", {**_TEST, "name": name})
        with self.store.begin() as tx:
            tx.webhooks.change(webhook.id, **ANSWERED)

    def _note(self, tx: Transaction, action: str, webhook: Webhook) -> None:
        subject = f"{webhook.tenant}/{webhook.name}"
        tx.audit.append(at=self.clock.now(), actor=actor(), action=action, subject=subject, outcome="done")


@dataclass(kw_only=True)
class WebhookDelivery:
    """The telling, by the one controller that ``leads``. An event may be told twice: after a crash, or when its answer
    was lost."""

    store: Store
    clock: Clock
    events: EventService
    sender: WebhookSender
    leads: Callable[[], bool]
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(_AT_ONCE, "webhook"))
    _busy: set[str] = field(default_factory=set)
    _dead: tuple[Webhook, ...] = ()

    def round(self) -> None:
        """Begin with each that is due and that nobody is at; returns without waiting for them."""
        with self.store.read() as tx:
            webhooks = tx.webhooks.list()
        self._dead = tuple(webhook for webhook in webhooks if webhook.dead)
        if not self.leads():
            return
        waiting = [webhook for webhook in due(webhooks, self.clock.now()) if webhook.id not in self._busy]
        if not waiting:
            return
        end = self.events.end()
        for webhook in waiting:
            if webhook.position < end:
                self._busy.add(webhook.id)
                self.pool.submit(self._tell, webhook, end)

    def health(self) -> TimerHealth:
        """Names those that nothing is sent to any more."""
        tests = [f"vgpuctl webhook test {its.name} --tenant {shlex.quote(its.tenant)}" for its in self._dead[:_NAMED]]
        error = (
            f"{len(self._dead)} have not answered for a day, nothing is sent there any more; when they answer again: "
        )
        return TimerHealth(
            name="dead webhooks", every_s=ROUND_S, good_ago_s=0.0, failed=0,
            error=error + "; ".join(tests) if tests else None,
        )  # fmt: skip

    def close(self) -> None:
        """Nothing more begins; what is under way ends by itself."""
        self.pool.shutdown(wait=False, cancel_futures=True)

    def _tell(self, webhook: Webhook, end: int) -> None:
        try:
            self._tell_events(webhook, end)
        finally:
            self._busy.discard(webhook.id)

    def _tell_events(self, webhook: Webhook, end: int) -> None:
        page = self.events.page(webhook.position, end, webhook.only)
        until = self.clock.monotonic() + _TURN_S
        with self.store.read() as tx:
            secret = tx.secrets.find(secret_id(webhook.id))
        if secret is None:
            return  # it was deleted
        delivered, failure = max(webhook.position, page.pruned), None
        try:
            if webhook.position < page.pruned:
                gap = {"noun": "gap", "reason": "forgotten"}
                send(self.sender, webhook, secret, self.clock.now(), self.events.ids.of(page.pruned), gap)
            for event in page.events[:_IN_A_ROUND]:
                if self.clock.monotonic() >= until:
                    break
                event_id = self.events.ids.of(event.number)
                body = event_body(event, self.events.ids, watching=webhook.tenant == EVERYWHERE)
                send(self.sender, webhook, secret, self.clock.now(), event_id, body)
                delivered = event.number
            else:
                delivered = end if len(page.events) < _IN_A_ROUND else delivered
        except (WorldError, InvalidInput) as error:
            failure = error
            delivered = delivered if delivered != page.pruned else webhook.position
        values = ANSWERED if failure is None else after_failure(webhook, _why(failure), self.clock.now())
        with self.store.begin() as tx:
            tx.webhooks.change(webhook.id, position=delivered, **values)


def event_body(event: FleetEvent, ids: EventIds, *, watching: bool) -> dict[str, Any]:
    """As GET /v1/events tells it."""
    at = datetime.fromtimestamp(round(event.at, 3), UTC).isoformat().replace("+00:00", "Z")
    change = asdict(event.change)
    return {"id": ids.of(event.number), "at": at, **change, "host": change["host"] if watching else None}


def send(sender: WebhookSender, webhook: Webhook, secret: str, now: float, event_id: str, body: dict[str, Any]) -> None:
    """One request, signed."""
    text = json.dumps(body).encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "vgpuctl",
        "Vgpuctl-Event": event_id,
        "Vgpuctl-Signature": signature(secret, int(now), text),
    }
    sender.send(webhook.url, headers, text)


def _why(error: WorldError | InvalidInput) -> str:
    return error.message if error.details is None else f"{error.message}: {error.details}"


def _known(tx: Transaction, tenant: str, name: str) -> Webhook:
    webhook = tx.webhooks.find(tenant, name)
    if webhook is None:
        names = [known.name for known in tx.webhooks.list(tenant)]
        raise NotFound(
            "webhook.unknown", f"no webhook is called {name[:63]!a}", hint=near(name, names, "vgpuctl webhook list")
        )
    return webhook
