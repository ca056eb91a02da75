# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.catalogue.catalogue import shipped
from orchestrator.core.diff import driver_findings
from orchestrator.core.drivers.check import host_rows, tool_rows
from orchestrator.core.drivers.guest_facts import GuestFacts
from orchestrator.core.drivers.lock import DriverLock, Locked, lock_of
from orchestrator.core.gpu.fabric import FabricSnapshot
from tests.fakes.fake_machine import FakeMachine, snapshot_of, t4
from tests.unit.core.test_diff import HOST


def test_a_fabric_manager_and_a_dcgm_that_are_not_as_locked_are_told() -> None:
    """As hosts tell of them; what no host tells is no drift."""
    lock = DriverLock(
        site=(Locked(component="fabric_manager", version="580.95.02"), Locked(component="dcgm", version="4.4.1"))
    )
    seen = snapshot_of(FakeMachine(machine_id="m", gpus=[t4("0000:41:00.0")]))
    rows = {
        row.part: (row.verdict, row.observed)
        for row in host_rows("h", lock_of(lock, ()), seen, shipped().driver_matrix)
    }
    assert (rows["dcgm"], "fabric_manager" in rows, driver_findings(lock, HOST, seen)) == (("unknown", None), False, ())
    other = replace(seen, dcgm_version="4.5.0", fabric=FabricSnapshot(version="580.65.05"), driver_version="580.65.05")
    rows = {
        row.part: (row.verdict, row.observed)
        for row in host_rows("h", lock_of(lock, ()), other, shipped().driver_matrix)
    }
    assert (rows["dcgm"], rows["fabric_manager"]) == (("drift", "4.5.0"), ("drift", "580.65.05"))
    assert [(one.subject, one.wanted, one.observed) for one in driver_findings(lock, HOST, other)] == [
        ("fabric manager of h1", "fabric manager 580.95.02", "fabric manager 580.65.05"),
        ("DCGM of h1", "DCGM 4.4.1", "DCGM 4.5.0"),
    ]
    apart = replace(other, driver_version="580.95.02")
    judged = {row.part: row for row in host_rows("h", lock_of(lock, ()), apart, shipped().driver_matrix)}
    assert judged["fabric_manager"].verdict == "forbidden"
    assert "must have the driver's version, 580.95.02" in judged["fabric_manager"].reason


@pytest.mark.parametrize(
    ("driver", "observed", "locked", "verdict"),
    [
        ("580.82.07", "13.0", "13.0.2", "ok"),
        ("580.82.07", "13.0", "13.0 Update 2", "ok"),
        ("580.82.07", "12.8", "13.0.2", "drift"),
        ("580.82.07", "13.9", "13.9.1", "unknown"),
        ("535.309.01", "13.9", "13.9.1", "forbidden"),
        ("535.309.01", "99.0", None, "unknown"),
        ("535.309.01", "of a guest that lies", None, "unknown"),
    ],
)
def test_a_toolkit_is_as_locked_by_either_name_and_too_new_by_its_major(
    driver: str, observed: str, locked: str | None, verdict: str
) -> None:
    lock = DriverLock(site=() if locked is None else (Locked(component="cuda", version=locked),))
    facts = GuestFacts(driver=driver, cuda_toolkit=observed)
    rows = tool_rows("default/train", facts, lock_of(lock, ()), shipped().driver_matrix)
    assert [row.verdict for row in rows] == [verdict]
