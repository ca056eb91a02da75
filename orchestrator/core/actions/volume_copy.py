# SPDX-License-Identifier: Apache-2.0
"""A VM's disk on its way from one host to another, and how its bytes travel: no host action, as a base image is none.

A stream is records: a head, then as many bytes as it says. Holes of the disk are left out. The last record holds the
SHA-256 of all that came before it, heads included; what ends without it was cut.
"""

from __future__ import annotations

import struct
from dataclasses import asdict, dataclass
from typing import Final

from orchestrator.core.actions.host_actions import ImageFormat

RECORD: Final = struct.Struct(">cQI")
"""What follows, where it belongs in its file, how many bytes follow."""
DISK: Final = b"D"
VARIABLES: Final = b"V"
"""UEFI variables."""
SIZE: Final = b"S"
"""Nothing follows: the disk's file is that long."""
END: Final = b"E"
MAX_RECORD: Final = 1024 * 1024
MAX_VARIABLES: Final = 64 * 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class VolumeCopy:
    """The disk of a VM that is stopped, with its UEFI variables where it has any. Copied whole, under the same name."""

    vm: str
    volume: str
    base_sha256: str
    base_format: ImageFormat
    size_bytes: int
    """What the guest sees of it."""
    max_bytes_per_s: int | None = None
    """None: as fast as it goes."""

    def fields(self) -> dict[str, object]:
        """As it is sent."""
        return asdict(self)
