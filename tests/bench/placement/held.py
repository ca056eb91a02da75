# SPDX-License-Identifier: Apache-2.0
"""What tenants of a benchmark hold, against limits, by the rule that a server asks."""

from __future__ import annotations

from collections import Counter

from orchestrator.core.errors import QuotaExceeded
from orchestrator.core.placement.views import Request
from orchestrator.core.tenancy.quota import Limit, check_quota, machine_amounts


class Held:
    """The amounts of machines, devices left out."""

    def __init__(self, *limits: Limit) -> None:
        self._limits = limits
        self._used: dict[str, Counter[str]] = {}

    def refuses(self, request: Request) -> bool:
        try:
            check_quota(request.tenant, _asked(request), self._limits, self._used.get(request.tenant, {}), {})
        except QuotaExceeded:
            return True
        return False

    def take(self, request: Request) -> None:
        self._used.setdefault(request.tenant, Counter()).update(_asked(request))

    def release(self, request: Request) -> None:
        self._used[request.tenant].subtract(_asked(request))

    def vms(self, tenant: str) -> int:
        return self._used.get(tenant, Counter())["vms"]


def _asked(request: Request) -> Counter[str]:
    return machine_amounts(request.vcpus, request.memory_mib, disk_bytes=0)
