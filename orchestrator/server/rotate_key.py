# SPDX-License-Identifier: Apache-2.0
"""``python -m orchestrator.server.rotate_key``: a new key for the secrets in the database, and the old one is useless.

The new key is on disk before anything is encrypted with it and the old one until nothing needs it: whatever ends in
between, running it again finishes it.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from cryptography.fernet import Fernet

from orchestrator.adapters.state.clock import RandomIds
from orchestrator.adapters.state.directory import ExecutorLock
from orchestrator.adapters.state.keys import write_private
from orchestrator.client.location import state_directory
from orchestrator.core.errors import Conflict, InvalidInput, VgpuctlError
from orchestrator.core.tenancy.key_ring import with_new_key, without_old_keys
from orchestrator.server.backup import DATABASE
from orchestrator.server.error_line import print_error
from orchestrator.server.settings import load_settings
from orchestrator.store.database import Store
from orchestrator.store.sqlite.backup import url_of


def rotate(state: Path, now: float, *, others_stopped: bool = False) -> int:
    """How many secrets there are.

    :raises Conflict: ``serve.already_running``, ``key.shared``
    :raises InvalidInput: ``key.none``
    :raises Fatal: ``secret.unreadable``: nothing was changed in the database
    """
    file = state / "secrets" / "database_key"
    if not file.is_file():
        raise InvalidInput("key.none", f"there is no key in {state}", hint="is VGPUCTL_STATE right?")
    server = load_settings().database_server
    if server is not None and not others_stopped:
        raise Conflict(
            "key.shared",
            "the database is on a PostgreSQL server, so other servers may use its key",
            hint="stop them all, run this with --others-stopped, and copy secrets/database_key to them",
        )
    lock = ExecutorLock(state / "executor.lock")
    try:
        ring = with_new_key(file.read_bytes(), Fernet.generate_key())
        write_private(file, ring)
        count = _encrypt_again(server or url_of(state / DATABASE), ring, now)
        write_private(file, without_old_keys(ring))
    finally:
        lock.release()
    return count


def _encrypt_again(url: str, ring: bytes, now: float) -> int:
    store = Store(url, key=ring, new_site=RandomIds().new_uuid())
    try:
        with store.begin() as tx:
            count = tx.secrets.encrypt_again()
            outcome = f"{count} encrypted"
            tx.audit.append(at=now, actor="server", action="rotate_key", subject="secrets", outcome=outcome)
    finally:
        store.close()
    return count


def main() -> int:
    """Exit codes as everywhere."""
    parser = argparse.ArgumentParser(prog="vgpuctl server rotate-key")
    parser.add_argument("--others-stopped", action="store_true")
    words = parser.parse_args()
    state = state_directory()
    try:
        count = rotate(state, time.time(), others_stopped=words.others_stopped)
    except VgpuctlError as error:
        print_error(error)
        return error.exit_code
    print(f"{count} secrets are encrypted with a new key; backups made before hold the old one: make a new backup")
    return 0


if __name__ == "__main__":
    sys.exit(main())
