# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's licences of guests as a host's driver tells them, one for each vGPU that a running VM has open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

LicenceState = Literal["licensed", "unlicensed", "unknown"]
"""``unknown``: the driver does not say (yet), or the agent is too old to ask it."""


@dataclass(frozen=True, kw_only=True)
class VgpuLicence:
    """Of one vGPU."""

    vm: str
    """UUID of the VM's domain, which of ours is the VM's id."""
    state: LicenceState
    until: int | None = None
    """When it ends, in seconds since the epoch; None: it does not end, or the driver does not say."""


@dataclass(frozen=True, kw_only=True)
class GuestLicence:
    """Of a VM: of the one of its vGPUs that is worst off."""

    state: LicenceState
    """Of the vGPU that is worst off; ``unknown``: the VM does not run, has no vGPU, or nobody says."""
    until: int | None = None
    """When it ends unless it is renewed; None: never, or nobody says."""


_WORST_FIRST: tuple[LicenceState, ...] = ("unlicensed", "unknown", "licensed")


def licence_of(vm: str, licences: Iterable[VgpuLicence]) -> GuestLicence:
    """``unknown`` where nothing was told of it."""
    its = [licence for licence in licences if licence.vm == vm]
    if not its:
        return GuestLicence(state="unknown")
    state = min((licence.state for licence in its), key=_WORST_FIRST.index)
    ends = [licence.until for licence in its if licence.until is not None]
    return GuestLicence(state=state, until=min(ends) if ends and state == "licensed" else None)
