# SPDX-License-Identifier: Apache-2.0
"""Flows of networks in a file, and at a collector of OpenTelemetry."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.engine.live_controllers import LiveControllers
from orchestrator.adapters.files.appended import AppendedFile
from orchestrator.adapters.otlp.exporter import OtlpExporter
from orchestrator.api.limits import Activity
from orchestrator.api.services import Process
from orchestrator.core.errors import Retryable
from orchestrator.core.readings.flows import NO_CARD, Flow
from orchestrator.core.readings.frame import HostFrame
from orchestrator.server.flow_records import FlowFile
from orchestrator.server.pushing import Pushing
from orchestrator.services.readings.flow_feed import FlowFeed
from tests.fakes.control_plane import T4_HOST, ControlPlane
from tests.fakes.flow_logs import NOW, logged_network, refused_flow, set_flow_log, vm_of
from tests.fakes.otlp_receiver import Collector, attributes_of, otlp_collector
from tests.fakes.ovn_databases import RealOvn


class Scene:
    def __init__(self, plane: ControlPlane, directory: Path) -> None:
        self.plane, self.path = plane, directory / "flows.jsonl"
        self.is_ours = True
        set_flow_log(plane, "refused")
        self.flow = refused_flow(plane)
        self.file = FlowFile(feed=self.feed(), file=AppendedFile(path=self.path, max_bytes=2000))

    def feed(self) -> FlowFeed:
        kept = self.plane.services.readings.kept
        return FlowFeed(store=self.plane.store, kept=kept, is_ours=lambda _: self.is_ours)

    def pushing(self, collector: Collector) -> Pushing:
        process = Process(started_at=0.0, idle_seconds=None, activity=Activity(), timers=tuple)
        return Pushing(
            services=self.plane.services, process=process, store=self.plane.store,
            living=LiveControllers(self.plane.store, "one", alone=True), flows=self.feed(),
            collector=OtlpExporter(collector.url, {}, None), every_s=5.0,
        )  # fmt: skip

    def came(self, *flows: Flow, left_out: int = 0) -> None:
        counts = {NO_CARD: left_out} if left_out else {}
        self.plane.services.readings.kept.receive(T4_HOST, HostFrame(NOW, (), (), flows, (), counts))

    def written(self) -> list[dict[str, Any]]:
        """By the next round."""
        before = self.path.stat().st_size if self.path.exists() else 0
        self.file.round()
        return [json.loads(line) for line in self.path.read_text()[before:].splitlines()]


@pytest.fixture
def scene(tmp_path: Path, ovn: RealOvn) -> Iterator[Scene]:
    with logged_network(tmp_path, ovn) as plane:
        yield Scene(plane, tmp_path)


def test_a_line_tells_whose_flow_it_was_and_which_rule_said_so(scene: Scene) -> None:
    scene.came(scene.flow, replace(scene.flow, rule="0" * 36), replace(scene.flow, card="52:54:00:00:00:99"))
    (line,) = scene.written()
    assert line == {
        "at": "2027-01-15T07:59:50.000+00:00", "tenant": "default", "network": "blue", "host": T4_HOST, "vm": "db",
        "direction": "in", "verdict": "refused", "protocol": "tcp", "source": "10.0.0.200",
        "target": vm_of(scene.plane, "db").ports[0].address, "port": 22, "other": None, "group": "db", "rule": None,
        "packets": 3,
    }  # fmt: skip
    assert scene.path.stat().st_mode & 0o177 == 0


def test_each_flow_is_written_once_and_what_is_missing_is_counted(scene: Scene) -> None:
    scene.came(scene.flow)
    assert len(scene.written()) == 1
    assert scene.written() == []
    scene.came(replace(scene.flow, port=23), left_out=5)
    first, second = scene.written()
    assert (first["port"], second["host"], second["left_out"]) == (23, T4_HOST, 5)
    scene.is_ours = False  # another controller writes it
    scene.came(scene.flow, left_out=1)
    assert scene.written() == []
    scene.is_ours = True
    assert scene.written() == []
    set_flow_log(scene.plane, "off")
    scene.came(scene.flow)
    assert scene.written() == []


def test_a_file_may_be_renamed_and_has_an_end(scene: Scene) -> None:
    scene.came(scene.flow)
    scene.written()
    scene.path.rename(scene.path.with_name("rotated"))
    scene.came(replace(scene.flow, port=23))
    assert [line["port"] for line in scene.written()] == [23]
    scene.came(*(replace(scene.flow, port=port) for port in range(30, 40)))
    scene.file.round()
    older = scene.path.with_name("flows.jsonl.1")
    assert not older.exists()
    scene.came(scene.flow)
    scene.file.round()
    assert [json.loads(line)["port"] for line in older.read_text().splitlines()] == [23, *range(30, 40)]
    assert [json.loads(line)["port"] for line in scene.path.read_text().splitlines()] == [22]


def test_what_cannot_be_written_is_written_later(scene: Scene) -> None:
    scene.path.mkdir()
    scene.came(scene.flow)
    with pytest.raises(Retryable) as refused:
        scene.file.round()
    assert refused.value.code == "flows.not_written"
    scene.path.rmdir()
    os.mkfifo(scene.path)
    with pytest.raises(Retryable):
        scene.file.round()
    scene.path.unlink()
    scene.came(replace(scene.flow, port=23))
    assert [line["port"] for line in scene.written()] == [22, 23]


def test_a_full_disk_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = AppendedFile(path=tmp_path / "flows", max_bytes=1000)
    file.add(b"first\n")
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, lines: write(descriptor, lines[:3]))
    with pytest.raises(OSError, match="No space"):
        file.add(b"second\n")
    assert file.path.read_bytes() == b"first\n"


def test_a_collector_has_each_flow_and_what_came_while_it_was_away(scene: Scene) -> None:
    with otlp_collector() as collector:
        pushing = scene.pushing(collector)
        scene.came(scene.flow, left_out=2)
        pushing.round()
        flow, gap = [line for line in collector.lines if line.event_name.startswith("vgpuctl.flow")]
        target = vm_of(scene.plane, "db").ports[0].address
        assert flow.body.string_value == f"default/blue: refused from 10.0.0.200 to {target} tcp 22"
        assert flow.time_unix_nano == int((NOW - 10) * 1e9)
        about = attributes_of(flow.attributes)
        assert (about["tenant"], about["network"], about["vm"], about["host.name"]) == (
            "default",
            "blue",
            "db",
            T4_HOST,
        )
        assert (about["packets"], about["port"], about["group"], "rule" in about) == ("3", "22", "db", False)
        assert (gap.event_name, gap.severity_text) == ("vgpuctl.flow.left_out", "WARNING")
        assert attributes_of(gap.attributes)["left_out"] == "2"
        collector.lines.clear()
        collector.status, collector.path = 401, "logs"
        scene.came(replace(scene.flow, port=23))
        pushing.round()
        collector.status = 200
        pushing._not_before = 0.0
        scene.came(replace(scene.flow, port=24))
        pushing.round()
        pushing.round()
        flows = [line for line in collector.lines if line.event_name == "vgpuctl.flow"]
        assert [attributes_of(line.attributes)["port"] for line in flows] == ["23", "24"]


def test_what_a_collector_has_taken_of_a_batch_is_not_sent_again_with_the_rest(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that takes so much at a time would have the first of them for ever, and never the last."""
    monkeypatch.setattr("orchestrator.server.pushing.PAGE", 2)
    with otlp_collector() as collector:
        pushing, ports = scene.pushing(collector), list(range(20, 25))

        def told() -> list[int]:
            flows = [line for line in collector.lines if line.event_name == "vgpuctl.flow"]
            return [int(attributes_of(line.attributes)["port"]) for line in flows]

        def full() -> None:
            collector.status, collector.path = 401 if told()[-2:-1] == [20] else 200, "logs"

        collector.answers = full
        scene.came(*(replace(scene.flow, port=port) for port in ports))
        pushing.round()
        assert told() == ports[:2]
        collector.answers, collector.status, pushing._not_before = tuple, 200, 0.0
        pushing.round()
        assert told() == ports
