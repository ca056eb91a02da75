# SPDX-License-Identifier: Apache-2.0
"""VMs in huge pages and near their GPU without CPUs of their own, on hosts in memory: counted, refused, given back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.client.autostart import connect_running
from orchestrator.client.client import Client
from orchestrator.client.connection import Json
from orchestrator.core.errors import InvalidInput, NoCapacity
from orchestrator.core.units import GIB
from tests.fakes.running import running_server

FLEET = """\
groups:
  - {name: l40s, count: 1, gpu_model: L40S, gpus_per_host: 2, vcpus: 16, memory_gib: 64, numa_nodes: 2,
     hugepages_gib: {2M: 16, 1G: 8}}
  - {name: plain, count: 1, gpu_model: L4, gpus_per_host: 1, vcpus: 16, memory_gib: 32}
"""
HOST = "l40s-0"
GIB_MIB = 1024
TYPE = {"kind": "time_sliced", "vgpu_type": "NVIDIA L40S-12Q"}
OFFERINGS = {
    "near": {**TYPE, "numa": "strict"},
    "huge": {**TYPE, "hugepages": "2M"},
    "large": {**TYPE, "hugepages": "1G", "numa": "strict"},
    "elsewhere": {"kind": "time_sliced", "vgpu_type": "NVIDIA L4-12Q", "hugepages": "2M"},
}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    file = tmp_path / "fleet.yaml"
    file.write_text(FLEET)
    return file, tmp_path / "state"


def connected(state: Path) -> Client:
    connection = connect_running(state)
    assert connection is not None
    return Client(connection)


@pytest.fixture
def client(files: tuple[Path, Path]) -> Iterator[Client]:
    with running_server(files[1], "--simulate", str(files[0]), module="orchestrator.server.serve"):
        yield prepared(files[1])


def prepared(state: Path) -> Client:
    found = connected(state)
    for name, body in OFFERINGS.items():
        found.put_offering({"name": name, **body})
    return found


def wish(name: str, profile: str, memory_gib: float, **more: object) -> Json:
    base = {"name": name, "tenant": "default", "profile": profile, "image": "demo", "vcpus": 4, "disk_bytes": GIB}
    return {**base, "memory_mib": int(memory_gib * GIB_MIB), **more}


def create(client: Client, name: str, profile: str, memory_gib: float, **more: object) -> None:
    client.wait(client.create_vm(wish(name, profile, memory_gib, **more)))


def question(request: Json) -> Json:
    return {name: request[name] for name in ("profile", "vcpus", "memory_mib", "disk_bytes")}


def refused(client: Client, request: Json) -> set[str]:
    """By create, explain and capacity alike."""
    with pytest.raises(NoCapacity) as caught:
        client.create_vm(request)
    codes = {reason.code for reason in caught.value.reasons}
    told = client.explain({**question(request), "tenant": "default"})
    assert not told["fits"]
    assert {reason["code"] for reason in told["reasons"]} == codes
    assert client.capacity(question(request))["rows"][0]["fits_now"] == 0
    return codes


def free_pages(client: Client) -> list[dict[int, int]]:
    """MiB by size in KiB, of each node, as the host says it."""
    client.observe_findings(None)
    nodes = client.host(HOST)["numa_nodes"] or ()
    return [{one["size_kib"]: one["free"] * one["size_kib"] // 1024 for one in node["hugepages"]} for node in nodes]


def test_huge_pages_are_given_as_long_as_there_are_some_of_the_size_and_given_back(client: Client) -> None:
    before = [{2048: 8 * GIB_MIB, 1048576: 4 * GIB_MIB}] * 2
    assert free_pages(client) == before
    create(client, "a", "huge", 8)
    create(client, "b", "huge", 6)
    assert sorted(one[2048] // GIB_MIB for one in free_pages(client)) == [0, 2]
    assert "host.hugepages" in refused(client, wish("c", "huge", 3))
    create(client, "c", "huge", 2)
    client.wait(client.stop_vm("a", "default"))
    assert "host.hugepages" in refused(client, wish("d", "huge", 1))
    client.wait(client.start_vm("a", "default"))
    assert client.observe_findings(None) == []
    for name in ("a", "b", "c"):
        client.wait(client.delete_vm(name, "default"))
    assert free_pages(client) == before
    create(client, "wide", "huge", 12)
    assert sorted(one[2048] // GIB_MIB for one in free_pages(client)) == [0, 4]


def test_a_host_without_huge_pages_takes_no_vm_that_asks_for_them_and_says_why(client: Client) -> None:
    assert "host.no_hugepages" in refused(client, wish("a", "elsewhere", 1))


def test_memory_that_is_no_whole_pages_is_refused_by_all_who_are_asked(client: Client) -> None:
    request = wish("a", "large", 1.5)
    for ask in (
        lambda: client.create_vm(request),
        lambda: client.explain({**question(request), "tenant": "default"}),
        lambda: client.capacity(question(request)),
    ):
        with pytest.raises(InvalidInput) as caught:
            ask()
        assert caught.value.code == "memory.not_whole_pages"
    rows = client.capacity({"memory_mib": request["memory_mib"]})["rows"]
    assert {"near", "huge"} <= {row["profile"] for row in rows}
    assert "large" not in {row["profile"] for row in rows}


def test_ordinary_memory_is_what_huge_pages_leave_and_of_nodes_for_who_insists(client: Client) -> None:
    host = client.host(HOST)
    assert host["most_memory_mib"] == (64 - 24) * GIB_MIB - 512
    for name in ("a", "b"):
        create(client, name, "near", 19)
    gpus = {str(client.vm(name, "default")["device"]["gpu"]) for name in ("a", "b")}
    assert len(gpus) == 2
    assert "host.numa" in refused(client, wish("c", "near", 1))
    create(client, "c", "l40s-12q", 1)
    create(client, "d", "large", 4)
    with pytest.raises(NoCapacity) as caught:
        client.create_vm(wish("e", "large", 4, host=HOST, gpu=client.vm("d", "default")["device"]["gpu"]))
    assert "host.numa" in {reason.code for reason in caught.value.reasons}
    assert client.observe_findings(None) == []
    client.wait(client.delete_vm("a", "default"))
    create(client, "again", "near", 19)


def test_a_server_that_is_started_again_knows_who_has_which_memory(files: tuple[Path, Path]) -> None:
    file, state = files
    with running_server(state, "--simulate", str(file), module="orchestrator.server.serve"):
        first = prepared(state)
        create(first, "a", "huge", 12)
        create(first, "b", "near", 19)
        given = free_pages(first)
    with running_server(state, "--simulate", str(file), module="orchestrator.server.serve"):
        again = connected(state)
        assert free_pages(again) == given
        assert "host.hugepages" in refused(again, wish("c", "huge", 5))
        assert again.observe_findings(None) == []
