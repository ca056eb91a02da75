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
    max_pause_ms: int | None = None
    """That its guest may stand still for at the end, at first; None: as QEMU has it."""


@dataclass(frozen=True, kw_only=True)
class MoveLoad:
    """What a running VM has to move, as its host measures it."""

    memory_bytes: int
    """Of its guest."""
    dirty_per_s: int | None = None
    """Bytes of memory that its guest writes in a second; None: not told."""
    device_bytes: int | None = None
    """State of its vGPUs; None: their driver does not tell."""


@dataclass(frozen=True, kw_only=True)
class MovedVm:
    """That has gone."""

    sent_bytes: int
    """Memory, devices and disk, as QEMU counted last."""
    paused_ms: int = 0
    """For which its guest has stood still already; 0: not told."""


@dataclass(frozen=True, kw_only=True)
class MoveKey:
    """Of one end of one move: a certificate that signs itself, and its private key (PEM)."""

    certificate: str
    key: str
