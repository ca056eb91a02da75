# SPDX-License-Identifier: Apache-2.0
"""What tenants may have together, and what they have."""

from __future__ import annotations

from dataclasses import dataclass, fields

from orchestrator.core.errors import Reason
from orchestrator.core.placement.views import Request


@dataclass(frozen=True, kw_only=True, slots=True)
class Quota:
    """Most that a tenant may hold. None: no limit."""

    vms: int | None = None
    devices: int | None = None
    """vGPUs, GPU instances and whole GPUs."""
    vcpus: int | None = None
    memory_mib: int | None = None


_NAMES = tuple(field.name for field in fields(Quota))


class Usage:
    """Running totals per tenant, kept where there are quotas; adding and checking are O(1)."""

    def __init__(self, quotas: dict[str, Quota]) -> None:
        self.quotas = quotas
        self.totals: dict[str, list[int]] = {}

    def add(self, request: Request) -> None:
        """Count a VM in."""
        self._change(request, 1)

    def remove(self, request: Request) -> None:
        """Count a VM out."""
        self._change(request, -1)

    def _change(self, request: Request, sign: int) -> None:
        if request.tenant not in self.quotas:
            return
        totals = self.totals.setdefault(request.tenant, [0] * len(_NAMES))
        for i, amount in enumerate(_amounts(request)):
            totals[i] += sign * amount

    def refuses(self, request: Request) -> Reason | None:
        """The first limit that the request would break, as ``quota.<what>``."""
        quota = self.quotas.get(request.tenant)
        if quota is None:
            return None
        totals = self.totals.get(request.tenant, [0] * len(_NAMES))
        for name, used, amount in zip(_NAMES, totals, _amounts(request), strict=True):
            limit: int | None = getattr(quota, name)
            if limit is not None and used + amount > limit:
                message = f"the quota allows {limit} {_SHOWN[name]}, {used} are in use and {amount} more are asked for"
                return Reason(code=f"quota.{name}", message=message, subjects=(request.tenant,))
        return None


_SHOWN = {"vms": "VMs", "devices": "devices", "vcpus": "vCPUs", "memory_mib": "MiB of memory"}


def _amounts(request: Request) -> tuple[int, int, int, int]:
    return 1, request.count * max(1, request.whole_gpus), request.vcpus, request.memory_mib
