# SPDX-License-Identifier: Apache-2.0
"""A half, a quarter and two eighths of one L40S, on hosts in memory: each where it was planned, as the driver says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.client.client import Client
from orchestrator.core.errors import NoCapacity
from tests.fakes.simulated import serving_fleet, wish

HALF, QUARTER, EIGHTH = (f"l40s-{size}q-mixed" for size in (24, 12, 6))
EQUAL, BARE = "l40s-12q", "NVIDIA L40S-6Q"
FLEET = """\
groups:
  - {name: l40s, count: 1, gpu_model: L40S, gpus_per_host: 1, vcpus: 32, memory_gib: 128}
"""


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving_fleet(tmp_path, FLEET) as found:
        eighth = {"name": EIGHTH, "kind": "time_sliced", "vgpu_type": "NVIDIA L40S-6Q", "mixed_sizes": True}
        found.put_offering(eighth)
        yield found


def create(client: Client, **profiles: str) -> None:
    for name, profile in profiles.items():
        client.wait(client.create_vm(wish(name, profile)))


def places(client: Client) -> dict[str, tuple[int, int]]:
    """VM → its slots, as the map draws them from what the driver says."""
    (gpu,) = client.gpu_map(None)["gpus"]
    return {one["vm"]: (one["start"], one["start"] + one["size"]) for one in gpu["cells"] if one["vm"]}


def mixes(client: Client) -> bool:
    assert client.observe_findings(None) == []
    return bool(client.gpus()[0]["mixed_sizes"])


def test_sizes_share_a_gpu_and_another_one_takes_the_place_of_one_that_leaves(client: Client) -> None:
    assert not mixes(client)
    create(client, half=HALF, quarter=QUARTER, eighth=EIGHTH, other=EIGHTH)
    assert mixes(client)
    assert client.capacity({"profile": EIGHTH})["rows"][0]["fits_now"] == 0
    lie = sorted(places(client).values())
    assert [one[1] - one[0] for one in lie] in ([24, 12, 6, 6], [24, 6, 6, 12], [12, 6, 6, 24], [6, 6, 12, 24])
    assert [one[0] for one in lie] == [0, *(one[1] for one in lie[:-1])]
    with pytest.raises(NoCapacity) as caught:
        client.create_vm(wish("more", EQUAL))
    assert "gpu.other_cut_in_use" in {reason.code for reason in caught.value.reasons}

    left = places(client)["quarter"]
    client.wait(client.delete_vm("quarter", "default"))
    create(client, third=EIGHTH, bare=BARE)
    assert {places(client)["third"], places(client)["bare"]} == {(left[0], left[0] + 6), (left[0] + 6, left[1])}
    assert mixes(client)


def test_a_stopped_vm_finds_its_place_again_and_the_last_one_leaves_the_gpu_as_it_was(client: Client) -> None:
    create(client, half=HALF, quarter=QUARTER)
    before = places(client)
    client.wait(client.stop_vm("half", "default"))
    assert mixes(client)
    create(client, eighth=EIGHTH)
    assert places(client)["half"] == before["half"]
    for name in ("quarter", "eighth"):
        client.wait(client.delete_vm(name, "default"))
    assert not mixes(client)
    assert client.capacity({"profile": EQUAL})["rows"][0]["fits_now"] == 0
    client.wait(client.start_vm("half", "default"))
    assert (mixes(client), places(client)) == (True, {"half": before["half"]})
    client.wait(client.delete_vm("half", "default"))
    assert not mixes(client)
    create(client, **{f"equal-{number}": EQUAL for number in range(4)})
