# SPDX-License-Identifier: Apache-2.0
"""``python -m tests.contract.backup.restored_server``: serves a restored database beside hosts that have gone on since.

``young`` was made after the backup; ``begun`` was being made then, and runs; ``paused`` ran then, and was stopped.
"""

from __future__ import annotations

import time
from pathlib import Path

from orchestrator.client.location import state_directory
from orchestrator.server.backup import back_up, restore
from tests.contract.api.plane_server import serve
from tests.fakes.control_plane import KEY, T4_HOST, control_plane, create_vm


def main() -> None:
    state = state_directory()
    old = state.with_name("old")
    _key(old)
    before = control_plane(old)
    before.add_host(T4_HOST)
    before.services.vms.create(create_vm("paused"))
    before.engine.drain()
    before.services.vms.create(create_vm("begun"))
    back_up(old, state.with_name("backup"))
    before.engine.drain()
    for name in ("young", "unwanted"):
        before.services.vms.create(create_vm(name))
        before.engine.drain()
    before.services.vms.stop("default", "paused")
    before.engine.drain()
    before.store.close()
    restore(state, state.with_name("backup"), time.time())
    plane = control_plane(state, hosts=before.hosts)
    plane.ids.count = before.ids.count
    serve(state, plane)


def _key(state: Path) -> None:
    (state / "secrets").mkdir(parents=True)
    (state / "secrets" / "database_key").write_bytes(KEY)


if __name__ == "__main__":
    main()
