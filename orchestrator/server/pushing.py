# SPDX-License-Identifier: Apache-2.0
"""Pushes to a collector of OpenTelemetry what the pages for Prometheus show, and what happens in the fleet.

Nothing waits for it, and nothing is kept for it but the position in the log of events: while the collector is away,
metrics of that time are not told to it, and events and flows are told afterwards.
"""

from __future__ import annotations

import logging
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from orchestrator.adapters.engine.live_controllers import LiveControllers
from orchestrator.adapters.engine.timer import Timer
from orchestrator.api.metrics import pool_families, process_families
from orchestrator.api.pushed_metrics import Families, series_of
from orchestrator.api.reading_metrics import host_families
from orchestrator.api.services import Process
from orchestrator.api.use_cases import Services
from orchestrator.client.version import VERSION
from orchestrator.core.controller import turn_of
from orchestrator.core.errors import InvalidInput, NotFound
from orchestrator.core.event import EventFilter, FleetChange, FleetEvent
from orchestrator.ports.telemetry import EventLine, NotTaken, Severity, Telemetry
from orchestrator.ports.timers import TimerHealth
from orchestrator.regular_file import read_at_most, read_certificates
from orchestrator.server.bootstrap import App
from orchestrator.server.flow_records import event_lines, feed_of
from orchestrator.server.settings import Settings
from orchestrator.services.events import PAGE
from orchestrator.services.readings.flow_feed import FlowFeed
from orchestrator.store.database import Store

POSITION: Final = "otlp_position"
"""Where the database keeps up to which event the collector was told."""
_EVENTS_S: Final = 10.0
"""Of one round for events that had to wait."""
_MAX_FAILED: Final = 3
"""Sources that are not taken, after which a round ends."""
_MAX_PAUSE_S: Final = 300.0
_MAX_HEADERS: Final = 65_536
_HEADER: Final = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}):[ \t]*([!-~](?:[ -~]*[!-~])?)", re.ASCII)
_HERE: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_OF_FINDINGS: Final[Mapping[str, Severity]] = {"warning": "warning", "error": "error"}
_OF_STATES: Final[Mapping[str, Severity]] = {"stuck": "error", "undone": "warning", "unreachable": "warning"}
_AGENT: Final = "vgpuctl-agent"
log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class Pushing:
    """What one controller tells. Of a host the first of those that live (:func:`turn_of`), of the pool and of events
    the one that leads: so nobody is told twice, but for moments in which controllers come or go."""

    services: Services
    process: Process
    store: Store
    living: LiveControllers
    collector: Telemetry
    flows: FlowFeed
    every_s: float
    _flow_lines: list[EventLine] = field(default_factory=list)
    """That the collector has not taken yet; what comes meanwhile waits where it is kept."""
    _good_at: float = field(default_factory=time.monotonic)
    _failed: int = 0
    _in_a_row: int = 0
    _not_before: float = 0.0
    _error: str | None = None

    def round(self) -> None:
        """Tell what there is now. After a failure the next ones are farther apart, up to five minutes."""
        if time.monotonic() < self._not_before:
            return
        failures = [*self._push_metrics(), *self._push_events(), *self._push_flows()]
        if not failures:
            self._good_at, self._in_a_row, self._error = time.monotonic(), 0, None
            return
        if self._error is None:
            log.warning("the collector of otlp_endpoint has not taken what it was sent: %s", failures[-1].why)
        self._failed, self._error = self._failed + 1, failures[-1].why
        if all(failure.extent == "part" for failure in failures):
            self._in_a_row = 0
            return
        self._in_a_row += 1
        self._not_before = time.monotonic() + min(self.every_s * 2.0**self._in_a_row, _MAX_PAUSE_S) - self.every_s

    def health(self) -> TimerHealth:
        """The server is well without its collector."""
        return TimerHealth(
            name="otlp", every_s=self.every_s, good_ago_s=time.monotonic() - self._good_at, failed=self._failed,
            error=None if self._error is None else f"the collector has not taken all: {self._error}", vital=False,
        )  # fmt: skip

    def _push_metrics(self) -> Iterator[NotTaken]:
        failed = 0
        for push in self._sources():
            failure = push()
            if failure is not None:
                yield failure
                failed += failure.extent != "part"
            if failed >= _MAX_FAILED or (failure is not None and failure.extent == "now"):
                return

    def _sources(self) -> Iterator[Callable[[], NotTaken | None]]:
        """One request each, so that no more than one host's metrics are in memory."""
        yield partial(self._push, "vgpuctl", self.living.name, process_families(self.process), 0.0)
        if self.living.leads:
            yield partial(self._push, "vgpuctl", self.store.site, pool_families(self.services), 0.0)
        for host in self.services.readings.hosts():
            if turn_of(host.name, self.living.name, self.living.living) == 0:
                yield partial(self._push_host, host.name)

    def _push_host(self, name: str) -> NotTaken | None:
        """Whichever controller pushes them, a host's series are those of its agent."""
        try:
            host = self.services.readings.of_host(name)
        except NotFound:
            return None  # it went just now
        age_s = 0.0 if host.received is None else host.received.age_s
        return self._push(_AGENT, name, host_families(self.store.site, host), age_s, {"host.name": name})

    def _push(
        self,
        service: str,
        instance: str,
        families: Families,
        age_s: float,
        more: Mapping[str, str] | None = None,
    ) -> NotTaken | None:
        source = {**self._source(service, instance), **(more or {})}
        return self.collector.metrics(source, series_of(families), time.time() - age_s)

    def _source(self, service: str, instance: str) -> dict[str, str]:
        return {
            "service.name": service,
            "service.instance.id": instance,
            "service.version": VERSION,
            "vgpuctl.site": self.store.site,
        }

    def _push_events(self) -> Iterator[NotTaken]:
        """At least once: the position is written down after the collector has taken them."""
        if not self.living.leads:
            return
        events, until = self.services.events, time.monotonic() + _EVENTS_S
        end, position = events.end(), self._position()
        while position < end and time.monotonic() < until:
            page = events.page(position, end, EventFilter())
            lines = [self._line(event) for event in page.events]
            if position < page.pruned:
                lines.insert(0, _gap(time.time()))
            source = self._source("vgpuctl", self.store.site)
            failure = self.collector.events(source, lines) if lines else None
            if failure is not None:
                yield failure
                if failure.extent == "now":
                    return
            position = page.events[-1].number if len(page.events) == PAGE else end
            with self.store.begin() as tx:
                tx.meta.put(POSITION, str(position))

    def _push_flows(self) -> Iterator[NotTaken]:
        """Not those of hosts that another controller tells of. What was taken of a batch is not sent again with it."""
        source, until = self._source("vgpuctl", self.living.name), time.monotonic() + _EVENTS_S
        if not self._flow_lines:
            new = self.flows.new()
            self._flow_lines = event_lines(new)
            self.flows.passed_on(new)
        while self._flow_lines and time.monotonic() < until:
            failure = self.collector.events(source, self._flow_lines[:PAGE])
            if failure is not None:
                yield failure
                if failure.extent == "now":
                    return
            del self._flow_lines[:PAGE]

    def _position(self) -> int:
        """A new collector is told what happens from now on."""
        with self.store.read() as tx:
            known = tx.meta.get(POSITION)
        if known is not None:
            return int(known)
        end = self.services.events.end()
        with self.store.begin() as tx:
            tx.meta.put(POSITION, str(end))
        return end

    def _line(self, event: FleetEvent) -> EventLine:
        change = event.change
        about = {"tenant": change.tenant, "host.name": change.host, "subject": change.subject, "state": change.state}
        attributes = {
            "id": self.services.events.ids.of(event.number),
            "name": change.name,
            **{name: value for name, value in about.items() if value is not None},
            **change.details,
        }
        now = change.details.get("step") or change.details.get("code") or change.state or ""
        return EventLine(
            name=f"vgpuctl.{change.noun}.{change.change}",
            text=f"{change.noun} {change.name}: {change.change} {now}".rstrip(),
            severity=_severity(change),
            at=event.at,
            attributes=attributes,
        )


def _severity(change: FleetChange) -> Severity:
    if change.noun == "finding":
        return _OF_FINDINGS.get(change.details.get("severity", ""), "info") if change.change == "opened" else "info"
    return _OF_STATES.get(change.state or "", "info")


def _gap(now: float) -> EventLine:
    text = "events before this were forgotten before the collector could be told"
    return EventLine(name="vgpuctl.gap", text=text, severity="warning", at=now, attributes={"reason": "forgotten"})


@contextmanager
def pushed(settings: Settings, app: App, process: Process) -> Iterator[None]:
    """While the block lasts, the collector of the settings is told; nothing is done or imported without one.

    :raises InvalidInput: ``settings.invalid``
    """
    if settings.otlp_endpoint is None:
        yield
        return
    pushing = Pushing(
        services=app.services, process=process, store=app.store, living=app.living,
        collector=collector_of(settings, settings.otlp_endpoint), flows=feed_of(app), every_s=settings.otlp_seconds,
    )  # fmt: skip
    before = process.timers
    process.timers = lambda: (*before(), pushing.health())
    timer = Timer({"otlp": pushing.round}, settings.otlp_seconds)
    timer.start()
    try:
        yield
    finally:
        timer.stop()
        pushing.collector.close()


def collector_of(settings: Settings, endpoint: str) -> Telemetry:
    """:raises InvalidInput: ``settings.invalid``"""
    headers = {} if settings.otlp_headers_file is None else _headers(settings.otlp_headers_file)
    parts = urlsplit(endpoint)
    if headers and parts.scheme == "http" and parts.hostname not in _HERE:
        raise InvalidInput(
            "settings.invalid",
            "otlp_headers_file would be sent readable to all: otlp_endpoint is not https",
            hint="name an address that begins with https://, or one of this machine",
        )
    if settings.otlp_ca_file is not None:
        try:
            ssl.create_default_context(cadata=read_certificates(settings.otlp_ca_file))
        except (OSError, ValueError) as error:
            raise _unusable("otlp_ca_file", settings.otlp_ca_file, "holds no certificates to trust") from error
    try:
        from orchestrator.adapters.otlp.exporter import OtlpExporter  # few servers need it, and it is slow to import
    except ImportError as error:
        raise InvalidInput(
            "settings.invalid",
            "otlp_endpoint is set, and OpenTelemetry's SDK is not installed",
            hint="install vgpuctl[otlp] beside vgpuctl[server], or take the setting away",
        ) from error
    return OtlpExporter(endpoint, headers, settings.otlp_ca_file)


def _headers(file: Path) -> dict[str, str]:
    """``Name: value`` each line."""
    try:
        content = read_at_most(file, _MAX_HEADERS)
    except (OSError, ValueError) as error:
        raise _unusable("otlp_headers_file", file, "cannot be read") from error
    lines = [] if content is None else content.decode("ascii", errors="replace").splitlines()
    matched = [_HEADER.fullmatch(line) for line in lines if line.strip()]
    headers = {match[1]: match[2] for match in matched if match is not None}
    if not matched or len(headers) != len(matched):
        raise _unusable("otlp_headers_file", file, "does not have a header 'Name: value' in each line")
    return headers


def _unusable(setting: str, file: Path, why: str) -> InvalidInput:
    return InvalidInput(
        "settings.invalid", f"{setting} {ascii(str(file))[:100]} {why}", hint="name a file that the server can read"
    )
