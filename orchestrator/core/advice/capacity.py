# SPDX-License-Identifier: Apache-2.0
"""How many more of a profile fit: found by placing them one after another, never by counting free functions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.core.advice.alike import OneOfEach
from orchestrator.core.errors import Reason
from orchestrator.core.placement.views import HostView, Request


@dataclass(frozen=True, slots=True)
class CapacityRow:
    """How many more VMs of one profile fit, or could be created by a tenant, now."""

    profile: str
    """Offering, vGPU type, MIG profile or gpu:N."""
    fits_now: int
    reason: Reason | None = None
    """Why none fits now, where that was asked for."""


def capacity(requests: Iterable[Request], hosts: Sequence[HostView]) -> tuple[CapacityRow, ...]:
    """A row per request, each on the fleet as it is, the others not placed.

    ``requests`` are examples: one VM of each kind, with the vCPUs, memory and tenant it would have. Of hosts that are
    alike one is filled, and the number multiplied.
    """
    each = OneOfEach.among(hosts)
    return tuple(CapacityRow(request.profile, each.room(request)) for request in requests)
