# SPDX-License-Identifier: Apache-2.0
"""How much of what guests print stays on the host: libvirt's log daemon writes and rotates it, this takes away what is
too old or too much.

What a VM that runs printed last stays however old it is: it may be why its guest hangs.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import libvirt

from orchestrator.agent.libvirt.connection import Libvirt
from orchestrator.agent.paths import Paths
from orchestrator.core.domain_xml.console import LOG_DIRECTORY
from orchestrator.core.errors import WorldError

HOURS, MIB = 24, 8
"""Unless the host's agent is told otherwise."""
_EVERY_S: Final = 900.0
_FILE: Final = re.compile(r"vgpuctl-([0-9a-f-]{36})\.console(?:\.([0-9]{1,2}))?", re.ASCII)
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _LogFile:
    path: Path
    vm: str
    number: int
    """-1: the daemon writes to it; the larger, the older."""
    bytes: int
    written_at: float


@dataclass(frozen=True)
class ConsoleBounds:
    """Of each VM."""

    hours: int = HOURS
    mib: int = MIB

    def surplus(self, files: Iterable[_LogFile], *, now: float, runs: bool) -> list[_LogFile]:
        """What has to go of one VM's, the oldest of all when it is too much."""
        kept_bytes, surplus = 0, []
        for file in sorted(files, key=lambda file: file.number):
            kept_bytes += file.bytes
            is_current = runs and file.number < 0
            too_old = now - file.written_at > self.hours * 3600
            if not is_current and (too_old or kept_bytes > self.mib * 1024 * 1024):
                surplus.append(file)
        return surplus


class ConsoleKeeper:
    """Takes surplus away now and then, on a thread of its own. ``clock``: seconds since 1970."""

    def __init__(
        self, paths: Paths, host: Libvirt, bounds: ConsoleBounds, clock: Callable[[], float] = time.time
    ) -> None:
        self._directory = paths.root / LOG_DIRECTORY.removeprefix("/")
        self._host = host
        self._bounds = bounds
        self._clock = clock
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="console-logs", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()

    def prune(self) -> None:
        """:raises WorldError: libvirt does not say which VMs run: nothing is taken away"""
        of_vms: dict[str, list[_LogFile]] = {}
        for file in self._files():
            of_vms.setdefault(file.vm, []).append(file)
        running = self._host.call(_running) if of_vms else frozenset()
        for vm, files in of_vms.items():
            for file in self._bounds.surplus(files, now=self._clock(), runs=vm in running):
                file.path.unlink(missing_ok=True)

    def _run(self) -> None:
        while True:
            try:
                self.prune()
            except (WorldError, OSError) as error:
                log.warning("what guests printed is not tidied up: %s", error)
            if self._stopping.wait(_EVERY_S):
                return

    def _files(self) -> Iterable[_LogFile]:
        for path in self._directory.glob("vgpuctl-*.console*"):
            match = _FILE.fullmatch(path.name)
            with suppress(FileNotFoundError):  # the daemon has just put it aside
                about = path.lstat()
                if match is not None:
                    number = -1 if match[2] is None else int(match[2])
                    yield _LogFile(path, match[1], number, about.st_size, about.st_mtime)


def _running(connection: Any) -> frozenset[str]:
    domains = connection.listAllDomains(libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE)
    return frozenset(domain.UUIDString().lower() for domain in domains)
