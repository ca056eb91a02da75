# SPDX-License-Identifier: Apache-2.0
"""Images that exist by name alone, and the keys that simulated machines show."""

from __future__ import annotations

import hashlib
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from orchestrator.core.actions.host_actions import ImageFormat
from orchestrator.core.vms.image import Image, NewImage
from orchestrator.ports.files import TakenFile
from orchestrator.services.messages import HostKey


class InMemoryImages:
    """Implements ports.files.ImageFiles."""

    def take(self, wanted: NewImage, now: float) -> AbstractContextManager[TakenFile[Image]]:
        return nullcontext(TakenFile(self.named(wanted, now), lambda: None))

    def named(self, wanted: NewImage, now: float) -> Image:
        digest = wanted.sha256 or hashlib.sha256(str(wanted.source).encode()).hexdigest()
        return Image(
            name=wanted.name,
            sha256=digest,
            format=wanted.format or "qcow2",
            size_bytes=1024,
            virtual_size_bytes=64 * 1024**2,
            created_at=now,
        )

    def path(self, sha256: str, image_format: ImageFormat) -> Path:
        return Path(f"{sha256}.{image_format}")

    def local(self, sha256: str, image_format: ImageFormat) -> Path | None:
        return None

    def remove(self, sha256: str, image_format: ImageFormat) -> None:
        """Nothing is kept."""


def fingerprint_of(address: str) -> str:
    """Of the key that the machine at ``address`` shows."""
    return f"SHA256:{hashlib.sha256(address.encode()).hexdigest()[:43]}"


def scan(address: str, _port: int) -> HostKey:
    """As a machine of the fleet answers."""
    return HostKey(type="ssh-ed25519", key="AAAA", fingerprint=fingerprint_of(address))
