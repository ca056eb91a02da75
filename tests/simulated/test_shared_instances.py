# SPDX-License-Identifier: Apache-2.0
"""One RTX PRO 6000 whose GPU instances several vGPUs share, on a host in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.client.client import Client
from orchestrator.core.errors import NoCapacity
from tests.fakes.simulated import serving_fleet, wish
from tests.simulated.test_mig import fits

EIGHT, TWELVE, WHOLE, SLICED = (
    f"NVIDIA RTX Pro 6000 Blackwell DC-{size}" for size in ("1-8Q", "1-12Q", "1-24Q", "24Q")
)  # fmt: skip
FLEET = """\
groups:
  - name: rtx
    count: 1
    gpu_model: RTX PRO 6000 Blackwell Server Edition
    gpus_per_host: 1
    vcpus: 96
    memory_gib: 256
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving_fleet(tmp_path, FLEET) as found:
        yield found


@pytest.fixture(params=["typed", "mediated"])
def either(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Client]:
    """By which a virtual function of the GPU comes to be a vGPU."""
    fleet = FLEET if request.param == "typed" else f"{FLEET}    mediated: true\n"
    with serving_fleet(tmp_path, fleet) as found:
        yield found


def made(client: Client, name: str, profile: str, tenant: str = "default") -> None:
    client.wait(client.create_vm(wish(name, profile, tenant=tenant)))


def cells(client: Client) -> dict[str, tuple[int, int]]:
    """VM → first slot and slots, as the map shows it: a slot is a GiB."""
    (row,) = client.gpu_map()["gpus"]
    return {cell["vm"]: (cell["start"], cell["size"]) for cell in row["cells"] if cell["vm"]}


def sharing(client: Client) -> dict[int, list[str]]:
    """First slot of each GPU instance → names of the VMs that have vGPUs in it."""
    (gpu,) = client.gpus()
    shown = client.gpu(gpu["host"], gpu["address"])["gpu_instances"]
    return {one["start"]: [vm.partition("/")[2] for vm in one["vms"]] for one in shown}


def test_each_kind_of_place_is_counted_as_it_can_be_had(client: Client) -> None:
    assert [fits(client, one) for one in (EIGHT, TWELVE, WHOLE, SLICED)] == [12, 8, 4, 4]
    made(client, "one", EIGHT)
    assert [fits(client, one) for one in (EIGHT, TWELVE, WHOLE, SLICED, "1g.24gb+gfx", "2g.48gb+gfx")] == [
        11, 6, 3, 0, 3, 1,
    ]  # fmt: skip
    for name in ("two", "three", "four"):
        made(client, name, EIGHT)
    made(client, "wide", TWELVE)
    made(client, "bare", "1g.24gb+gfx")
    assert cells(client) == {
        "one": (0, 8), "two": (8, 8), "three": (16, 8), "four": (24, 8), "wide": (48, 12), "bare": (72, 24),
    }  # fmt: skip
    assert [fits(client, one) for one in (EIGHT, TWELVE, WHOLE)] == [2, 1, 0]


def test_a_place_that_is_left_is_the_next_ones_and_with_the_last_vm_the_instance_is_free(either: Client) -> None:
    client = either
    for name in ("one", "two", "three", "four"):
        made(client, name, EIGHT)
    client.wait(client.delete_vm("two", "default"))
    made(client, "again", EIGHT)
    assert cells(client)["again"] == (8, 8)
    assert sharing(client) == {0: ["again", "one", "three"], 3: ["four"]}
    client.wait(client.stop_vm("four", "default"))
    assert fits(client, WHOLE) == 2
    client.wait(client.start_vm("four", "default"))
    client.wait(client.delete_vm("four", "default"))
    assert fits(client, WHOLE) == 3
    for name in ("one", "again", "three"):
        client.wait(client.delete_vm(name, "default"))
    assert fits(client, SLICED) == 4


def test_tenants_share_the_gpu_and_none_of_its_instances_unless_they_say_so(client: Client) -> None:
    for tenant in ("ash", "birch"):
        client.create_tenant(tenant)
    made(client, "one", EIGHT, "ash")
    made(client, "whole", WHOLE, "birch")
    made(client, "wide", TWELVE, "birch")
    with pytest.raises(NoCapacity) as refused:
        made(client, "beside", EIGHT, "birch")
    assert {reason.code for reason in refused.value.reasons} == {"gpu.other_tenant"}
    made(client, "two", EIGHT, "ash")
    for tenant in ("ash", "birch"):
        client.change_policy(tenant, {"isolation": "none"})
    made(client, "beside", EIGHT, "birch")
    assert cells(client)["beside"] == (16, 8)
