# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import os
import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from anyio import fail_after, to_thread
from fastapi import FastAPI

from orchestrator.api.app import create_app
from orchestrator.api.limits import Activity
from orchestrator.api.routes import health
from orchestrator.api.services import Process
from orchestrator.core.hosts.snapshot import FileSnapshot
from orchestrator.core.tenancy.access import EVERYWHERE, Role
from orchestrator.ports.timers import TimerHealth
from tests.fakes.asking import ask, ask_within
from tests.fakes.control_plane import L40S_HOST, T4_HOST, create_vm, plane_with
from tests.fakes.services import InMemory

PAGE = Path(__file__).parents[3] / "docs/reference/metrics.md"
ME = os.geteuid()
GIB = 1024**3
OBSERVE = TimerHealth(name="observe", every_s=10, good_ago_s=2.4, failed=3, error="planted-secret")


@pytest.fixture
def fake() -> InMemory:
    made = InMemory()
    made.record_enrolled()
    return made


@pytest.fixture
def process() -> Process:
    return Process(started_at=0, idle_seconds=None, activity=Activity(), timers=lambda: (OBSERVE,))


@pytest.fixture
def app(fake: InMemory, process: Process) -> FastAPI:
    return create_app(fake.as_services(), process)


def test_what_is_stored_is_counted(app: FastAPI, fake: InMemory) -> None:
    fake.world.begin("create_vm", "secret-name", None, lambda: None)
    told = ask(app, "GET", "/metrics", uid=ME)
    assert (told.status, told.headers["content-type"].split(";")[0]) == (200, "text/plain")
    lines = told.body.splitlines()
    assert 'vgpuctl_operations{kind="create_vm",state="queued"} 1.0' in lines
    hosts = sum(float(line.split()[-1]) for line in lines if line.startswith("vgpuctl_hosts{"))
    assert hosts == len(fake.world.hosts)
    assert {line.split("{")[1].split("}")[0] for line in lines if line.startswith("vgpuctl_vgpu_licences{")} == {
        f'state="{state}"' for state in ("licensed", "unlicensed", "unknown")
    }
    claims = [line for line in lines if line.startswith("vgpuctl_gpu_claims{")]
    assert [float(line.split()[-1]) for line in claims] == [len(fake.world.vms) * len(fake.world.hosts)]
    assert "secret-name" not in told.body


def test_what_volumes_can_hold_and_what_is_used_of_it_and_of_the_hosts_is_told(app: FastAPI, fake: InMemory) -> None:
    fake.tenancy.tenants.create("own")
    fake.volumes.create("own", "secret-name", 5 * GIB)
    (volume,) = fake.volumes.all()
    seen = fake.world.hosts["gpu1"].snapshot
    assert seen is not None
    file = FileSnapshot(name=volume.file, size_bytes=2 * GIB, owner=None)
    foreign = FileSnapshot(name="foreign", size_bytes=GIB, owner=None)
    seen = replace(seen, storage_free_bytes=3 * GIB, storage_total_bytes=10 * GIB, data=(file, foreign))
    fake.world.hosts["gpu1"] = replace(fake.world.hosts["gpu1"], snapshot=seen)
    told = ask(app, "GET", "/metrics", uid=ME).body
    values = dict(re.findall(r"^(vgpuctl_(?:host_storage|volume)\S*) (\S+)$", told, re.MULTILINE))
    assert {name: float(value) / GIB for name, value in values.items() if name != "vgpuctl_volumes"} == {
        'vgpuctl_host_storage_bytes{state="free"}': 3, 'vgpuctl_host_storage_bytes{state="used"}': 7,
        "vgpuctl_volume_size_bytes": 5, "vgpuctl_volume_used_bytes": 2,
    }  # fmt: skip
    assert float(values["vgpuctl_volumes"]) == 1
    assert "secret-name" not in told


def test_what_is_free_and_fits_and_how_full_quotas_are_is_told_without_a_tenants_name(tmp_path: Path) -> None:
    with plane_with(tmp_path, T4_HOST, L40S_HOST) as plane:
        plane.services.tenancy.tenants.create("planted-secret")
        plane.services.tenancy.quotas.change("planted-secret", {"vgpus": 4})
        plane.services.vms.create(replace(create_vm("planted-secret"), tenant="planted-secret", host=T4_HOST))
        plane.engine.drain()
        plane.reconciler.round()
        process = Process(started_at=0, idle_seconds=None, activity=Activity(), backed_up_at=lambda: 12.0)
        app = create_app(plane.services, process)
        told = ask(app, "GET", "/metrics", uid=ME).body
        plane.machine(L40S_HOST).away = True
        plane.reconciler.round()
        assert 'vgpuctl_findings{code="host.unreachable"} 1.0' in ask(app, "GET", "/metrics", uid=ME).body
    lines = told.splitlines()
    assert {
        'vgpuctl_gpus_free{model="Tesla T4",on="empty"} 1.0', 'vgpuctl_gpus_free{model="Tesla T4",on="in_use"} 0.875',
        'vgpuctl_gpus_free{model="L40S",on="empty"} 2.0', 'vgpuctl_gpu_claims{model="Tesla T4"} 1.0',
        'vgpuctl_profile_fits{profile="l40s-12q"} 8.0', 'vgpuctl_quota_held_ratio{resource="vgpus"} 0.25',
        "vgpuctl_backup_timestamp_seconds 12.0",
    } - set(lines) == set(), [line for line in lines if "free{" in line or "fits{" in line]  # fmt: skip
    assert "planted-secret" not in told


def test_answers_are_timed_by_route_and_never_by_a_callers_own_text(app: FastAPI) -> None:
    for path in ("/v1/vms", "/v1/vms/planted-secret", "/planted-secret", "/healthz"):
        ask(app, "GET", path, uid=ME)
    text = ask(app, "GET", "/metrics", uid=ME).body
    counted = re.findall(r'vgpuctl_http_request_seconds_count\{route="([^"]*)",status="([0-9]+)"\} 1.0', text)
    for method in (*(f"M{number}X" for number in range(20)), "PUT", "TRACE", "vms"):
        ask(app, method, "/v1/vms", uid=ME)
    text = ask(app, "GET", "/metrics", uid=ME).body
    labels = set(re.findall(r'route="([^"]*)"', text))
    assert labels <= {f"{route.method} {route.path}" for route in app.state.routes.routes} | {"other"}
    assert counted == [("GET /v1/vms", "200"), ("GET /v1/vms/{name}", "404"), ("other", "404"), ("GET /healthz", "200")]
    assert "planted-secret" not in text


def test_every_metric_is_in_the_reference_and_no_other(app: FastAPI) -> None:
    ask(app, "GET", "/v1/vms", uid=ME)
    told = set(
        re.findall(
            r"^# TYPE (\S+) (?:gauge|counter|histogram)$", ask(app, "GET", "/metrics", uid=ME).body, re.MULTILINE
        )
    )
    of_the_pool = PAGE.read_text().partition("\n## Of hosts and VMs\n")[0]
    written = set(re.findall(r"^\| `(vgpuctl_[a-z_]+)", of_the_pool, re.MULTILINE))
    assert {name for name in told if not name.endswith("_created")} == written


def test_only_who_may_watch_the_whole_pool_sees_metrics(app: FastAPI, fake: InMemory) -> None:
    fake.tenancy.tenants.create("own")
    places: list[tuple[str, Role]] = [(EVERYWHERE, "read-only"), ("own", "tenant-admin")]
    tokens = {role: fake.tenancy.tokens.create(place, role, None)[1] for place, role in places}
    seen = {role: ask(app, "GET", "/metrics", uid=None, token=token).status for role, token in tokens.items()}
    assert seen == {"read-only": 200, "tenant-admin": 403}
    assert ask(app, "GET", "/metrics", uid=None).status == 401


def test_whoever_watches_the_process_needs_no_name(app: FastAPI, process: Process) -> None:
    assert (ask(app, "GET", "/healthz", uid=None).status, ask(app, "GET", "/readyz", uid=None).status) == (200, 200)
    process.stopping = True
    assert (ask(app, "GET", "/healthz", uid=None).status, ask(app, "GET", "/readyz", uid=None).status) == (200, 503)


def test_a_server_that_no_longer_looks_at_its_hosts_is_not_ready(app: FastAPI, process: Process) -> None:
    told = ask(app, "GET", "/readyz", uid=None)
    assert (told.status, told.body) == (200, "ready\nobserve: went well 2 s ago, failed 3 times\n")
    process.timers = lambda: (replace(OBSERVE, good_ago_s=600),)
    told = ask(app, "GET", "/readyz", uid=None)
    assert (told.status, told.body.splitlines()[0]) == (503, "stalled")


def test_how_the_timers_go_is_measured(app: FastAPI) -> None:
    lines = ask(app, "GET", "/metrics", uid=ME).body.splitlines()
    assert 'vgpuctl_timer_good_ago_seconds{timer="observe"} 2.4' in lines
    assert 'vgpuctl_timer_failed_total{timer="observe"} 3.0' in lines


@pytest.mark.parametrize("path", ["/readyz", "/metrics"])
def test_who_watches_is_answered_while_every_thread_that_serves_requests_is_busy(app: FastAPI, path: str) -> None:
    async def play() -> int:
        threads = to_thread.current_default_thread_limiter()
        for number in range(int(threads.total_tokens)):
            threads.acquire_on_behalf_of_nowait(number)
        with fail_after(30):
            return (await ask_within(app, "GET", path, ME)).status

    assert asyncio.run(play()) == 200


def test_a_database_that_does_not_answer_is_said_to_be_busy(
    app: FastAPI, fake: InMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = threading.Event()
    monkeypatch.setattr(health, "READ_S", 0.01)
    monkeypatch.setattr(fake.operations, "list", lambda **_: answer.wait(30))

    async def play() -> int:
        status = (await ask_within(app, "GET", "/readyz", ME)).status
        answer.set()
        return status

    assert asyncio.run(play()) == 503
