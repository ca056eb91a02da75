# SPDX-License-Identifier: Apache-2.0
"""VMs with a function of a network card near their GPU, on hosts in memory: given once, given back, found again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.client.client import Client
from orchestrator.client.connection import Json
from orchestrator.core.errors import InvalidInput, NoCapacity, QuotaExceeded
from tests.fakes.simulated import serving_fleet, wish

FLEET = """\
groups:
  - {name: l40s, count: 1, gpu_model: L40S, gpus_per_host: 2, vcpus: 64, memory_gib: 128, numa_nodes: 2,
     nics_per_host: 3}
"""
HOST, PROFILE = "l40s-0", "NVIDIA L40S-6Q"
FIRST, SECOND, THIRD = "0000:a1:00.0", "0000:a3:00.0", "0000:a5:00.0"
"""The first is under the first GPU's switch, the second under the second's; the third is on the second NUMA node."""
FUNCTIONS = 7


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving_fleet(tmp_path, FLEET) as found:
        yield found


def give(client: Client, *cards: str) -> Json:
    return client.change_host(HOST, {"rdma_nics": ",".join(cards)})


def create(client: Client, name: str, **more: object) -> Json:
    client.wait(client.create_vm(wish(name, PROFILE, nic="rdma", **more)))
    return client.vm(name, "default")


def taken(client: Client) -> dict[str, int]:
    return {nic["address"]: nic["taken"] for nic in client.host(HOST)["nics"] or ()}


def refused(client: Client) -> set[str]:
    """Create, explain and capacity say the same."""
    request = wish("refused", PROFILE, nic="rdma")
    with pytest.raises(NoCapacity) as caught:
        client.create_vm(request)
    codes = {reason.code for reason in caught.value.reasons}
    asked = {name: request[name] for name in ("profile", "vcpus", "memory_mib", "disk_bytes", "nic")}
    told = client.explain({**asked, "tenant": "default"})
    assert not told["fits"]
    assert {reason["code"] for reason in told["reasons"]} == codes
    assert client.capacity(asked)["rows"][0]["fits_now"] == 0
    return codes


def test_no_card_is_given_that_no_operator_gave(client: Client) -> None:
    assert refused(client) == {"host.no_nic"}
    assert [nic["given"] for nic in client.host(HOST)["nics"] or ()] == [False] * 3
    for cards in ("0000:99:00.0", "eth0"):
        with pytest.raises(InvalidInput):
            give(client, cards)


def test_a_vm_has_a_function_of_the_card_under_its_gpus_switch_until_it_is_deleted(client: Client) -> None:
    give(client, FIRST, SECOND)
    asked = {"profile": PROFILE, "nic": "rdma", "tenant": "default"}
    assert "under the GPU's own PCIe switch" in str(client.explain(asked)["why"])
    vm = create(client, "a", host=HOST, gpu="0000:41:00.0")
    nic = vm["nic_function"]
    assert nic is not None
    assert (nic["card"], nic["under_switch"], vm["nic"]) == (FIRST, True, "rdma")
    assert taken(client) == {FIRST: 1, SECOND: 0, THIRD: 0}
    assert client.observe_findings(None) == []
    client.wait(client.stop_vm("a", "default"))
    assert taken(client)[FIRST] == 1
    assert client.observe_findings(None) == []
    client.wait(client.start_vm("a", "default"))
    assert client.vm("a", "default")["nic_function"] == nic
    client.wait(client.delete_vm("a", "default"))
    assert taken(client)[FIRST] == 0
    assert client.observe_findings(None) == []


def test_each_function_is_given_once_and_then_there_is_none(client: Client) -> None:
    give(client, FIRST)
    room = client.capacity({"profile": PROFILE, "nic": "rdma", "vcpus": 1, "memory_mib": 1024})["rows"][0]
    assert room["fits_now"] == FUNCTIONS
    functions = {create(client, f"vm{number}", vcpus=1)["nic_function"]["function"] for number in range(FUNCTIONS)}
    assert len(functions) == FUNCTIONS
    assert refused(client) == {"host.nics_taken"}
    client.wait(client.delete_vm("vm3", "default"))
    assert create(client, "again", vcpus=1)["nic_function"]["function"] in functions


def test_where_no_card_is_under_the_switch_one_of_the_gpus_node_will_do(client: Client) -> None:
    give(client, THIRD)
    asked = {"profile": PROFILE, "nic": "rdma", "tenant": "default"}
    assert "on the GPU's NUMA node, as none is under its PCIe switch" in str(client.explain(asked)["why"])
    vm = create(client, "a")
    assert (vm["device"]["gpu"], vm["nic_function"]["under_switch"]) == ("0000:43:00.0", False)
    with pytest.raises(NoCapacity) as caught:
        client.create_vm(wish("b", PROFILE, nic="rdma", host=HOST, gpu="0000:41:00.0"))
    assert "gpu.no_nic" in {reason.code for reason in caught.value.reasons}


def test_an_offering_has_a_card_and_a_quota_counts_them(client: Client) -> None:
    give(client, FIRST, SECOND)
    client.put_offering({"name": "trainer", "kind": "time_sliced", "vgpu_type": PROFILE, "nic": "rdma"})
    client.change_quota("default", {"nics": 1})
    client.wait(client.create_vm(wish("a", "trainer")))
    assert client.vm("a", "default")["nic"] is None
    assert client.vm("a", "default")["nic_function"] is not None
    with pytest.raises(QuotaExceeded):
        client.create_vm(wish("b", "trainer"))
    client.wait(client.create_vm(wish("c", PROFILE)))
    assert client.vm("c", "default")["nic_function"] is None


def test_a_server_that_is_started_again_knows_who_has_what(tmp_path: Path) -> None:
    with serving_fleet(tmp_path, FLEET) as first:
        give(first, FIRST)
        vm = create(first, "a")
    with serving_fleet(tmp_path, FLEET) as again:
        assert again.vm("a", "default")["nic_function"] == vm["nic_function"]
        assert taken(again)[FIRST] == 1
        other = create(again, "b")
        assert other["nic_function"]["function"] != vm["nic_function"]["function"]
        assert again.observe_findings(None) == []
