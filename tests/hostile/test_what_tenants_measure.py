# SPDX-License-Identifier: Apache-2.0
"""Whether a VM would fit does not measure what others have on a host."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from orchestrator.core.tenancy.tenant import Member
from orchestrator.core.vms.vm import MAX_MEMORY_MIB
from tests.contract.api.real_app import real_app
from tests.fakes.control_plane import GIB, ControlPlane, create_vm, plane_with

RED = 4001
Fits = Callable[[TestClient, int], bool]
NEIGHBOUR_MIB = 11_264


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, "t4", "l40s") as made:
        made.services.tenancy.tenants.create("red")
        made.services.tenancy.tenants.put_member(Member(tenant="red", subject=f"uid:{RED}", role="tenant-user"))
        made.services.tenancy.policies.change("red", {"isolation": "none"})
        made.services.volumes.create("red", "mine", GIB, "t4")
        made.services.vms.create(replace(create_vm("neighbour"), memory_mib=NEIGHBOUR_MIB))
        made.engine.drain()
        yield made


def planned(red: TestClient, memory_mib: int) -> bool:
    body: dict[str, Any] = {
        "name": "probe", "tenant": "red", "profile": "GRID T4-2Q", "image": "guest", "vcpus": 1,
        "memory_mib": memory_mib, "disk_bytes": GIB, "volumes": ["mine"],
    }  # fmt: skip
    return red.post("/v1/vms/plan", json=body).status_code == 200


def _asked(memory_mib: int) -> dict[str, Any]:
    return {
        "profile": "GRID T4-2Q", "tenant": "red", "vcpus": 1, "memory_mib": memory_mib, "disk_bytes": GIB,
        "volumes": "mine",
    }  # fmt: skip


def explained(red: TestClient, memory_mib: int) -> bool:
    return bool(red.get("/v1/explain", params=_asked(memory_mib)).json()["fits"])


def counted(red: TestClient, memory_mib: int) -> bool:
    answer = red.get("/v1/capacity", params=_asked(memory_mib)).json()
    return any(row["fits_now"] for row in answer["rows"])


def largest(fits: Fits, red: TestClient) -> int:
    least, most = 128, MAX_MEMORY_MIB
    assert fits(red, least)
    assert not fits(red, most)
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if fits(red, middle) else (least, middle)
    return least


@pytest.mark.parametrize("fits", [planned, explained, counted])
def test_a_tenant_learns_no_more_than_a_power_of_two(plane: ControlPlane, fits: Fits) -> None:
    found = largest(fits, TestClient(real_app(plane, RED)))
    assert found.bit_count() == 1, "it is measured to the MiB"


def test_who_watches_the_pool_is_told_exactly(plane: ControlPlane) -> None:
    operator = TestClient(real_app(plane, None))
    assert largest(planned, operator).bit_count() > 1
