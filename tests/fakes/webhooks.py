# SPDX-License-Identifier: Apache-2.0
"""Addresses that take events, or do not."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.core.errors import Retryable
from orchestrator.core.event import EventIds
from orchestrator.core.vms.vm import Vm
from orchestrator.ports.clock import Ids
from orchestrator.services.events import EventService
from orchestrator.services.webhooks import WebhookService
from orchestrator.store.database import Store
from tests.fakes.fake_world import FakeClock
from tests.fakes.tenancy import KEY


class FakeSender:
    """``down``: addresses that take nothing. ``answers``: called before each answer."""

    def __init__(self) -> None:
        self.down = set[str]()
        self.answers: Callable[[], object] = tuple
        self.taken: list[tuple[str, Mapping[str, str], bytes]] = []

    def check(self, url: str) -> None:
        """All may be asked."""

    def send(self, url: str, headers: Mapping[str, str], body: bytes) -> None:
        self.answers()
        if url in self.down:
            raise Retryable("webhook.failed", "the address did not take the event", details="it is down", hint="wait")
        self.taken.append((url, headers, body))

    def events(self, url: str) -> list[dict[str, Any]]:
        return [json.loads(body) for taken, _, body in self.taken if taken == url]


def watched(store: Store, ids: Ids) -> tuple[EventService, WebhookService]:
    """What happens in that store, and who is told."""
    events = EventService(store=store, ids=EventIds(KEY))
    return events, WebhookService(store=store, clock=FakeClock(), ids=ids, events=events, sender=FakeSender())


def telling(store: Store) -> Callable[[Vm], None]:
    """Has those who watch told of a VM's new state, as that store does it for VMs of its own."""

    def tell(vm: Vm) -> None:
        with store.begin() as tx:
            tx.events.note("vm", vm.spec.name, "state", tenant=vm.spec.tenant, subject=vm.id, state=vm.state)

    return tell
