# SPDX-License-Identifier: Apache-2.0
"""Whole GPUs of an NVSwitch baseboard in memory: each VM's set is a fabric partition."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.cli.commands.host_views import details
from orchestrator.client.client import Client
from orchestrator.core.errors import NoCapacity
from tests.fakes.simulated import serving_fleet, wish

FLEET = """\
groups:
  - {name: hgx, count: 1, gpu_model: H100 SXM5 80GB, gpus_per_host: 8, vcpus: 192, memory_gib: 2048}
"""
HOST = "hgx-0"
MODULE_1, MODULE_5 = "0000:49:00.0", "0000:43:00.0"
"""Addresses: modules do not follow their order."""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving_fleet(tmp_path, FLEET) as client:
        yield client


def create(client: Client, name: str, count: int, **more: Any) -> None:
    client.wait(client.create_vm(wish(name, f"gpu:{count}", **more)))


def active(client: Client) -> list[set[int]]:
    """Module ids of the active partitions, as the host says it now."""
    assert client.observe_findings(None) == []
    fabric = client.host(HOST)["fabric"]
    assert fabric is not None
    assert fabric["problem"] is None
    there = [one for one in fabric["partitions"] if one["active"]]
    assert all(one["ours"] for one in there)
    return sorted((set(one["modules"]) for one in there), key=len)


def host_show(client: Client) -> str:
    """As people see it."""
    return "\n".join(details(client.host(HOST)))


def fits(client: Client, count: int) -> int:
    return int(client.capacity({"profile": f"gpu:{count}"})["rows"][0]["fits_now"])


def test_half_a_board_for_one_tenant_leaves_the_other_half_in_any_sizes(client: Client) -> None:
    create(client, "four", 4)
    assert [fits(client, count) for count in (8, 4, 2, 1)] == [0, 1, 2, 4]
    for name, count in (("one", 1), ("two", 2), ("another", 1)):
        create(client, name, count)
    shown = " ".join(host_show(client).split())
    assert "partitions: 1 of 8, 2 of 4, 4 of 2, 8 of 1 GPUs" in shown
    assert "partition 1 is active (modules 1, 2, 3, 4)" in shown or "partition 2 is active" in shown
    joined = active(client)
    assert [len(one) for one in joined] == [1, 1, 2, 4]
    assert set().union(*joined) == set(range(1, 9))
    for name in ("four", "one", "two", "another"):
        client.wait(client.delete_vm(name, "default"))
    assert active(client) == []
    assert fits(client, 8) == 1


@pytest.mark.fault("F93")
def test_six_free_gpus_that_hold_no_partition_of_four_are_refused_by_all_who_are_asked(client: Client) -> None:
    create(client, "one", 1, host=HOST, gpu=MODULE_1)
    create(client, "five", 1, host=HOST, gpu=MODULE_5)
    assert active(client) == [{1}, {5}]
    for ask in (client.create_vm, client.plan_vm):
        with pytest.raises(NoCapacity) as refused:
            ask(wish("four", "gpu:4"))
        (reason,) = refused.value.reasons
        assert (reason.code, reason.subjects) == ("gpu.no_partition", (HOST,))
    answer = client.explain({"profile": "gpu:4"})
    assert not answer["fits"]
    assert [one["code"] for one in answer["reasons"]] == ["gpu.no_partition"]
    assert [fits(client, count) for count in (8, 4, 2, 1)] == [0, 0, 2, 6]
    create(client, "two", 2)


def test_a_stopped_vm_keeps_its_gpus_and_its_partition_comes_back_with_it(client: Client) -> None:
    create(client, "two", 2)
    before = active(client)
    assert [len(one) for one in before] == [2]
    client.wait(client.stop_vm("two", "default"))
    assert active(client) == []
    assert fits(client, 8) == 0
    client.wait(client.start_vm("two", "default"))
    assert active(client) == before
