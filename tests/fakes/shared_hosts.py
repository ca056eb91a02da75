# SPDX-License-Identifier: Apache-2.0
"""The hosts of tests/fakes/fake_host.py in a file, so that several controller processes act on the same ones."""

from __future__ import annotations

import fcntl
import os
import pickle
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from orchestrator.core.actions.host_actions import ActionResult, FencingToken, HostAction, ImageFormat
from orchestrator.core.actions.live_move import LiveMove, MovedVm
from orchestrator.core.actions.volume_copy import VolumeCopy
from orchestrator.core.errors import Denied
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.readings.frame import HostFrame
from tests.fakes.fake_host import FakeHosts
from tests.fakes.fake_machine import FakeMachine

T = TypeVar("T")


class SharedHosts(FakeHosts):
    """``at`` is called before and after every effect, with nothing held: a process may be stopped or die there."""

    def __init__(self, file: Path, at: Callable[[str, str], None] = lambda _moment, _name: None) -> None:
        super().__init__({})
        self._file = file
        self._at = at

    def put(self, machines: dict[str, FakeMachine]) -> None:
        """The hosts as they are from now on."""
        with self._held():
            self.machines = machines

    def now(self) -> dict[str, FakeMachine]:
        with self._held():
            return self.machines

    def refused(self) -> list[str]:
        """Every action that was refused because a newer attempt had begun."""
        return self._refusals().read_text().split() if self._refusals().exists() else []

    def observe(self, host: Host) -> HostSnapshot:
        with self._held():
            return super().observe(host)

    def watch(self, host: Host) -> Iterator[dict[str, object] | HostFrame]:
        with self._held():
            return super().watch(host)

    def perform(self, host: Host, action: HostAction, token: FencingToken) -> ActionResult:
        return self._shown(type(action).__name__, lambda: FakeHosts.perform(self, host, action, token))

    def send_image(
        self, host: Host, path: Path, sha256: str, image_format: ImageFormat, token: FencingToken
    ) -> ActionResult:
        return self._shown("send_image", lambda: FakeHosts.send_image(self, host, path, sha256, image_format, token))

    def copy_volume(
        self,
        source: Host,
        source_token: FencingToken,
        target: Host,
        target_token: FencingToken,
        copy: VolumeCopy,
        progress: Callable[[int], None],
    ) -> ActionResult:
        ends = (source, source_token, target, target_token)
        return self._shown("copy_volume", lambda: FakeHosts.copy_volume(self, *ends, copy, progress))

    def read_snapshot(self, host: Host, vm: str, volume: str, token: FencingToken) -> Generator[bytes]:
        of = (host, vm, volume, token)
        yield self._shown("read_snapshot", lambda: b"".join(FakeHosts.read_snapshot(self, *of)))

    def move_vm(
        self,
        source: Host,
        source_token: FencingToken,
        target: Host,
        target_token: FencingToken,
        move: LiveMove,
        progress: Callable[[int, int], None],
    ) -> MovedVm:
        ends = (source, source_token, target, target_token)
        return self._shown("move_vm", lambda: FakeHosts.move_vm(self, *ends, move, progress))

    def install_agent(
        self, host: Host, gpus: tuple[str, ...], progress: Callable[[str], None], *, take_over: bool = False
    ) -> None:
        with self._held():
            super().install_agent(host, gpus, progress, take_over=take_over)

    def remove_agent(self, host: Host, progress: Callable[[str], None]) -> None:
        with self._held():
            super().remove_agent(host, progress)

    def _shown(self, name: str, effect: Callable[[], T]) -> T:
        self._at("before", name)
        try:
            with self._held():
                result = effect()
        except Denied as error:
            with self._refusals().open("a") as file:
                file.write(f"{error.code}:{name}\n")
            raise
        self._at("after", name)
        return result

    def _refusals(self) -> Path:
        return self._file.with_suffix(".refused")

    @contextmanager
    def _held(self) -> Iterator[None]:
        with self._file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self._file.exists():
                self.machines = pickle.loads(self._file.read_bytes())
            yield
            fresh = self._file.with_suffix(f".{os.getpid()}")
            fresh.write_bytes(pickle.dumps(self.machines))
            fresh.rename(self._file)
