# SPDX-License-Identifier: Apache-2.0
"""A running VM on its way from one host to another: no host action, as a disk on its way is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MAX_DOMAIN_NAME: Final = 60
"""It is part of the path of a unix socket, of 107 bytes at most (orchestrator/agent/libvirt/migration.py)."""


@dataclass(frozen=True, kw_only=True)
class LiveMove:
    """Everything that it has is made on the other host already: definition, disk, seed, devices."""

    vm: str
    devices: tuple[str, ...]
    """Names of its devices on the other host (core/gpu/device.py), in their order."""
    max_bytes_per_s: int | None = None
    """None: as fast as it goes."""


@dataclass(frozen=True, kw_only=True)
class MoveKey:
    """Of one end of one move: a certificate that signs itself, and its private key (PEM)."""

    certificate: str
    key: str
