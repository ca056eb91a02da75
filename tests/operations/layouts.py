# SPDX-License-Identifier: Apache-2.0
"""MIG layouts on the host with an A100, for scenes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from orchestrator.core.hosts.mig_layout import MigEntry
from tests.fakes.control_plane import A100_HOST, ControlPlane


def wanted(*profiles: str, enabled: bool = True) -> tuple[MigEntry, ...]:
    """All GPUs in MIG mode with these, or out of it."""
    counts = tuple(sorted(Counter(profiles).items()))
    return (MigEntry(devices=None, filters=(), enabled=enabled, counts=counts),)


def prepare(*profiles: str) -> Callable[[ControlPlane], None]:
    """The host, kept for a layout of these when there are any."""

    def with_layout(plane: ControlPlane) -> None:
        plane.add_host(A100_HOST)
        if profiles:
            apply(*profiles)(plane)
            plane.engine.drain()

    return with_layout


def apply(*profiles: str, enabled: bool = True) -> Callable[[ControlPlane], str | None]:
    return lambda plane: plane.services.mig_layouts.apply(A100_HOST, wanted(*profiles, enabled=enabled)).operation


def release(plane: ControlPlane) -> str | None:
    return plane.services.mig_layouts.release(A100_HOST, None).operation


_MADE, _OTHER = ("1g.10gb", "1g.20gb"), ("1g.20gb", "1g.20gb")
CASES = (
    ("apply mig", "apply_mig", prepare(), apply(*_MADE)),
    ("apply another mig", "apply_mig", prepare(*_MADE), apply(*_OTHER)),
    ("apply no mig", "apply_mig", prepare("1g.10gb"), apply(enabled=False)),
    ("release mig", "release_mig", prepare(*_MADE), release),
)
"""Name, kind, the world before, what begins it."""
