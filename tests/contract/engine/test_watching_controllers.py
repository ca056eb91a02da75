# SPDX-License-Identifier: Apache-2.0
"""Whoever watches the fleet at any controller is told all of it, also when one dies that it was watched at."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

from orchestrator.client.autostart import connect_running
from orchestrator.core.errors import Retryable, Unknown
from orchestrator.core.event import EventFilter
from tests.contract.engine.live_site import LIMIT_S, Site, created
from tests.fakes.control_plane import create_vm
from tests.fakes.running import client_of
from tests.fakes.several import until


class Reader(threading.Thread):
    """Watches at one server after the other, each until it is gone; ends when the VM called so is removed."""

    def __init__(self, site: Site, servers: list[str], last: str) -> None:
        super().__init__(daemon=True)
        self.ids, self.began = list[str](), threading.Event()
        self._site, self._servers, self._last = site, servers, last
        self.start()

    def run(self) -> None:
        for server in self._servers:
            client = client_of(self._site.state(server))
            reader = client.connection.open_events({}, self.ids[-1] if self.ids else None)
            self.began.set()
            try:
                while (event := client.connection.next_event(reader)) is not None:
                    if "noun" not in event:
                        continue
                    self.ids.append(event["id"])
                    if (event["noun"], event["name"], event["change"]) == ("vm", self._last, "removed"):
                        return
            except (Retryable, Unknown):
                continue


def test_nothing_is_lost_and_nothing_out_of_order_when_a_controller_dies_that_somebody_watches_at(
    site_on: Callable[[str], Site],
) -> None:
    site = site_on("postgresql")
    both = {name: site.server(name, "kill", "after", "MakeVgpu") for name in ("one", "two")}
    until(lambda: all(connect_running(site.state(name)) is not None for name in ("one", "two")))
    readers = [Reader(site, servers, "last") for servers in (["one", "two"], ["two", "one"])]
    for reader in readers:
        assert reader.began.wait(LIMIT_S)
    with site.plane.store.begin() as tx:
        start = tx.events.newest()
    operation = str(site.plane.services.vms.create(create_vm("first")).operation)
    until(lambda: any(server.poll() is not None for server in both.values()))
    [dead] = [name for name, server in both.items() if server.poll() is not None]
    assert both.pop(dead).wait(LIMIT_S) == -signal.SIGKILL
    [alive] = both
    assert site.finished(operation).state == "done"
    site.finished(created(site, alive, "last"))
    with client_of(site.state(alive)) as client:
        site.finished(str(client.delete_vm("last", "default")["operation"]))
    for reader in readers:
        reader.join(LIMIT_S)
    events = site.plane.services.events
    with site.plane.store.read() as tx:
        stored = [events.ids.of(event.number) for event in tx.events.between(start, 2**62, EventFilter(), most=10_000)]
    assert stored
    for reader in readers:
        after = [one for one in reader.ids if events.ids.number(one) > start]
        assert after == stored[: len(after)]
        removed = [event for event in _changes(site, after) if event == ("vm", "last", "removed")]
        assert removed == [("vm", "last", "removed")]


def _changes(site: Site, ids: list[str]) -> list[Any]:
    numbers = {site.plane.services.events.ids.number(one) for one in ids}
    with site.plane.store.read() as tx:
        page = tx.events.between(0, 2**62, EventFilter(), most=10_000)
    return [(one.change.noun, one.change.name, one.change.change) for one in page if one.number in numbers]
