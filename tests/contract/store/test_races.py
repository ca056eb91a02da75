# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.control_plane import T4_HOST, control_plane
from tests.postgres.cluster import Cluster

FEW = int(os.environ.get("VGPUCTL_TEST_RACES", "300"))
MANY = 100_000
CONTROLLERS = 2
QUOTA = 10
"""VMs of both together: sometimes this is used up first, sometimes the GPUs are."""

TOLD = {
    "made": "VMs made",
    "refused": "refusals for want of room",
    "beyond": "refusals by the quota",
    "double": "slots given twice",
    "over": "times over the quota",
}


@pytest.mark.fault("F95", "F128")
@pytest.mark.parametrize("requests", [FEW, pytest.param(MANY, marks=pytest.mark.soak)])
def test_controllers_that_race_for_scarce_slots_never_claim_one_twice_nor_exceed_the_quota(
    postgres: Cluster, tmp_path: Path, requests: int, record_property: Callable[[str, object], None]
) -> None:
    url = postgres.database()
    plane = control_plane(tmp_path, url=url)
    plane.add_host(T4_HOST)
    plane.services.tenancy.quotas.change("default", {"vms": QUOTA})
    books = tmp_path / "books"
    books.mkdir()
    words = [sys.executable, "-m", "tests.contract.store.racer", url, str(books)]
    racers = [
        subprocess.Popen([*words, str(seed), str(requests // CONTROLLERS), str(QUOTA)], stdout=subprocess.PIPE)
        for seed in range(CONTROLLERS)
    ]
    counts = [json.loads(racer.communicate()[0]) for racer in racers]
    record_property("requests of controllers in the race for slots", requests)
    for name, told in TOLD.items():
        record_property(f"in the race for slots, {told}", sum(count[name] for count in counts))
    assert [count["double"] for count in counts] == [0] * CONTROLLERS
    assert [count["over"] for count in counts] == [0] * CONTROLLERS
    assert all(count["made"] and count["refused"] and count["beyond"] for count in counts)
    with plane.store.read() as tx:
        claims = tx.claims.of_host(T4_HOST)
    plane.store.close()
    held = [f"{T4_HOST} {one.gpu} {slot}" for claim in claims for one in claim.devices for slot in one.slots]
    assert sorted(held) == sorted(file.name for file in books.iterdir())
