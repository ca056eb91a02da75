# SPDX-License-Identifier: Apache-2.0
"""How far tenants are kept apart: on one GPU, or on one host. Between two tenants the stricter wish holds."""

from __future__ import annotations

from typing import Final, Literal

Isolation = Literal["none", "instance", "gpu", "host"]
"""``none``: GPUs are shared with any tenant that says so too. ``instance``: with others only where the GPU itself
divides memory and engines (GPU instances of MIG), never a time-sliced one. ``gpu``, ``host``: with nobody."""

ISOLATIONS: Final[tuple[Isolation, ...]] = ("none", "instance", "gpu", "host")
"""The weakest first."""
DEFAULT_ISOLATION: Final[Isolation] = "instance"


def stricter(one: Isolation, other: Isolation) -> Isolation:
    return max(one, other, key=ISOLATIONS.index)


def may_share_gpu(one: Isolation, other: Isolation, *, divided: bool) -> bool:
    """``divided``: each has memory and engines of its own on it."""
    wanted = stricter(one, other)
    return wanted == "none" or (wanted == "instance" and divided)


def may_share_host(one: Isolation, other: Isolation) -> bool:
    return stricter(one, other) != "host"
