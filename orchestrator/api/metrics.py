# SPDX-License-Identifier: Apache-2.0
"""What ``/metrics`` tells, in Prometheus's text format (docs/reference/metrics.md): the only user of its library."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import Final, get_args

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orchestrator.api.route_table import table_of
from orchestrator.api.services import Process
from orchestrator.api.use_cases import Services
from orchestrator.client.version import VERSION
from orchestrator.core.advice.gpu_map import use_of
from orchestrator.core.gpu.health_states import HealthState
from orchestrator.core.gpu.licence import LicenceState
from orchestrator.core.gpu.power import SCOPES
from orchestrator.core.hosts.host import HostState
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.vms.backup_policy import VmBackupState
from orchestrator.services.messages import HostInfo
from orchestrator.services.vms.capacity import Question

MEDIA_TYPE: Final = CONTENT_TYPE_LATEST
NO_ROUTE: Final = "other"
"""Label of requests for what the API does not have: their method and path are the caller's and may be anything."""
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """One registry per application. Nothing in it names a tenant, a VM or a host."""

    def __init__(self, services: Services, process: Process) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_Pool(services))
        self._registry.register(_Timers(process))
        self._seconds = Histogram(
            "vgpuctl_http_request_seconds",
            "Until an answer begins, seconds",
            ["route", "status"],
            buckets=_BUCKETS,
            registry=self._registry,
        )

    def answered(self, route: str, status: int, seconds: float) -> None:
        """One request more."""
        self._seconds.labels(route, str(status)).observe(seconds)

    def text(self) -> bytes:
        """Everything as it is now. Reads the database."""
        return generate_latest(self._registry)


def pool_families(services: Services) -> Iterable[Metric]:
    """Of the pool, as the database has it now."""
    return _Pool(services).collect()


def process_families(process: Process) -> Iterable[Metric]:
    """Of this server alone."""
    return _Timers(process).collect()


class _Pool(Collector):
    """Read when asked for, so that it is never older than the question."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Nothing: registering must not read the database."""
        yield from ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All gauges."""
        build = GaugeMetricFamily("vgpuctl_build", "Always 1; the version is its label", labels=["version"])
        build.add_metric([VERSION], 1)
        yield build
        yield self._operations()
        hosts = self._services.hosts.list()
        yield from self._hosts(hosts)
        yield from self._storage([info.snapshot for info in hosts if info.snapshot is not None])
        yield from self._gpus({(info.host.name, gpu) for info in hosts for gpu in info.host.managed_gpus})
        yield from self._health()
        yield from self._power()
        yield from self._fits()
        yield self._backups()
        findings = GaugeMetricFamily("vgpuctl_findings", "What differs on hosts, by its code", labels=["code"])
        for code, count in sorted(self._services.findings.counts().items()):
            findings.add_metric([code], count)
        yield findings

    def _backups(self) -> GaugeMetricFamily:
        family = GaugeMetricFamily("vgpuctl_backup_policy_vms", "VMs by how their backups stand", labels=["state"])
        counts = self._services.backup_policies.counts()
        for state in get_args(VmBackupState):
            family.add_metric([state], counts[state])
        return family

    def _operations(self) -> GaugeMetricFamily:
        family = GaugeMetricFamily("vgpuctl_operations", "Stored operations", labels=["kind", "state"])
        for (kind, state), count in sorted(self._services.operations.counts().items()):
            family.add_metric([kind, state], count)
        return family

    def _hosts(self, hosts: Iterable[HostInfo]) -> Iterator[GaugeMetricFamily]:
        states = Counter(info.host.state for info in hosts)
        family = GaugeMetricFamily("vgpuctl_hosts", "Enrolled hosts", labels=["state"])
        for state in get_args(HostState):
            family.add_metric([state], states[state])
        yield family
        gpus = (gpu for info in hosts if info.snapshot is not None for gpu in info.snapshot.gpus)
        counts = Counter(item.state for gpu in gpus for item in gpu.licences)
        licences = GaugeMetricFamily(
            "vgpuctl_vgpu_licences", "vGPUs of running VMs by their guest's licence", labels=["state"]
        )
        for licence in get_args(LicenceState):
            licences.add_metric([licence], counts[licence])
        yield licences

    def _storage(self, seen: Iterable[HostSnapshot]) -> Iterator[GaugeMetricFamily]:
        """Of a volume whose file is not made yet nothing is used."""
        free = sum(snapshot.storage_free_bytes for snapshot in seen)
        total = sum(snapshot.storage_total_bytes for snapshot in seen)
        storage = GaugeMetricFamily(
            "vgpuctl_host_storage_bytes", "Of the hosts' file systems for VMs, when last seen", labels=["state"]
        )
        storage.add_metric(["free"], free)
        storage.add_metric(["used"], total - free)
        yield storage
        volumes = self._services.volumes.all()
        used = {file.name: file.size_bytes for snapshot in seen for file in snapshot.data}
        yield GaugeMetricFamily("vgpuctl_volumes", "Data volumes", value=len(volumes))
        yield GaugeMetricFamily(
            "vgpuctl_volume_size_bytes",
            "What data volumes can hold",
            value=sum(snapshot.size_bytes for snapshot in volumes),
        )
        yield GaugeMetricFamily(
            "vgpuctl_volume_used_bytes",
            "What data volumes take of their hosts' file systems, when last seen",
            value=sum(used.get(snapshot.file, 0) for snapshot in volumes),
        )

    def _gpus(self, given: Collection[tuple[str, str]]) -> Iterator[GaugeMetricFamily]:
        """GPUs, and what is free of them: of one that is in use only what it is cut for fits there."""
        managed = GaugeMetricFamily("vgpuctl_gpus", "Physical GPUs given to vgpuctl", labels=["model"])
        claimed = GaugeMetricFamily("vgpuctl_gpu_claims", "Claims of VMs on GPUs", labels=["model"])
        free = GaugeMetricFamily("vgpuctl_gpus_free", "Free GPUs, parts of GPUs added up", labels=["model", "on"])
        rows = [row for row in self._services.capacity.gpu_map() if (row.host, row.gpu) in given]
        for model in sorted({row.model for row in rows}):
            its = [row for row in rows if row.model == model]
            managed.add_metric([model], len(its))
            claimed.add_metric([model], sum(cell.vm is not None for row in its for cell in row.cells))
            free.add_metric([model, "empty"], sum(use_of(row) == "empty" for row in its))
            parts = (row.free / row.slots for row in its if use_of(row) == "partly" and row.free is not None)
            free.add_metric([model, "in_use"], sum(parts))
        yield from (managed, claimed, free)

    def _health(self) -> Iterator[GaugeMetricFamily]:
        """An operator has seen those that are acknowledged."""
        pool = self._services.gpu_health.all()
        counts = Counter((known.health.state, known.health.acknowledged is not None) for known in pool.gpus)
        family = GaugeMetricFamily("vgpuctl_gpus_health", "GPUs by their health", labels=["state", "acknowledged"])
        family.add_metric(["healthy", "false"], pool.counts["healthy"])
        for state in get_args(HealthState)[1:]:
            for acknowledged in (False, True):
                family.add_metric([state, str(acknowledged).lower()], counts[state, acknowledged])
        yield family
        opened = pool.breaker.opened is not None
        yield GaugeMetricFamily("vgpuctl_health_breaker_open", "1: rules close no GPU", value=opened)

    def _power(self) -> Iterator[GaugeMetricFamily]:
        """Budgets of a scope added up: none is named here, 'vgpuctl power show' names them."""
        watts = GaugeMetricFamily(
            "vgpuctl_power_watts", "Of GPUs whose power can be limited, in watts", labels=["scope", "what"]
        )
        over = GaugeMetricFamily(
            "vgpuctl_power_budgets_exceeded", "Budgets whose GPUs take more, together", labels=["scope"]
        )
        silent = GaugeMetricFamily(
            "vgpuctl_power_gpus_silent", "GPUs under budgets whose host does not tell their limit", labels=["scope"]
        )
        uses = self._services.power.report().budgets
        for scope in SCOPES:
            its = [use for use in uses if use.scope == scope]
            budgets = [use for use in its if use.watts is not None]
            watts.add_metric([scope, "budget"], sum(use.watts or 0 for use in budgets))
            watts.add_metric([scope, "granted"], sum(use.granted_watts for use in its))
            watts.add_metric([scope, "drawn"], sum(use.drawn_watts for use in its))
            over.add_metric([scope], sum(use.drawn_watts > (use.watts or 0) for use in budgets))
            silent.add_metric([scope], sum(use.silent for use in budgets))
        yield from (watts, over, silent)

    def _fits(self) -> Iterator[GaugeMetricFamily]:
        """Of what a tenant alone has nothing: its names are its own."""
        fits = GaugeMetricFamily("vgpuctl_profile_fits", "How many more VMs of usual size fit now", labels=["profile"])
        own = {offering.name for offering in self._services.offerings.list() if offering.kept_for is not None}
        for row in self._services.capacity.capacity(Question(each=True)):
            if row.profile not in own:
                fits.add_metric([row.profile], row.fits_now)
        yield fits
        held = GaugeMetricFamily(
            "vgpuctl_quota_held_ratio", "How much of a limit is held where that is most", labels=["resource"]
        )
        for resource, share in sorted(self._services.tenancy.quotas.fullest().items()):
            held.add_metric([resource], share)
        yield held


class _Timers(Collector):
    """Reads no database: it is to be seen also while that is away."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def collect(self) -> Iterator[Metric]:
        """How the server's own rounds go."""
        timers, served = self._process.timers(), self._process.certificate
        ago = GaugeMetricFamily("vgpuctl_timer_good_ago_seconds", "Since its last good round", labels=["timer"])
        failed = CounterMetricFamily("vgpuctl_timer_failed", "Rounds that went wrong", labels=["timer"])
        for timer in timers:
            ago.add_metric([timer.name], timer.good_ago_s)
            failed.add_metric([timer.name], timer.failed)
        yield ago
        yield failed
        ends = GaugeMetricFamily("vgpuctl_certificate_end_timestamp_seconds", "When the served certificate ends")
        unfit = GaugeMetricFamily("vgpuctl_certificate_refused", "Its file holds another that is not served")
        if served is not None:
            ends.add_metric([], served.ends_at)
            unfit.add_metric([], served.refused is not None)
        backup = GaugeMetricFamily("vgpuctl_backup_timestamp_seconds", "When the last backup was made; 0: none was")
        if (backed_up_at := self._process.backed_up_at()) is not None:
            backup.add_metric([], backed_up_at)
        yield from (ends, unfit, backup)


class TimeAnswers:
    """ASGI middleware: how long each route takes to begin its answer (a stream may go on for an hour)."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = time.monotonic()

        async def timed(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.answered(_label(scope), message["status"], time.monotonic() - begin)
            await send(message)

        await self._app(scope, receive, timed)


def _label(scope: Scope) -> str:
    route = table_of(scope).find(scope["method"], scope["path"])
    return NO_ROUTE if route is None else f"{route.method} {route.path}"
