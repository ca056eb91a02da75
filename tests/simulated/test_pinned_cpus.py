# SPDX-License-Identifier: Apache-2.0
"""VMs with CPUs of their own, near their GPU, on hosts in memory: given once, given back, found again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.client.client import Client
from orchestrator.client.connection import Json
from orchestrator.core.errors import Conflict, InvalidInput, NoCapacity
from orchestrator.core.hosts.cpus import parse_cpus
from tests.fakes.simulated import serving_fleet
from tests.fakes.simulated import wish as small

FLEET = """\
groups:
  - {name: l40s, count: 1, gpu_model: L40S, gpus_per_host: 2, vcpus: 16, memory_gib: 64, numa_nodes: 2}
"""
HOST = "l40s-0"
KEPT = "2-7,10-15"
"""Of the first node CPUs 2, 3, 10 and 11: two cores; of the second all."""
STRICT = {"kind": "time_sliced", "vgpu_type": "NVIDIA L40S-12Q", "cpu": "pinned", "numa": "strict"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving_fleet(tmp_path, FLEET) as found:
        offer(found)
        yield found


def offer(client: Client) -> None:
    client.put_offering({"name": "strict", **STRICT})
    client.put_offering({"name": "near", **STRICT, "numa": "prefer"})


def wish(name: str, profile: str, **more: object) -> Json:
    return small(name, profile, **{"vcpus": 4, **more})


def create(client: Client, name: str, profile: str, **more: object) -> None:
    client.wait(client.create_vm(wish(name, profile, **more)))


def keep(client: Client, cpus: str = KEPT) -> Json:
    return client.change_host(HOST, {"pinnable_cpus": cpus})


def pinned(client: Client) -> tuple[int, ...]:
    return parse_cpus(client.host(HOST)["pinned_cpus"])


def refused(client: Client, request: Json) -> set[str]:
    with pytest.raises((NoCapacity, InvalidInput)) as caught:
        client.create_vm(request)
    codes = {reason.code for reason in caught.value.reasons}
    told = client.explain({name: request[name] for name in ("profile", "vcpus", "memory_mib", "disk_bytes", "tenant")})
    assert not told["fits"]
    assert {reason["code"] for reason in told["reasons"]} - {"vm.never_fits"} == codes
    asked = {"profile": request["profile"], "vcpus": request["vcpus"], "memory_mib": request["memory_mib"]}
    assert client.capacity(asked)["rows"][0]["fits_now"] == 0
    return codes


def test_a_host_without_cpus_to_pin_takes_no_vm_that_wants_its_own_and_says_why(client: Client) -> None:
    assert refused(client, wish("a", "strict")) == {"host.none_pinnable"}
    assert [node["cpus"] for node in client.host(HOST)["numa_nodes"] or ()] == ["0-3,8-11", "4-7,12-15"]


def test_each_cpu_is_given_once_near_the_gpu_and_given_back_when_its_vm_goes(client: Client) -> None:
    keep(client)
    near = {"0000:41:00.0": {2, 3, 10, 11}, "0000:43:00.0": {4, 5, 6, 7, 12, 13, 14, 15}}
    for number in range(3):
        create(client, f"vm{number}", "strict")
    given = pinned(client)
    assert set(given) == near["0000:41:00.0"] | near["0000:43:00.0"]
    gpus = [str(client.vm(f"vm{number}", "default")["device"]["gpu"]) for number in range(3)]
    assert sorted(gpus) == ["0000:41:00.0", "0000:43:00.0", "0000:43:00.0"]
    assert refused(client, wish("more", "strict")) == {"host.cpus"}
    assert client.observe_findings(None) == []

    client.wait(client.stop_vm("vm0", "default"))
    assert pinned(client) == given
    client.wait(client.start_vm("vm0", "default"))
    client.wait(client.delete_vm("vm0", "default"))
    assert len(pinned(client)) == 8
    create(client, "again", "near")
    assert pinned(client) == given
    assert client.observe_findings(None) == []


def test_vms_that_share_cpus_count_on_the_others_alone(client: Client) -> None:
    before = client.host(HOST)["most_vcpus"]
    assert before == 16 * 4
    assert keep(client)["most_vcpus"] == 4 * 4
    create(client, "shares", "l40s-12q")
    create(client, "own", "strict")
    host = client.host(HOST)
    assert (host["claimed_vcpus"], len(pinned(client))) == (4, 4)
    assert refused(client, wish("wide", "l40s-12q", vcpus=5)) == {"host.too_small"}


def test_who_insists_on_a_node_gets_none_without_room_there_and_who_prefers_it_gets_another(client: Client) -> None:
    keep(client)
    first = {"host": HOST, "gpu": "0000:41:00.0", "vcpus": 6}
    with pytest.raises(NoCapacity) as caught:
        client.create_vm(wish("a", "strict", **first))
    assert "host.numa" in {reason.code for reason in caught.value.reasons}
    create(client, "a", "near", **first)
    assert set(pinned(client)) <= {4, 5, 6, 7, 12, 13, 14, 15}
    with pytest.raises(NoCapacity) as caught:
        client.create_vm(wish("b", "strict", vcpus=2, memory_mib=40 * 1024))
    assert {reason.code for reason in caught.value.reasons} == {"host.numa"}


def test_cpus_are_divided_before_vms_come(client: Client) -> None:
    with pytest.raises(InvalidInput) as caught:
        keep(client, "2-7,10-14")
    assert "hyperthreads" in caught.value.message
    for cpus in ("0-15", "16-17", "x"):
        with pytest.raises(InvalidInput):
            keep(client, cpus)
    create(client, "shares", "l40s-12q")
    with pytest.raises(Conflict) as taken:
        keep(client)
    assert taken.value.code == "host.has_vms"
    assert client.host(HOST)["pinnable_cpus"] == ""
    client.wait(client.delete_vm("shares", "default"))
    assert keep(client)["pinnable_cpus"] == KEPT
    assert keep(client, "")["pinnable_cpus"] == ""


def test_a_server_that_is_started_again_knows_who_has_which_cpus(tmp_path: Path) -> None:
    with serving_fleet(tmp_path, FLEET) as first:
        offer(first)
        keep(first)
        create(first, "a", "strict")
        given = pinned(first)
    with serving_fleet(tmp_path, FLEET) as again:
        assert pinned(again) == given
        create(again, "b", "strict", host=HOST)
        assert len(pinned(again)) == 8
        assert again.observe_findings(None) == []
