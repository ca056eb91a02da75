# SPDX-License-Identifier: Apache-2.0
"""What a collector of OpenTelemetry is told, by the SDK's own exporters over HTTP, with a collector that has faults."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)

from orchestrator.adapters.engine.live_controllers import LiveControllers
from orchestrator.adapters.otlp import exporter
from orchestrator.adapters.otlp.exporter import OtlpExporter
from orchestrator.api.limits import Activity
from orchestrator.api.services import Process
from orchestrator.catalogue.metric_names import HARDWARE_NAMES
from orchestrator.core.errors import InvalidInput
from orchestrator.core.readings.quantities import BY_NAME
from orchestrator.ports.timers import TimerHealth
from orchestrator.server.pushing import POSITION, Pushing, collector_of
from orchestrator.server.settings import Settings
from orchestrator.services.readings.flow_feed import FlowFeed
from tests.fakes.certificate import new_certificate
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.dripping import BODY, HEAD, STATUS, dripping
from tests.fakes.fake_machine import snapshot_of
from tests.fakes.frames import frame_of
from tests.fakes.otlp_receiver import Collector, attributes_of, otlp_collector


class Scene:
    """A host with a VM that has sent a frame, one that has sent none, and a collector."""

    def __init__(self, plane: ControlPlane, collector: Collector) -> None:
        self.plane, self.collector = plane, collector
        plane.add_host(T4_HOST)
        plane.add_host(L40S_HOST)
        self.pushing = self.controller("one")
        plane.services.vms.create(replace(create_vm("train"), host=T4_HOST))
        plane.engine.drain()
        plane.reconciler.round()
        self.vm = plane.services.vms.get("default", "train")
        self.snapshot = snapshot_of(plane.machine(T4_HOST))
        plane.services.readings.kept.receive(T4_HOST, frame_of(self.snapshot, self.vm))
        self.pushing.round()
        self.before = len(collector.lines)

    def controller(self, name: str, *, alone: bool = True) -> Pushing:
        timers = (TimerHealth(name="observe", every_s=1.0, good_ago_s=3.0, failed=2, error=None),)
        process = Process(started_at=0.0, idle_seconds=None, activity=Activity(), timers=lambda: timers)
        made = Pushing(
            services=self.plane.services, process=process, store=self.plane.store,
            living=LiveControllers(self.plane.store, name, alone=alone),
            collector=OtlpExporter(self.collector.url, {}, None), every_s=5.0,
            flows=FlowFeed(store=self.plane.store, kept=self.plane.services.readings.kept, is_ours=lambda _: True),
        )  # fmt: skip
        made.round()
        return made

    def at_once(self, pushing: Pushing | None = None) -> None:
        """A round, however long it would wait after a failure."""
        pushing = pushing or self.pushing
        pushing._not_before = 0.0
        pushing.round()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr(exporter, "LIMIT_S", 3.0)
    plane = control_plane(tmp_path)
    with otlp_collector() as collector:
        yield Scene(plane, collector)
    plane.reconciler.close()
    plane.store.close()


def test_hardware_has_the_names_of_the_conventions(scene: Scene) -> None:
    uuid = scene.snapshot.gpus[0].uuid
    (busy,) = scene.collector.named("hw.gpu.utilization", **{"hw.id": uuid})
    assert (busy.number, busy.unit, busy.counter) == (0.37, "1", False)
    assert busy.attributes == {"hw.id": uuid, "hw.model": "Tesla T4", "hw.type": "gpu", "hw.gpu.task": "general"}
    assert busy.source["host.name"] == busy.source["service.instance.id"] == T4_HOST
    assert busy.source["vgpuctl.site"] == "site"
    assert busy.at == pytest.approx(time.time(), abs=60)
    (energy,) = scene.collector.named("hw.energy", **{"hw.id": uuid})
    assert (energy.number, energy.unit, energy.counter) == (123456.0, "J", True)
    (hot,) = scene.collector.named("hw.temperature", **{"hw.id": uuid})
    assert (hot.unit, hot.attributes["hw.sensor_location"], "sensor" in hot.attributes) == ("Cel", "gpu", False)


def test_all_else_is_called_as_on_the_pages(scene: Scene) -> None:
    (vgpu,) = scene.collector.named("vgpuctl_vgpu_sm_ratio")
    assert (vgpu.number, vgpu.attributes["vm"]) == (0.21, scene.vm.id)
    (clock,) = scene.collector.named("vgpuctl_gpu_clock_hertz", **{"hw.id": scene.snapshot.gpus[0].uuid})
    assert (clock.attributes["clock"], clock.unit) == ("sm", "Hz")
    assert {point.attributes["name"] for point in scene.collector.named("vgpuctl_vm_info")} == {"train"}
    present = {
        point.source["host.name"]: point.number for point in scene.collector.named("vgpuctl_host_readings_present")
    }
    assert present == {T4_HOST: 1.0, L40S_HOST: 0.0}
    ready = scene.collector.named("vgpuctl_hosts", state="ready")[-1]
    assert (ready.number, ready.source["service.instance.id"]) == (2, "site")
    failed = scene.collector.named("vgpuctl_timer_failed_total", timer="observe")[-1]
    assert (failed.number, failed.counter, failed.source["service.instance.id"]) == (2, True, "one")


def test_operations_and_findings_are_events(scene: Scene) -> None:
    scene.plane.services.vms.delete("default", "train")
    scene.plane.engine.drain()
    scene.plane.machine(T4_HOST).away = True
    scene.plane.reconciler.round()
    scene.pushing.round()
    told = scene.collector.told()
    assert ("vgpuctl.vm.removed", "vm train: removed deleting") in told
    (done,) = [line for line in scene.collector.lines if line.body.string_value.endswith(": state done")][-1:]
    about = attributes_of(done.attributes)
    assert (about["kind"], about["tenant"], about["subject"]) == ("delete_vm", "default", "default/train")
    ids = [attributes_of(line.attributes)["id"] for line in scene.collector.lines]
    assert len(set(ids)) == len(ids)
    assert {line.severity_text for line in scene.collector.lines if line.event_name == "vgpuctl.finding.opened"} <= {
        "WARNING", "ERROR",
    }  # fmt: skip


@pytest.mark.parametrize("status", [503, 429, 401, 302, 500])
def test_events_wait_for_a_collector_that_is_away_and_come_once(scene: Scene, status: int) -> None:
    scene.collector.status, scene.collector.path = status, "logs"
    scene.plane.services.tenancy.tenants.create("later")
    scene.at_once()
    assert len(scene.collector.lines) == scene.before
    assert str(status) in str(scene.pushing.health().error)
    scene.collector.status = 200
    scene.at_once()
    scene.at_once()
    assert scene.collector.told()[scene.before :] == [("vgpuctl.tenant.created", "tenant later: created")]
    assert (scene.pushing.health().error, scene.pushing.health().failed) == (None, 1)


def test_what_a_collector_refuses_for_good_holds_nothing_up(scene: Scene) -> None:
    scene.collector.status, scene.collector.path = 400, "logs"
    scene.plane.services.tenancy.tenants.create("refused")
    scene.at_once()
    scene.collector.status = 200
    scene.plane.services.tenancy.tenants.create("taken")
    scene.at_once()
    assert [text for _, text in scene.collector.told()][-1:] == ["tenant taken: created"]
    assert "tenant refused: created" not in [text for _, text in scene.collector.told()]


def test_a_collector_that_is_gone_is_told_of_once_and_asked_more_and_more_rarely(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.pushing.collector = OtlpExporter("http://127.0.0.1:9", {}, None)
    with caplog.at_level(logging.INFO):
        pauses = []
        for _ in range(8):
            scene.at_once()
            pauses.append(scene.pushing._not_before - time.monotonic())
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "the collector of otlp_endpoint has not taken what it was sent"
    ]
    assert [*pauses[:2], pauses[-1]] == pytest.approx([5, 15, 295], abs=4)
    assert scene.pushing.health().failed == 8
    assert not scene.pushing.health().stalled


def test_a_collector_that_hangs_holds_a_round_for_a_moment_only(scene: Scene) -> None:
    over = threading.Event()
    scene.collector.answers = lambda: over.wait(60)
    began = time.monotonic()
    scene.at_once()
    assert time.monotonic() - began < 30
    over.set()
    assert "Read timed out" in str(scene.pushing.health().error)


@pytest.mark.parametrize(("first", "why"), [(BODY, None), (HEAD, "ReadTimeout"), (STATUS, "ReadTimeout")])
def test_an_answer_that_never_ends_holds_a_round_for_a_moment_only(
    monkeypatch: pytest.MonkeyPatch, first: bytes, why: str | None
) -> None:
    monkeypatch.setattr(exporter, "LIMIT_S", 0.3)
    with dripping(first) as address:
        pushed, began = OtlpExporter(f"http://{address}", {}, None), time.monotonic()
        failure = pushed.events({"service.name": "x"}, [])
        assert time.monotonic() - began < 30
    assert (why is None and failure is None) or (failure is not None and str(why) in failure.why)


def test_what_a_collector_takes_in_part_is_said_and_counted_and_holds_nothing_up(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    refused = ExportMetricsPartialSuccess(rejected_data_points=7, error_message="too\nold")
    scene.collector.body = ExportMetricsServiceResponse(partial_success=refused).SerializeToString()
    scene.plane.services.tenancy.tenants.create("later")
    scene.collector.points.clear()
    for _ in range(2):
        scene.pushing.round()  # no pause after what was taken in part
    sources = {point.source["service.instance.id"] for point in scene.collector.points}
    assert sources == {"one", "site", T4_HOST, L40S_HOST}
    assert scene.collector.told()[-1:] == [("vgpuctl.tenant.created", "tenant later: created")]
    health = scene.pushing.health()
    assert (health.failed, health.error) == (
        2,
        "the collector has not taken all: it has refused 7 of a request: too old",
    )
    assert [record.message for record in caplog.records] == [
        "the collector of otlp_endpoint has not taken what it was sent: it has refused 7 of a request: too old"
    ]
    scene.collector.body = b"\xff no protobuf"
    scene.pushing.round()
    assert scene.pushing.health().error is None


def test_a_new_collector_is_told_what_happens_from_now_on(scene: Scene) -> None:
    with scene.plane.store.begin() as tx:
        tx.meta.put(POSITION, str(tx.events.newest()))
    scene.collector.lines.clear()
    scene.at_once()
    assert scene.collector.told() == []


def test_who_was_away_for_longer_than_events_are_kept_is_told_a_gap(scene: Scene) -> None:
    with scene.plane.store.begin() as tx:
        tx.meta.put(POSITION, "1")
        tx.events.prune(kept=2, before=0.0, recent=1e12, most=1000)
    scene.collector.lines.clear()
    scene.at_once()
    assert scene.collector.told()[0][0] == "vgpuctl.gap"
    assert len(scene.collector.told()) == 3


def test_of_several_controllers_each_source_is_told_by_one(scene: Scene) -> None:
    controllers = [scene.controller(f"c{number}", alone=False) for number in range(3)]
    for controller in controllers * 2:
        controller.living.beat()
    scene.collector.lines.clear()
    scene.collector.points.clear()
    scene.plane.services.tenancy.tenants.create("told-once")
    for controller in controllers:
        scene.at_once(controller)
    sources = [point.source["service.instance.id"] for point in scene.collector.points]
    assert {T4_HOST, L40S_HOST, "site", "c0", "c1", "c2"} == set(sources)
    assert len(scene.collector.named("vgpuctl_host_readings_present")) == 2
    assert len(scene.collector.named("vgpuctl_build")) == 1
    assert scene.collector.told() == [("vgpuctl.tenant.created", "tenant told-once: created")]


def settings(tmp_path: Path, **chosen: Any) -> Settings:
    return Settings(state=tmp_path, **chosen)


def test_headers_of_a_file_go_over_tls_to_whom_the_ca_file_trusts(tmp_path: Path) -> None:
    tls = new_certificate(tmp_path)
    headers = tmp_path / "headers"
    headers.write_text("Authorization: Bearer planted-secret\nX-Scope-OrgID: gpus\n")
    with otlp_collector(tls) as collector:
        chosen = settings(tmp_path, otlp_endpoint=collector.url, otlp_headers_file=headers, otlp_ca_file=tls[0])
        assert collector_of(chosen, collector.url).metrics({}, (), 0.0) is None
        strange = settings(tmp_path, otlp_endpoint=collector.url, otlp_headers_file=headers)
        refused = collector_of(strange, collector.url).metrics({}, (), 0.0)
    (sent,) = collector.headers
    assert (sent["authorization"], sent["x-scope-orgid"]) == ("Bearer planted-secret", "gpus")
    assert refused is not None
    assert "certificate verify failed" in refused.why


@pytest.mark.parametrize(
    ("text", "endpoint", "says"),
    [
        ("Authorization: x", "http://collector.example:4318", "readable to all"),
        ("no header", "https://collector.example", "'Name: value'"),
        ("", "https://collector.example", "'Name: value'"),
        ("A: b\nB: c\x00d", "https://collector.example", "'Name: value'"),
        (None, "https://collector.example", "cannot be read"),
    ],
)
def test_headers_that_cannot_be_sent_are_refused(tmp_path: Path, text: str | None, endpoint: str, says: str) -> None:
    file = tmp_path / "headers"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InvalidInput, match=says) as refused:
        collector_of(settings(tmp_path, otlp_endpoint=endpoint, otlp_headers_file=file), endpoint)
    assert (refused.value.code, bool(refused.value.hint)) == ("settings.invalid", True)


def test_a_ca_file_without_certificates_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    file.write_text("none")
    with pytest.raises(InvalidInput, match="holds no certificates"):
        collector_of(settings(tmp_path, otlp_endpoint="https://c.example", otlp_ca_file=file), "https://c.example")


def test_conventions_are_of_quantities_and_their_labels() -> None:
    for quantity, label in HARDWARE_NAMES:
        assert BY_NAME[quantity].has_label(label), (quantity, label)
