# SPDX-License-Identifier: Apache-2.0
"""The application over the real services and a real SQLite database, called in this process as the owner would.

Only the hosts are not real: they live in memory (tests/fakes/fake_host.py).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from starlette.types import ASGIApp, Receive, Scope, Send

from orchestrator.api.app import create_app
from orchestrator.api.limits import Activity
from orchestrator.api.services import Process
from orchestrator.ports.timers import TimerHealth
from tests.fakes.control_plane import ControlPlane, control_plane, create_vm


class AsPeer:
    """ASGI middleware: what the unix socket says of its peer (api/protocols.py), said of every request."""

    def __init__(self, app: ASGIApp, uid: int) -> None:
        self._app, self._uid = app, uid

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, "client": (f"uid:{self._uid}", 1)}, receive, send)


def furnished_plane(state: Path) -> ControlPlane:
    """Two hosts and a running VM."""
    plane = control_plane(state)
    plane.add_host("t4")
    plane.add_host("l40s")
    plane.services.vms.create(create_vm("train"))
    plane.engine.drain()
    return plane


def real_app(plane: ControlPlane, uid: int | None = None, timers: tuple[TimerHealth, ...] = ()) -> ASGIApp:
    """The application over a plane's services, as ``uid`` calls it; without one, as its owner does."""
    return AsPeer(_app(plane, timers), os.geteuid() if uid is None else uid)


def real_app_for(plane: ControlPlane, *uids: int | None) -> Iterator[ASGIApp]:
    """One application as each of them calls it; it takes longer to make than to ask."""
    app = _app(plane, ())
    yield from (AsPeer(app, os.geteuid() if uid is None else uid) for uid in uids)


def _app(plane: ControlPlane, timers: tuple[TimerHealth, ...]) -> ASGIApp:
    process = Process(started_at=time.time(), idle_seconds=None, activity=Activity(), timers=lambda: timers)
    return create_app(plane.services, process)
