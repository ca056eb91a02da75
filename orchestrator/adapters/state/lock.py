# SPDX-License-Identifier: Apache-2.0
"""One executor per state directory: on SQLite two would act for each other."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from orchestrator.core.errors import Conflict


class ExecutorLock:
    """Held until :meth:`release` or the end of the process."""

    def __init__(self, path: Path) -> None:
        """:raises Conflict: ``serve.already_running``"""
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._descriptor)
            raise Conflict(
                "serve.already_running",
                "another server uses this state directory",
                hint="stop it, or give this one a VGPUCTL_STATE of its own",
            ) from error

    def release(self) -> None:
        os.close(self._descriptor)
