# SPDX-License-Identifier: Apache-2.0
"""Calls of the API about the health and the power of GPUs.

``generated/async_health_calls.py`` is written from this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.client.connection import path_of
from orchestrator.client.disk_calls import Body
from orchestrator.client.site_calls import SiteCalls

if TYPE_CHECKING:
    from orchestrator.client.generated import models


class HealthCalls(SiteCalls):
    """Beside those about a site."""

    def gpu_healths(self) -> models.PoolHealth:
        """``gpus``: those that are not healthy, read in pages; ``counts`` and ``breaker``: of all."""
        return self.connection.whole(path_of("gpu-health"), {}, member="gpus")

    def gpu_health(self, host: str, address: str) -> models.GpuHealth:
        """With all that its host tells of it now."""
        return self._get(path_of("gpu-health", host, address))

    def gpu_cleanings(self, limit: int | None = None, **only: str | None) -> list[models.GpuCleaning]:
        """How pieces of GPUs were cleaned when their claims ended, newest first, at most so many (None: all). ``host``,
        ``gpu``, ``vm``, ``tenant``: only those; ``sanitising="true"``: only those not known to be clean."""
        return self.connection.pages(path_of("gpu-cleanings"), dict(only), at_most=limit)

    def quarantine_gpu(self, host: str, address: str, reason: str) -> models.GpuHealth:
        """Until :meth:`return_gpu`."""
        return self._post(path_of("gpu-health", host, address, "quarantine"), {"reason": reason})

    def empty_gpu(self, host: str, address: str, wanted: Body) -> models.Maintenance:
        """It is closed at once, and its VMs move to other hosts."""
        return self._post(path_of("gpu-health", host, address, "empty"), wanted)

    def reset_gpu(self, host: str, address: str) -> models.Started:
        """Of one without VMs: it is closed, reset and tried, and then on watch."""
        return self._post(path_of("gpu-health", host, address, "reset"))

    def return_gpu(self, host: str, address: str, reason: str) -> models.GpuHealth:
        return self._post(path_of("gpu-health", host, address, "return"), {"reason": reason})

    def acknowledge_gpu(self, host: str, address: str) -> models.GpuHealth:
        return self._post(path_of("gpu-health", host, address, "acknowledge"))

    def reset_health_breaker(self) -> models.PoolHealth:
        return self._post(path_of("gpu-health", "reset-breaker"))

    def power(self, host: str | None = None) -> models.Power:
        """``budgets`` with what GPUs may take and take now, ``gpus`` that have a cap, or all of a host."""
        return self._get(path_of("power"), host=host)

    def set_power_budget(self, scope: str, name: str, watts: int | None) -> models.Power:
        """``scope``: host, rack or site, whose name is empty. None: there is none any more."""
        return self._post(path_of("power", "budgets"), {"scope": scope, "name": name, "watts": watts})

    def cap_gpu(self, host: str, address: str, watts: int | None) -> models.Power:
        """None: its driver's own limit."""
        return self._post(path_of("power", "gpus", host, address), {"cap_watts": watts})
