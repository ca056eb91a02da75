# SPDX-License-Identifier: Apache-2.0
"""Flows that networks log, for others: as JSON lines in a file, and as events for a collector of OpenTelemetry."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from orchestrator.adapters.engine.timer import Timer
from orchestrator.adapters.files.appended import AppendedFile
from orchestrator.api.services import Process
from orchestrator.core.controller import turn_of
from orchestrator.core.errors import InvalidInput, Retryable
from orchestrator.core.readings.frame import PERIOD_S
from orchestrator.ports.telemetry import EventLine
from orchestrator.ports.timers import TimerHealth
from orchestrator.server.bootstrap import App
from orchestrator.server.settings import Settings
from orchestrator.services.readings.flow_feed import FlowFeed, FlowOnRecord, FlowsOnRecord

MAX_BYTES: Final = 256 * 1024 * 1024
"""Of the file; as much again is in the one before it."""


def feed_of(app: App) -> FlowFeed:
    """Of hosts that this controller is the first of those that live to tell of."""
    living = app.living
    return FlowFeed(
        store=app.store, kept=app.services.readings.kept,
        is_ours=lambda host: turn_of(host, living.name, living.living) == 0,
    )  # fmt: skip


def event_lines(new: FlowsOnRecord) -> list[EventLine]:
    """What was left out comes last."""
    lines = [_event(each) for each in new.flows]
    for host, count in new.left_out.items():
        text = f"flows of {host}: {count} were left out, more than there is room for"
        about = {"host.name": host, "left_out": str(count)}
        gap = EventLine(name="vgpuctl.flow.left_out", text=text, severity="warning", at=time.time(), attributes=about)
        lines.append(gap)
    return lines


def _event(each: FlowOnRecord) -> EventLine:
    fields = {name: str(value) for name, value in _fields(each).items() if value is not None}
    about = fields | {"host.name": fields.pop("host")}
    about.pop("at")
    flow, to = each.seen.flow, f"{about['target']} {about['protocol']} {about.get('port', '')}".rstrip()
    text = f"{each.tenant}/{each.network}: {about['verdict']} from {about['source']} to {to}"
    return EventLine(name="vgpuctl.flow", text=text, severity="info", at=flow.at, attributes=about)


def _fields(each: FlowOnRecord) -> dict[str, str | int | None]:
    flow, rule = each.seen.flow, each.seen.rule
    return {
        "at": datetime.fromtimestamp(flow.at, UTC).isoformat(timespec="milliseconds"),
        "tenant": each.tenant, "network": each.network, "host": each.host, "vm": each.seen.vm,
        "direction": flow.direction, "verdict": "refused" if flow.refused else "allowed", "protocol": flow.protocol,
        "source": flow.source, "target": flow.target, "port": flow.port, "other": each.seen.other,
        "group": each.seen.group, "rule": None if rule is None else str(rule), "packets": flow.packets,
    }  # fmt: skip


def json_lines(new: FlowsOnRecord) -> bytes:
    """What was left out comes last."""
    now = datetime.now(UTC).isoformat(timespec="milliseconds")
    objects: list[dict[str, str | int | None]] = [_fields(each) for each in new.flows]
    objects += [{"at": now, "host": host, "left_out": count} for host, count in new.left_out.items()]
    return "".join(f"{json.dumps(each)}\n" for each in objects).encode()


@dataclass(kw_only=True)
class FlowFile:
    """What cannot be written is tried again, as long as it is kept."""

    feed: FlowFeed
    file: AppendedFile

    def round(self) -> None:
        """:raises Retryable: ``flows.not_written``"""
        new = self.feed.new()
        if lines := json_lines(new):
            try:
                self.file.add(lines)
            except OSError as error:
                raise Retryable(
                    "flows.not_written", f"{str(self.file.path)!a} takes no flows", details=str(error)
                ) from error
        self.feed.passed_on(new)


@contextmanager
def flows_written(settings: Settings, app: App, process: Process) -> Iterator[None]:
    """While the block lasts, flows are added to the file of the settings; nothing is done without one.

    :raises InvalidInput: ``settings.invalid``
    """
    if settings.flow_log_file is None:
        yield
        return
    file = AppendedFile(path=settings.flow_log_file, max_bytes=MAX_BYTES)
    try:
        file.add(b"")
    except (OSError, ValueError) as error:
        raise InvalidInput(
            "settings.invalid", f"flow_log_file {ascii(str(file.path))[:100]} cannot be written",
            details=str(error), hint="name a file in a directory that the server's user can write to",
        ) from error  # fmt: skip
    timer = Timer({"flow log": FlowFile(feed=feed_of(app), file=file).round}, PERIOD_S)
    before = process.timers
    process.timers = lambda: (*before(), *(_beside(health) for health in timer.health()))
    timer.start()
    try:
        yield
    finally:
        timer.stop()


def _beside(health: TimerHealth) -> TimerHealth:
    """The server is well without its file."""
    return replace(health, vital=False)
