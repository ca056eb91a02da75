# SPDX-License-Identifier: Apache-2.0
"""VMs that boot by UEFI or have a TPM, on hosts in memory: refused alike by all who are asked, and the same for their
whole life."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.client.autostart import connect_running
from orchestrator.client.client import Client
from orchestrator.client.connection import Json
from orchestrator.core.errors import Conflict, NoCapacity
from orchestrator.core.units import GIB
from tests.fakes.running import running_server

FLEET = """\
groups:
  - {name: l40s, count: 1, gpu_model: L40S, gpus_per_host: 2, vcpus: 16, memory_gib: 64}
  - {name: plain, count: 1, gpu_model: L4, gpus_per_host: 1, vcpus: 16, memory_gib: 32, lacks: [uefi, tpm]}
"""
OFFERINGS: dict[str, Json] = {
    "whole": {"kind": "passthrough", "gpu_count": 1, "gpu_models": ["L40S"], "firmware": "uefi"},
    "part": {"kind": "time_sliced", "vgpu_type": "NVIDIA L40S-12Q", "firmware": "uefi"},
    "nowhere": {"kind": "time_sliced", "vgpu_type": "NVIDIA L4-12Q", "firmware": "uefi"},
}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    file, state = tmp_path / "fleet.yaml", tmp_path / "state"
    file.write_text(FLEET)
    with running_server(state, "--simulate", str(file), module="orchestrator.server.serve"):
        connection = connect_running(state)
        assert connection is not None
        found = Client(connection)
        for name, body in OFFERINGS.items():
            found.put_offering({"name": name, **body})
        yield found


def wish(name: str, profile: str, **more: object) -> Json:
    base = {"name": name, "tenant": "default", "profile": profile, "image": "demo", "vcpus": 4, "disk_bytes": GIB}
    return {**base, "memory_mib": 1024, **more}


def has(client: Client, feature: str, host: str) -> object:
    software = client.host(host)["software"]
    return None if software is None else dict(software)[feature]


@pytest.mark.parametrize(
    ("feature", "request_", "code"),
    [("uefi", wish("a", "nowhere"), "host.no_uefi"), ("tpm", wish("a", "NVIDIA L4-12Q", tpm=True), "host.no_swtpm")],
)
def test_a_host_without_a_feature_is_refused_alike_by_all_who_are_asked(
    client: Client, feature: str, request_: Json, code: str
) -> None:
    with pytest.raises(NoCapacity) as caught:
        client.create_vm(request_)
    codes = {reason.code for reason in caught.value.reasons}
    question = {name: request_[name] for name in ("profile", "vcpus", "memory_mib", "disk_bytes")}
    question |= {"tpm": "true"} if request_.get("tpm") else {}
    told = client.explain({**question, "tenant": "default"})
    assert code in codes
    assert not told["fits"]
    assert {reason["code"] for reason in told["reasons"]} == codes
    assert client.capacity(question)["rows"][0]["fits_now"] == 0
    assert client.vms() == []
    assert [has(client, feature, name) for name in ("l40s-0", "plain-0")] == [True, False]


def test_vms_boot_by_uefi_for_their_whole_life_and_nothing_differs(client: Client) -> None:
    for name, profile in (("a", "whole"), ("b", "part")):
        client.wait(client.create_vm(wish(name, profile)))
    for name in ("a", "b"):
        client.wait(client.stop_vm(name, "default"))
        client.wait(client.start_vm(name, "default"))
    assert client.observe_findings(None) == []
    for name in ("a", "b"):
        client.wait(client.delete_vm(name, "default"))
    assert client.observe_findings(None) == []


def test_a_vm_has_the_tpm_that_it_or_its_offering_asks_for(client: Client) -> None:
    client.put_offering({"name": "sealed", "kind": "time_sliced", "vgpu_type": "NVIDIA L40S-12Q", "tpm": True})
    requests = wish("a", "sealed"), wish("b", "sealed", tpm=False), wish("c", "NVIDIA L40S-12Q", tpm=True)
    for request in requests:
        client.wait(client.create_vm(request))
    assert [client.vm(name, "default")["tpm"] for name in "abc"] == [True, False, True]
    client.create_vm(wish("a", "sealed"))  # the same again
    with pytest.raises(Conflict, match="tpm"):
        client.create_vm(wish("a", "sealed", tpm=False))
    assert client.observe_findings(None) == []
