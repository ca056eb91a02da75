# SPDX-License-Identifier: Apache-2.0
"""Examples in the API's description: what a server with hosts in memory answers. ``make docs`` writes them.

A test compares the fields of each with its schema, so that none is forgotten and none is of another version.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from starlette.testclient import TestClient

from orchestrator.api.openapi import EXAMPLES_FILE
from orchestrator.api.routes.backups import BackupAnswer
from orchestrator.api.routes.floating_addresses import FloatingAddressAnswer
from orchestrator.api.routes.gpu_cleanings import GpuCleaningAnswer
from orchestrator.api.routes.network_paths import NetworkPathAnswer
from orchestrator.api.routes.network_traffic import NetworkFlowsAnswer, NetworkTrafficAnswer
from orchestrator.api.routes.volume_snapshots import VolumeSnapshotAnswer
from orchestrator.api.schemas.vm_parts import DiskSnapshotAnswer, snapshot_members
from orchestrator.core.northbound.trace import Judgement
from orchestrator.core.readings.flows import Flow
from orchestrator.core.security_groups import ANYWHERE, SecurityRule
from orchestrator.core.vms.backup import Backup
from orchestrator.core.vms.cleaning import Cleaning
from orchestrator.core.vms.disk_snapshot import DiskSnapshot
from orchestrator.core.vms.volume import Volume
from orchestrator.services.floating_addresses import FloatingInfo
from orchestrator.services.network_paths import NetworkPath
from orchestrator.services.readings.networks import COUNTED, NetworkFlow, NetworkFlows, NetworkTraffic
from orchestrator.sim.pools import SimulatedPool
from tests.contract.api.real_app import furnished_plane, real_app
from tests.fakes.control_plane import A100_HOST, T4_HOST, ControlPlane
from tests.fakes.drivers import with_bundle
from tests.fakes.fake_machine import FakeMachine, snapshot_of, t4
from tests.fakes.frames import frame_of

MAX_SHOWN: Final = 2
"""Of a list in an example."""
VARIES: Final[dict[str, Any]] = {
    "pid": 4711, "token": "vgpuctl_WRITTEN_DOWN_ONCE", "secret": "WRITTEN_DOWN_ONCE", "ticket": "GOOD_ONCE",
    "key_id": "01014AB912C57EBE",
    "version": "0.1.0", "agent": "0.1.0",
    **dict.fromkeys(("certificate", "central", "hosts"), "-----BEGIN CERTIFICATE-----\n"),
    "age_s": 3.2, "ages_s": [13.2, 3.2], "clock_ahead_s": -0.1,
}  # fmt: skip
"""By the name of a field, where each server, or each run, says something else."""
DRAWN: Final = {
    re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z"): "2026-12-01T10:00:00Z",
    re.compile(r"[0-9a-f]{12}"): "8f14e45fceea",
    re.compile(r"[0-9a-f]{96}"): "5d" * 48,
}
"""Whole texts that are another in each run: times, ids of tokens, proofs."""
GPU: Final = "0000:41:00.0"
LAYOUT: Final = {"entries": [{"devices": [0], "mig-enabled": True, "mig-devices": {"3g.40gb": 2}}]}
UPGRADE: Final = {"version": "580.105.06", "hosts": [T4_HOST]}
VM: Final = {"profile": "GRID T4-4Q", "image": "guest", "vcpus": 2, "memory_mib": 1024, "disk_bytes": 1024**3}
KEY_REQUEST: Final = (
    "-----BEGIN CERTIFICATE REQUEST-----\n"
    "MIHLMHICAQAwEDEOMAwGA1UEAwwFZ3B1LTEwWTATBgcqhkjOPQIBBggqhkjOPQMB\n"
    "BwNCAARkMtcIsrDXR9/xRQbMSWMK01YMKjTEZ9SjRFCkUcgGiHSYy5F456QrMowm\n"
    "ZVjJzh+QWyzSdcXfjdDxd/Nqq3FpoAAwCgYIKoZIzj0EAwIDSQAwRgIhAMEbOB73\n"
    "fUzrj6dGLMRjbU88w4E35OWc/Mop2UoCvRJjAiEAqCWbq3tBVFxXF1UjdSS3lmr4\n"
    "me0Sxy8OQgCa9Nxx1hM=\n"
    "-----END CERTIFICATE REQUEST-----\n"
)
"""Made by openssl, of a key that is gone."""
SNAPSHOT: Final = DiskSnapshot(
    id="2f1c7c5e-6f0e-5b52-9a37-0d7c1a4f8e21", name="before-upgrade", size_bytes=1024**3, created_at=1796119200.0,
    taken_of="running", quiesced="no guest agent",
)  # fmt: skip
BACKUP: Final = Backup(
    id="9d3f2b0a-1c4e-5d6f-8a7b-6c5d4e3f2a1b", target="nas", tenant="default", vm_name="train", host=T4_HOST,
    vm="2f1c7c5e-6f0e-5b52-9a37-0d7c1a4f8e22", size_bytes=1024**3, created_at=1796119200.0, taken_of="running",
    quiesced="yes",
    added_bytes=52428800,
)  # fmt: skip
CLEANING: Final = Cleaning(
    id=41, host=T4_HOST, gpu=GPU, gpu_uuid="GPU-3b0f1f6e-2f5c-4d0a-9c0b-6b1c7f2d8e10", kind="mdev",
    type_name="GRID T4-2Q", device="7f1f8c1e-54a0-5f3e-8f2b-1f7b8f1d2a30", slots=(0,), tenant="default",
    vm_name="train", vm="2f1c7c5e-6f0e-5b52-9a37-0d7c1a4f8e22", operation="5d2c1f0a-9b8e-5c7d-8a6b-4e3f2a1b0c9d",
    ended_at=1796119200.0, cleaned_at=1796119200.0, method="vgpu_destroyed", health="healthy",
)  # fmt: skip
OFFERING: Final = {"name": "small", "kind": "time_sliced", "vgpu_type": "GRID T4-2Q"}
REQUESTS: Final[tuple[tuple[str, str, Any], ...]] = (
    ("POST", "vms", {**VM, "name": "render"}), ("GET", "vms/train", None), ("GET", "readings/vms", None),
    ("POST", "vms/plan", {**VM, "name": "planned"}), ("GET", "vms/train/console/log", None),
    ("POST", "vms/train/console-tickets", {"kind": "serial"}),
    ("POST", "hosts/scan", {"address": "t4.test"}), ("POST", f"hosts/{T4_HOST}/check", None),
    ("GET", f"hosts/{T4_HOST}", None), ("GET", f"gpus/{T4_HOST}/{GPU}", None), ("GET", "profiles/t4-2q", None),
    ("GET", "images/guest", None), ("POST", f"hosts/{A100_HOST}/mig-layout/plan", LAYOUT),
    ("GET", "tenants/default/networks/default", None), ("GET", "network-driver", None),
    ("POST", "network-driver/certificates", {"whose": "host", "name": "gpu-1", "request": KEY_REQUEST}),
    ("POST", "volumes", {"name": "data", "size_bytes": 1024**3}),
    ("PUT", "offerings", OFFERING), ("GET", "driver-bundles", None),
    ("PUT", "driver-lock", {"schema_version": 1, "site": {"host_driver": {"version": "580.105.06"}}}),
    ("GET", "driver-check", None), ("POST", f"hosts/{T4_HOST}/provision/plan", None),
    ("POST", "driver-upgrade", UPGRADE), ("GET", "vms/train/provision", None),
    ("GET", "maintenances", None),
    ("POST", "gpus/defragment/plan", {}),
    ("POST", f"power/gpus/{T4_HOST}/{GPU}", {"cap_watts": 200}),
    ("GET", "gpu-health", None), ("GET", f"gpu-health/{T4_HOST}/{GPU}", None),
    ("GET", "vms/train/moves", None),
    ("GET", "operations", None), ("GET", "capacity?profile=t4-2q", None), ("GET", "explain?profile=t4-2q", None),
    ("GET", "gpu-map", None), ("GET", "gpu-map/racks", None),
    ("GET", "status", None), ("GET", "server", None), ("GET", "tenants/default", None),
    ("PATCH", "tenants/default", {"description": "nodes of team A", "labels": {"Team": "a"}}),
    ("PUT", "tenants/default/members", {"subject": "uid:1000", "role": "tenant-admin"}),
    ("GET", "tenants/default/members", None), ("POST", "tenants/default/key/rotate", None),
    ("POST", "tenants/default/key/revoke", None),
    ("POST", "tokens", {"tenant": "default", "role": "read-only"}),
    ("GET", "tokens", None), ("GET", "tenants/default/quota", None), ("GET", "tenants/default/policy", None),
    ("GET", "audit", None), ("GET", "audit/export", None), ("GET", "audit/verify", None), ("GET", "whoami", None),
    ("GET", f"readings/hosts/{T4_HOST}?history=true", None), ("GET", "readings/vms/train?history=true", None),
    ("GET", "readings/hosts", None), ("GET", "readings/gpus", None),
    ("GET", "metrics/targets", None),
    ("POST", "webhooks", {"name": "chat", "url": "https://example.org/hook", "nouns": ["vm"]}),
    ("GET", "webhooks", None), ("GET", "vms/trian", None),
    ("POST", "findings/look", None), ("POST", "findings/repair", None), ("POST", "vms/render/stop", {}),
    ("POST", "vms/render/move/plan", {}), ("POST", "vms/render/resize/plan", {"profile": "t4-2q"}),
    ("POST", "security-groups", {"name": "web"}), ("POST", "pools", {"name": "fast"}), ("GET", "pools/fast", None),
    ("POST", "backup-targets", {"name": "nas"}), ("POST", "backup-policies", {"name": "nightly"}),
)  # fmt: skip
HTTPS: Final = SecurityRule(direction="in", protocol="tcp", first_port=443)
PATH: Final = NetworkPath(
    network="blue", receiver_network="blue", sender="10.0.0.10", receiver="10.0.0.11", receiver_vm="web",
    obstacles=(), arrives=True,
    judgements=(
        Judgement(direction="out", group="default", rule=ANYWHERE),
        Judgement(direction="in", group="web", rule=HTTPS),
    ),
)  # fmt: skip
"""OVN says it, which the server of the examples has none of."""
FLOATING: Final = FloatingInfo(
    address="192.0.2.107", network="outside", tenant="research", vm="web", vm_network="green"
)

FLOWS: Final = NetworkFlows(
    flow_log="all",
    flows=(
        NetworkFlow(
            flow=Flow(
                at=1796119200.0, rule="", direction="in", refused=False, card="", source="10.0.0.10",
                target="10.0.0.11", protocol="tcp", port=443, packets=12,
            ),
            vm="web", other="client", group="web", rule=HTTPS,
        ),
    ),
)  # fmt: skip
TRAFFIC: Final = NetworkTraffic(vms=("web",), silent=("client",), numbers=dict.fromkeys(COUNTED, 0.0))


VOLUME_SNAPSHOT: Final = Volume(
    id="6b1f0c1e-7a55-4a3f-9f43-0c6d4f7d2a18", tenant="default", name="data/before-upgrade", size_bytes=21474836480,
    host="gpu-1", vm=None, state="ready", created_at=1796119200.0,
)  # fmt: skip


def examples() -> dict[str, Any]:
    """By the name of the schema."""
    found: dict[str, Any] = {}
    with TemporaryDirectory() as directory:
        for name, body in _answers(Path(directory)):
            found.setdefault(name, _shortened(body))
    found["NetworkPath"] = NetworkPathAnswer.of(PATH).model_dump(mode="json")
    found["FloatingAddress"] = FloatingAddressAnswer.copied(FLOATING).model_dump(mode="json")
    found["DiskSnapshot"] = DiskSnapshotAnswer.model_validate(snapshot_members(SNAPSHOT)).model_dump(mode="json")
    found["VolumeSnapshot"] = VolumeSnapshotAnswer.of(VOLUME_SNAPSHOT).model_dump(mode="json")
    found["BackupSecret"] = {"secret": "GOOD_FOR_ALL_BACKUPS"}
    found["Backup"] = BackupAnswer.copied(BACKUP).model_dump(mode="json")
    found["GpuCleaning"] = GpuCleaningAnswer.of(CLEANING).model_dump(mode="json")
    found["NetworkFlows"] = NetworkFlowsAnswer.of(FLOWS).model_dump(mode="json")
    found["NetworkTraffic"] = NetworkTrafficAnswer.of(TRAFFIC).model_dump(mode="json")
    return dict(sorted(found.items()))


def _answers(directory: Path) -> Iterator[tuple[str, Any]]:
    """Names of schemas with what was answered."""
    plane = furnished_plane(directory)
    plane.add_host(A100_HOST)
    plane.machine(T4_HOST).pools["fast"] = SimulatedPool("fast")
    plane.observer.observe(T4_HOST)
    with_bundle(plane, "580.95.02")
    with_bundle(plane, "580.105.06")
    _send_readings(plane)
    client = TestClient(real_app(plane))
    paths = client.get("/v1/openapi.json").json()["paths"]
    for method, path, body in REQUESTS:
        if path.startswith("findings"):
            plane.machine(T4_HOST).domains.clear()
        if path.endswith("move/plan"):
            plane.hosts.machines["t4-2.test"] = FakeMachine(machine_id="m9", gpus=[t4()])
            plane.add_host("t4-2")
        answer = client.request(method, f"/v1/{path}", json=body)
        plane.engine.drain()
        if answer.status_code >= 400 and "trian" not in path:
            sys.exit(f"{method} {path}: {answer.text}")
        told = answer.json() if answer.content else None
        if told:
            yield _schema(paths, method, path, answer.status_code), _one(told)


def _send_readings(plane: ControlPlane) -> None:
    """The host of the VM sends two frames."""
    vm = plane.services.vms.get("default", "train")
    for _ in range(2):
        plane.world.clock.sleep(10)
        frame = frame_of(snapshot_of(plane.machine(vm.host)), vm, taken_at=plane.world.clock.now())
        plane.services.readings.kept.receive(vm.host, frame)


def _one(body: Any) -> Any:
    """Of a list the newest that tells something."""
    return max(body, key=lambda one: len(json.dumps(one))) if isinstance(body, list) else body


def _schema(paths: dict[str, Any], method: str, path: str, status: int) -> str:
    """What an answer to the request is called."""
    if status >= 400:
        return "Problem"
    words = path.partition("?")[0].split("/")
    (route,) = (
        one for one in paths
        if method.lower() in paths[one] and _is(one.removeprefix("/v1/").split("/"), words)
    )  # fmt: skip
    schema = paths[route][method.lower()]["responses"][str(status)]["content"]["application/json"]["schema"]
    return str(schema.get("items", schema)["$ref"]).rpartition("/")[2]


def _is(route: list[str], words: list[str]) -> bool:
    same = [one == word or one.startswith("{") for one, word in zip(route, words, strict=False)]
    return len(route) == len(words) and all(same) and not (route[1:] == ["{name}"] and words[1:] == ["plan"])


def _shortened(value: Any) -> Any:
    if isinstance(value, list):
        return [_shortened(one) for one in value[:MAX_SHOWN]]
    if isinstance(value, dict):
        return {key: _varying(key, one) for key, one in value.items()}
    told = (instead for drawn, instead in DRAWN.items() if isinstance(value, str) and drawn.fullmatch(value))
    return next(told, value)


def _varying(key: str, value: Any) -> Any:
    return VARIES[key] if key in VARIES and isinstance(value, type(VARIES[key])) else _shortened(value)


def text() -> str:
    lines = (f"{json.dumps(name)}: {json.dumps(body, ensure_ascii=False)}" for name, body in examples().items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    EXAMPLES_FILE.write_text(text(), encoding="utf-8")


if __name__ == "__main__":
    main()
