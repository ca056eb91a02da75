# SPDX-License-Identifier: Apache-2.0
"""Small stand-ins for clock, ids, files, and an engine that runs when it is told to."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.core.actions.host_actions import ImageFormat
from orchestrator.core.vms.image import Image, NewImage
from orchestrator.ports.files import Seed, TakenFile
from orchestrator.store.transaction import Transaction


@dataclass
class FakeClock:
    """Sleeping takes no time and moves the clock. ``ahead``: what somebody did to the wall clock."""

    time: float = 1_800_000_000.0
    ahead: float = 0.0

    def now(self) -> float:
        self.time += 0.001
        return self.time + self.ahead

    def monotonic(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds


@dataclass
class CountedIds:
    """The same ids in every run."""

    count: int = 0

    def new_uuid(self) -> str:
        self.count += 1
        return str(uuid.uuid5(uuid.NAMESPACE_OID, str(self.count)))


@dataclass
class FakeSeeds:
    built: deque[Seed] = field(default_factory=lambda: deque(maxlen=1))
    """The newest alone."""

    def build(self, wanted: Seed) -> bytes:
        self.built.append(wanted)
        return f"{wanted} {wanted.user_data}".encode()


@dataclass
class FakeImages:
    files: set[str] = field(default_factory=set)

    @contextmanager
    def take(self, wanted: NewImage, now: float) -> Iterator[TakenFile[Image]]:
        source = wanted.source if isinstance(wanted.source, str) else b"".join(wanted.source).hex()
        digest = wanted.sha256 or uuid.uuid5(uuid.NAMESPACE_URL, source).hex * 2
        image = Image(
            name=wanted.name,
            sha256=digest,
            format="qcow2",
            size_bytes=1024,
            virtual_size_bytes=64 * 1024**2,
            created_at=now,
        )
        yield TakenFile(image, lambda: self.files.add(digest))

    def path(self, sha256: str, image_format: ImageFormat) -> Path:
        return Path(f"/images/{sha256}.{image_format}")

    def local(self, sha256: str, image_format: ImageFormat) -> Path | None:
        return self.path(sha256, image_format) if sha256 in self.files else None

    def remove(self, sha256: str, image_format: ImageFormat) -> None:
        self.files.discard(sha256)


@dataclass
class FakeKeys:
    keys: dict[str, str] = field(default_factory=dict)

    def put(self, _tx: Transaction, host: str, text: str) -> None:
        self.keys[host] = text

    def remove(self, _tx: Transaction, host: str) -> None:
        self.keys.pop(host, None)


class HeldEngine:
    """Keeps what is submitted until :meth:`drain`."""

    def __init__(self, run: Callable[[str], None]) -> None:
        self._run = run
        self.waiting: list[str] = []
        self.idle: Callable[[], None] = lambda: None
        """Called when nothing is left to run."""
        self.due_before: Callable[[str], list[str]] = lambda _: []
        """Operations of the same subject that come first."""

    def submit(self, operation_id: str) -> None:
        if operation_id not in self.waiting:
            self.waiting.append(operation_id)

    def drain(self) -> None:
        self.idle()
        while self.waiting:
            operation = self.waiting.pop(0)
            for one in (*self.due_before(operation), operation):
                self._run(one)
            if not self.waiting:
                self.idle()

    def recover(self) -> int:
        return 0

    def stop(self) -> None:
        """Nothing runs by itself."""
