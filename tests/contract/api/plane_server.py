# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.contract.api.plane_server``: the server process over the real services, database and runner.

Only the hosts are not real, nor the image that is there from the first moment: they live in memory
(tests/fakes/fake_host.py).
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from orchestrator.adapters.files.opening import Readable
from orchestrator.adapters.images.library import ImageLibrary
from orchestrator.adapters.images.sources import Downloads, Sources
from orchestrator.api.limits import Activity
from orchestrator.api.listening import Tls
from orchestrator.api.process import only_one, serve_until_done
from orchestrator.api.services import Process
from orchestrator.client.location import state_directory
from orchestrator.ports.identity import Identities
from tests.fakes.control_plane import ControlPlane, control_plane

TICK_S = 0.02


def _run_operations(plane: ControlPlane) -> None:
    while True:
        if plane.engine.waiting:  # else it would ask the database fifty times a second for guests that boot
            plane.engine.drain()
        time.sleep(TICK_S)


def main() -> None:
    state = state_directory()
    state.mkdir(parents=True, exist_ok=True)
    serve(state, control_plane(state))


def serve(state: Path, plane: ControlPlane, tls: Tls | None = None, identities: Identities | None = None) -> None:
    """Until it is told to stop. ``identities``: who reads the tokens of those who log in."""
    images = replace(
        plane.services.images,
        files=ImageLibrary(state / "images", Sources(files=Readable(never_below=state), downloads=Downloads())),
    )
    tenancy = plane.services.tenancy
    tenancy = replace(tenancy, access=replace(tenancy.access, identities=identities))
    services = replace(plane.services, images=images, tenancy=tenancy)
    threading.Thread(target=_run_operations, args=(plane,), daemon=True).start()
    process = Process(started_at=time.time(), idle_seconds=None, activity=Activity())
    with only_one(state, 0):
        serve_until_done(state, services, process, tls, partial(print, flush=True))


if __name__ == "__main__":
    main()
