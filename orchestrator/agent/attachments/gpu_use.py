# SPDX-License-Identifier: Apache-2.0
"""What uses a GPU through its host's driver, and that nothing does from now on.

A GPU that no file holds open may be in use all the same: persistence mode, a display driver and counts that leaked keep
NVIDIA's driver from ever coming back from an unbind. ``unbindLock`` below /proc/driver/nvidia/gpus is its own word on
that (kernel-open/nvidia/nv-procfs.c): 1 is written, and reads back as 1 when nothing uses the GPU and nothing can.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from orchestrator.agent.attachments.device_files import DeviceFiles
from orchestrator.agent.nvml.reading import Driver
from orchestrator.agent.paths import Paths
from orchestrator.agent.sysfs import open_files, pci, reading
from orchestrator.core.errors import Conflict, VgpuctlError

_PERSISTENCED = "nvidia-persiste"
"""The daemon's name as /proc/PID/comm has it, 15 letters of it. It closes a GPU whose persistence mode is off."""
_TRIES = 6
_PAUSE_SECONDS = 0.5
_STOP_IT = "a VM gets all of it when nothing else uses it: stop what does"
_UNSEEN = "its driver counts users that no open file shows"
_DISPLAY = "the display driver nvidia-drm (modeset=1)"
_MINOR = re.compile(r"^Device Minor:\s*(?P<minor>[0-9]+)\s*$", re.ASCII | re.MULTILINE)


def in_use(gpu: str, by: Iterable[str], *, hint: str = _STOP_IT) -> Conflict:
    return Conflict("gpu.in_use", f"GPU {gpu} is in use: {', '.join(by)}", hint=hint)


@contextmanager
def without_persistence(driver: Driver, gpu: str) -> Iterator[None]:
    """Persistence mode is off meanwhile, and the agent no client of the driver."""
    was_on = driver.persistence(gpu)
    if was_on:
        driver.set_persistence(gpu, on=False)
    try:
        with driver.closed():
            yield
    finally:
        if was_on:
            with suppress(VgpuctlError):
                driver.set_persistence(gpu, on=True)


class GpuUse:
    def __init__(self, files: DeviceFiles, driver: Driver) -> None:
        self._files, self._paths, self._driver = files, files.paths, driver

    def check(self, gpu: str, *, persistence: bool) -> None:
        """By processes alone. Cannot tell counts as in use. ``persistence``: its mode is on, and the daemon for that
        is no user.

        :raises Conflict: ``gpu.in_use``"""
        with self._driver.closed():
            users = self._users(gpu)
        running = (self._named(pid) for pid in self._driver.processes(gpu))
        daemon = f"{_PERSISTENCED} (" if persistence else "\0"
        users = tuple(dict.fromkeys(user for user in (*users, *running) if not user.startswith(daemon)))
        if users:
            raise in_use(gpu, users)

    def lock(self, gpu: str) -> None:
        """Nothing uses it, and nobody can open it. The agent must be no client of the driver.

        :raises Conflict: ``gpu.in_use``"""
        users: tuple[str, ...] = ()
        for attempt in range(_TRIES):
            if attempt:
                self._files.timing.sleep(_PAUSE_SECONDS)
            users = self._users(gpu)
            if not users and self._is_locked(gpu):
                return
        if users:
            raise in_use(gpu, users)
        if reading.text(self._paths.root / "sys/module/nvidia_drm/parameters/modeset") == "Y" and reading.names(
            self._paths.pci(gpu) / "drm"
        ):
            raise in_use(gpu, (_DISPLAY,), hint="set nvidia-drm.modeset=0 (kernel command line) and reboot the host")
        raise in_use(gpu, (_UNSEEN,), hint="nvidia-smi and dmesg may say which; a reboot of the host ends them")

    def unlock(self, gpu: str) -> None:
        """It can be opened again. Of a GPU that its driver has."""
        file = self._lock_file(gpu)
        if reading.text(file) == "1":
            with suppress(VgpuctlError):
                self._files.write_file(file, "0")

    def _is_locked(self, gpu: str) -> bool:
        """Or the driver has no such lock: another one, or one that is older."""
        file = self._lock_file(gpu)
        if not file.exists():
            return True
        self._files.write_file(file, "1")
        return reading.text(file) == "1"

    def _users(self, gpu: str) -> tuple[str, ...]:
        own = (*pci.own_functions(self._paths, gpu), *pci.virtual_functions(self._paths, gpu))
        users = _users_of(self._paths, own)
        return ("processes that cannot be looked at",) if users is None else users

    def _named(self, pid: int) -> str:
        return f"{reading.text(self._paths.proc / str(pid) / 'comm') or 'a process'} ({pid})"

    def _lock_file(self, gpu: str) -> Path:
        return self._paths.proc / "driver/nvidia/gpus" / gpu / "unbindLock"


def _users_of(paths: Paths, functions: tuple[str, ...]) -> tuple[str, ...] | None:
    """``name (pid)`` of each; None: could not tell."""
    return open_files.holders(paths, frozenset(node for function in functions for node in _nodes(paths, function)))


def _nodes(paths: Paths, address: str) -> Iterator[str]:
    """Device files of the function: NVIDIA's, of the display, of the sound card on its audio function."""
    information = reading.text(paths.proc / "driver/nvidia/gpus" / address / "information")
    match = None if information is None else _MINOR.search(information)
    if match is not None:
        yield f"/dev/nvidia{match['minor']}"
    directory = paths.pci(address)
    yield from (f"/dev/dri/{name}" for name in reading.names(directory / "drm"))
    for card in reading.names(directory / "sound"):
        yield from (f"/dev/snd/{name}" for name in reading.names(directory / "sound" / card))
    yield from open_files.vfio_nodes(directory)
