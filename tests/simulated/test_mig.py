# SPDX-License-Identifier: Apache-2.0
"""One A100 in GPU instances, cut anew by requests while its neighbours run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.client.client import Client
from orchestrator.core.errors import InvalidInput, NoCapacity, NotFound
from tests.fakes.simulated import serving_fleet, wish

QUARTER, EIGHTH, SLICED = "a100-pcie-80-1-20c", "GRID A100D-1-10C", "GRID A100D-20C"
FLEET = """\
groups:
  - {name: a100, count: 1, gpu_model: A100 PCIe 80GB, gpus_per_host: 1, vcpus: 32, memory_gib: 128}
"""


MEDIATED = FLEET.replace("memory_gib: 128", "memory_gib: 128, mediated: true")
"""Its kernel makes vGPUs as mediated devices of virtual functions."""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving_fleet(tmp_path, FLEET) as found:
        yield found


@pytest.fixture(params=[FLEET, MEDIATED], ids=["typed", "mediated"])
def either(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Client]:
    with serving_fleet(tmp_path, request.param) as found:
        yield found


def layout(client: Client) -> dict[str, tuple[str, int]]:
    """VM → profile and first slot of its GPU instance."""
    (gpu,) = client.gpus()
    seen = client.gpu(gpu["host"], gpu["address"])
    return {str(one["vm"]): (one["profile"], one["start"]) for one in seen["gpu_instances"]}


def wait_for_layout(client: Client, wanted: dict[str, tuple[str, int]]) -> None:
    """What is shown of a GPU is as old as the last look at its host."""
    for _ in range(600):
        if layout(client) == wanted:
            return
        time.sleep(0.1)
    assert layout(client) == wanted


def fits(client: Client, profile: str) -> int:
    """As capacity counts; explain must say the same."""
    question = {"profile": profile}
    (row,) = client.capacity(question)["rows"]
    assert client.explain(question)["fits"] == bool(row["fits_now"])
    return int(row["fits_now"])


def domains(state: Path) -> dict[str, tuple[bool, float, tuple[str, ...]]]:
    """What the simulated host keeps of its domains: whether each runs, since when, with which devices."""
    (file,) = state.rglob("a100-0.test")
    kept = json.loads(file.read_text())["machine"]["domains"]
    return {uuid: (one["running"], one["started_at"], tuple(one["devices"])) for uuid, one in kept.items()}


def test_four_tenants_share_one_a100_and_two_smaller_ones_take_the_place_of_one(either: Client, tmp_path: Path) -> None:
    client = either
    tenants = ("ash", "birch", "cedar", "dogwood")
    for tenant in tenants:
        client.create_tenant(tenant)
    assert [fits(client, one) for one in (QUARTER, SLICED)] == [4, 4]
    for tenant in tenants:
        client.wait(client.create_vm(wish("one", QUARTER, tenant=tenant)))
    before = layout(client)
    assert sorted(before.values()) == [("1g.20gb", start) for start in (0, 2, 4, 6)]
    assert [fits(client, one) for one in (QUARTER, EIGHTH, SLICED)] == [0, 0, 0]

    leaver = next(vm for vm, (_, start) in before.items() if start == 2)
    running = domains(tmp_path)
    assert len(running) == 4
    client.wait(client.delete_vm("one", leaver.partition("/")[0]))
    for name in ("left", "right"):
        planned = client.plan_vm(wish(name, EIGHTH))
        assert [one["action"] for one in planned["actions"]].count("CreateGpuInstance") == 1
        client.wait(client.create_vm(wish(name, EIGHTH)))
    after = layout(client)
    assert {vm: place for vm, place in after.items() if vm in before} == {
        vm: place for vm, place in before.items() if vm != leaver
    }
    assert {after["default/left"], after["default/right"]} == {("1g.10gb", 2), ("1g.10gb", 3)}
    assert len(running.items() & domains(tmp_path).items()) == 3


def test_an_empty_gpu_changes_between_mig_and_time_slicing_and_a_stopped_vm_keeps_its_place(either: Client) -> None:
    client = either
    client.wait(client.create_vm(wish("mig", QUARTER)))
    client.wait(client.stop_vm("mig", "default"))
    wait_for_layout(client, {})
    assert [fits(client, one) for one in (QUARTER, SLICED)] == [3, 0]
    client.wait(client.start_vm("mig", "default"))
    client.wait(client.delete_vm("mig", "default"))
    client.wait(client.create_vm(wish("sliced", SLICED)))
    (gpu,) = client.gpus()
    assert (gpu["mig_enabled"], gpu["cut"]) == (False, "time_sliced:20480")
    assert [fits(client, one) for one in (QUARTER, SLICED)] == [0, 3]


@pytest.mark.fault("F73")
def test_what_does_not_fit_beside_the_others_is_refused_before_anything_is_made(client: Client) -> None:
    """Three and four slices of seven leave no eighth, though one of eight memory slots would be free on paper."""
    for name, profile in (("three", "GRID A100D-3-40C"), ("four", "GRID A100D-4-40C")):
        client.wait(client.create_vm(wish(name, profile)))
    before = layout(client)
    assert sorted(before.values()) == [("3g.40gb", 4), ("4g.40gb", 0)]
    with pytest.raises(NoCapacity):
        client.create_vm(wish("one", EIGHTH))
    assert layout(client) == before
    assert [vm["name"] for vm in client.vms()] == ["four", "three"]


def test_gpus_that_a_fleet_lists_for_mig_alone_keep_what_is_said_of_time_slicing(tmp_path: Path) -> None:
    fleet = FLEET.replace("memory_gib: 128", "memory_gib: 128, modes_allowed: [mig, passthrough]")
    with serving_fleet(tmp_path, fleet) as client:
        for number in range(fits(client, SLICED)):
            client.wait(client.create_vm(wish(f"v{number}", SLICED)))
        assert fits(client, SLICED) == 0


def test_a_mig_profile_gives_a_vm_the_vgpu_that_takes_the_whole_of_such_an_instance(client: Client) -> None:
    """As what is planned, counted and explained under that name; a start after a stop gives the same again."""
    assert [fits(client, one) for one in ("2g.20gb", "GRID A100D-2-20C")] == [3, 3]
    shown = client.profile("2g.20gb")
    assert (shown["free"], shown["hosts"], shown["available"]) == (3, ["a100-0"], True)
    assert client.plan_vm(wish("one", "2g.20gb"))["host"] == "a100-0"
    client.wait(client.create_vm(wish("one", "2g.20gb")))
    for _ in range(2):
        vm = client.vm("one", "default")
        assert [(one["kind"], one["type_name"]) for one in vm["devices"]] == [("mig_backed", "GRID A100D-2-20C")]
        wait_for_layout(client, {"default/one": ("2g.20gb", 4)})
        client.wait(client.stop_vm("one", "default"))
        client.wait(client.start_vm("one", "default"))
    with pytest.raises(InvalidInput):
        client.create_vm(wish("two", "1g.5gb"))


def test_a_quota_of_a_mig_profile_is_refused_as_vms_are_counted_by_their_vgpu_types(client: Client) -> None:
    with pytest.raises(NotFound, match="nothing that a quota") as refused:
        client.change_quota("default", {"vgpus:2g.20gb": 1})
    assert "mig-slices" in str(refused.value.hint)
