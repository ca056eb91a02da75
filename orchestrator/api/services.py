# SPDX-License-Identifier: Apache-2.0
"""What the routes need behind them, and how they get it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Protocol

from fastapi import Depends, Query
from starlette.requests import HTTPConnection

from orchestrator.api.limits import Activity
from orchestrator.ports.timers import TimerHealth
from orchestrator.reconcile.findings import FindingService
from orchestrator.services.adopting import AdoptionService
from orchestrator.services.capacity import CapacityService
from orchestrator.services.controllers import ControllerService
from orchestrator.services.driver_bundles import DriverBundleService
from orchestrator.services.driver_locks import DriverLockService
from orchestrator.services.driver_upgrades import DriverUpgradeService
from orchestrator.services.gpus import GpuService
from orchestrator.services.guests import GuestService
from orchestrator.services.host_checks import HostCheckService
from orchestrator.services.host_provisioning import ProvisioningService
from orchestrator.services.hosts import HostService
from orchestrator.services.images import ImageService
from orchestrator.services.mig_layouts import MigLayoutService
from orchestrator.services.networks import NetworkService
from orchestrator.services.offerings import OfferingService
from orchestrator.services.operations import OperationService
from orchestrator.services.profiles import ProfileService
from orchestrator.services.tenancy.tenancy import Tenancy
from orchestrator.services.vms import VmService


class ApiServices(Protocol):
    """All use cases."""

    @property
    def vms(self) -> VmService: ...
    @property
    def guests(self) -> GuestService: ...
    @property
    def adoption(self) -> AdoptionService: ...
    @property
    def hosts(self) -> HostService: ...
    @property
    def host_checks(self) -> HostCheckService: ...
    @property
    def provisioning(self) -> ProvisioningService: ...
    @property
    def gpus(self) -> GpuService: ...
    @property
    def profiles(self) -> ProfileService: ...
    @property
    def images(self) -> ImageService: ...
    @property
    def offerings(self) -> OfferingService: ...
    @property
    def driver_bundles(self) -> DriverBundleService: ...
    @property
    def driver_locks(self) -> DriverLockService: ...
    @property
    def driver_upgrades(self) -> DriverUpgradeService: ...
    @property
    def mig_layouts(self) -> MigLayoutService: ...
    @property
    def networks(self) -> NetworkService: ...
    @property
    def capacity(self) -> CapacityService: ...
    @property
    def operations(self) -> OperationService: ...
    @property
    def findings(self) -> FindingService: ...
    @property
    def controllers(self) -> ControllerService: ...
    @property
    def tenancy(self) -> Tenancy: ...


@dataclass
class Process:
    """The server process as the API may speak of it."""

    started_at: float
    idle_seconds: float | None
    """After how long without anything to do it ends; None: never."""
    activity: Activity
    timers: Callable[[], tuple[TimerHealth, ...]] = tuple
    """What is done again and again in it."""
    stopping: bool = False
    """Set once: long waits end, no new ones begin, the process ends."""


# Dependencies are coroutines: FastAPI sends every other function through a thread, twice for each request.
async def _services(connection: HTTPConnection) -> ApiServices:
    services: ApiServices = connection.app.state.services
    return services


async def _process(connection: HTTPConnection) -> Process:
    process: Process = connection.app.state.process
    return process


ServicesOf = Annotated[ApiServices, Depends(_services)]
ProcessOf = Annotated[Process, Depends(_process)]

# Whether the caller belongs to the tenant is checked before any route runs (api/auth.py).
TenantOf = Annotated[str, Query(alias="tenant", max_length=255, description="Whose it is")]
TenantFilter = Annotated[str | None, Query(alias="tenant", max_length=255, description="Only this tenant's")]
