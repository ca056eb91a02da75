# SPDX-License-Identifier: Apache-2.0
"""Domain life-cycle events as they happen. They may get lost: observing is what counts, this only makes it sooner."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import libvirt

from orchestrator.agent.libvirt.connection import Libvirt

Event = dict[str, object]

_MAX_WAITING = 1000

_NAMES = {
    libvirt.VIR_DOMAIN_EVENT_DEFINED: "defined",
    libvirt.VIR_DOMAIN_EVENT_UNDEFINED: "undefined",
    libvirt.VIR_DOMAIN_EVENT_STARTED: "started",
    libvirt.VIR_DOMAIN_EVENT_SUSPENDED: "suspended",
    libvirt.VIR_DOMAIN_EVENT_RESUMED: "resumed",
    libvirt.VIR_DOMAIN_EVENT_STOPPED: "stopped",
    libvirt.VIR_DOMAIN_EVENT_SHUTDOWN: "shutdown",
    libvirt.VIR_DOMAIN_EVENT_PMSUSPENDED: "pm_suspended",
    libvirt.VIR_DOMAIN_EVENT_CRASHED: "crashed",
}


@contextmanager
def subscribed(host: Libvirt) -> Iterator[queue.Queue[Event]]:
    """A queue that life-cycle events come into.

    :raises Retryable: ``libvirt.unreachable``
    """
    waiting: queue.Queue[Event] = queue.Queue(_MAX_WAITING)
    connection = host.open()

    def arrived(_connection: Any, domain: Any, event: int, _detail: int, _opaque: object) -> None:
        _put(waiting, {"kind": "domain", "vm": domain.UUIDString().lower(), "what": _NAMES.get(event, str(event))})

    def closed(_connection: Any, _reason: int, _opaque: object) -> None:
        _put(waiting, {"kind": "libvirt_closed"})

    try:
        connection.registerCloseCallback(closed, None)
        callback = connection.domainEventRegisterAny(None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE, arrived, None)
        try:
            yield waiting
        finally:
            if connection.isAlive():
                connection.domainEventDeregisterAny(callback)
    finally:
        connection.close()


def _put(waiting: queue.Queue[Event], event: Event) -> None:
    """Never blocks libvirt's event loop: with a reader that slow, events are lost."""
    if not waiting.full():
        waiting.put_nowait(event)
