# SPDX-License-Identifier: Apache-2.0
"""Half an L40S each, whatever the other one does: two VMs under fixed share, on hosts in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.client.client import Client
from orchestrator.client.connection import Json
from orchestrator.core.errors import NoCapacity
from tests.fakes.simulated import serving_fleet, wish

HALF, EQUAL, PLAIN = "half-and-half", "l40s-12q-equal", "NVIDIA L40S-24Q"
FLEET = """\
groups:
  - {name: l40s, count: 1, gpu_model: L40S, gpus_per_host: 1, vcpus: 32, memory_gib: 128}
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving_fleet(tmp_path, FLEET) as found:
        found.put_offering(half_and_half())
        yield found


def half_and_half() -> Json:
    return {
        "name": HALF, "kind": "time_sliced", "vgpu_type": "NVIDIA L40S-24Q",
        "scheduler": {"policy": "fixed_share", "time_slice_ms": 4},
    }  # fmt: skip


def scheduler(client: Client) -> Json:
    """As its driver says it, read anew."""
    client.observe_findings(None)
    (gpu,) = client.gpus()
    assert gpu["scheduler"] is not None
    return dict(gpu["scheduler"])


def test_two_vms_have_half_a_gpu_each_and_a_third_that_wants_it_otherwise_is_told_why(client: Client) -> None:
    assert scheduler(client)["policy"] == "best_effort"
    for name in ("one", "two"):
        client.wait(client.create_vm(wish(name, HALF)))
    assert scheduler(client) == {"policy": "fixed_share", "time_slice_us": 4000, "share_percent": 50.0}
    assert client.observe_findings(None) == []
    client.wait(client.delete_vm("two", "default"))
    for profile in (PLAIN, EQUAL):
        with pytest.raises(NoCapacity) as caught:
            client.create_vm(wish("three", profile))
        assert "gpu.other_scheduler" in {reason.code for reason in caught.value.reasons}
        assert not client.explain({"profile": profile})["fits"]
    assert client.capacity({"profile": HALF})["rows"][0]["fits_now"] == 1
    assert client.capacity({"profile": PLAIN})["rows"][0]["fits_now"] == 0


def test_a_stopped_vm_keeps_its_gpu_for_its_like_and_the_last_one_leaves_it_as_it_was(client: Client) -> None:
    client.wait(client.create_vm(wish("one", HALF)))
    client.wait(client.stop_vm("one", "default"))
    assert scheduler(client)["policy"] == "best_effort"
    with pytest.raises(NoCapacity):
        client.create_vm(wish("two", PLAIN))
    client.wait(client.start_vm("one", "default"))
    assert scheduler(client)["policy"] == "fixed_share"
    client.wait(client.delete_vm("one", "default"))
    assert scheduler(client)["policy"] == "best_effort"
    client.wait(client.create_vm(wish("two", PLAIN)))
