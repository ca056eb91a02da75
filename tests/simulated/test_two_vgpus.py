# SPDX-License-Identifier: Apache-2.0
"""Two L40S for one VM as two vGPUs of full size, on hosts in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.client.client import Client
from orchestrator.core.errors import NoCapacity
from tests.fakes.simulated import serving_fleet, wish

BOTH, ONE = "l40s-2x48q", "l40s-48q"
FLEET = """\
groups:
  - {name: l40s, count: 2, gpu_model: L40S, gpus_per_host: 2, vcpus: 32, memory_gib: 128}
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving_fleet(tmp_path, FLEET) as found:
        yield found


def fits(client: Client, profile: str) -> int:
    """As capacity counts; explain must say the same."""
    (row,) = client.capacity({"profile": profile})["rows"]
    assert client.explain({"profile": profile})["fits"] == bool(row["fits_now"])
    return int(row["fits_now"])


def test_two_vgpus_are_on_two_gpus_of_one_host_and_the_other_host_still_takes_single_ones(client: Client) -> None:
    assert (fits(client, BOTH), fits(client, ONE)) == (2, 4)
    planned = client.plan_vm(wish("train", BOTH))
    assert planned["gpu"] == planned["gpus"][0]
    assert len(set(planned["gpus"])) == 2
    client.wait(client.create_vm(wish("train", BOTH)))
    vm = client.vm("train", "default")
    assert {one["gpu"] for one in vm["devices"]} == set(planned["gpus"])
    client.wait(client.create_vm(wish("alone", ONE)))
    assert client.vm("alone", "default")["host"] != vm["host"]
    assert (fits(client, BOTH), fits(client, ONE)) == (0, 1)
    with pytest.raises(NoCapacity):
        client.create_vm(wish("more", BOTH))
    for verb in (client.stop_vm, client.start_vm):
        client.wait(verb("train", "default"))
        assert client.observe_findings(None) == []
    for name in ("train", "alone"):
        client.wait(client.delete_vm(name, "default"))
    assert client.observe_findings(None) == []
    assert (fits(client, BOTH), fits(client, ONE)) == (2, 4)
