# SPDX-License-Identifier: Apache-2.0
"""More VMs are made than there are workers, and none of their guests says anything: nobody waits for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from orchestrator.adapters.engine.timer import Timer
from orchestrator.adapters.state.clock import SystemClock
from orchestrator.core.operation import FINISHED
from orchestrator.operations.context import Limits
from orchestrator.operations.definitions import DEFINITIONS
from orchestrator.operations.journal import Journal
from orchestrator.operations.runner import Runner
from orchestrator.reconcile.guests import ROUND_S, BootingGuests
from tests.contract.engine.test_durable import durable
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, control_plane, create_vm
from tests.fakes.several import until

WORKERS, SILENT = 8, 12
GUEST_S = 3600.0
"""Longer than the test may take: nothing ends because a guest had its time."""


def states(plane: ControlPlane, operations: list[str]) -> set[str]:
    return {plane.services.operations.get(one).state for one in operations}


def asked(plane: ControlPlane, names: list[str], profile: str) -> list[str]:
    return [str(plane.services.vms.create(create_vm(name, profile=profile)).operation) for name in names]


def test_silent_guests_hold_no_worker_and_end_when_they_are_heard(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'e.sqlite'}"
    plane = control_plane(tmp_path, url=url)
    for host in (T4_HOST, L40S_HOST):
        plane.add_host(host)
    plane.machine(T4_HOST).gives_addresses = False
    silent = asked(plane, [f"silent{number}" for number in range(SILENT)], "GRID T4-2Q")
    clock = SystemClock()
    world = replace(plane.world, clock=clock, limits=Limits(guest_seen=GUEST_S))
    runner = Runner(world, Journal(plane.store, clock), DEFINITIONS)
    engine = durable(plane.store, url, runner, WORKERS, lambda *_: None)
    guests = BootingGuests(plane.store, plane.hosts, clock, engine, limit_s=GUEST_S)
    timer = Timer({"guests": guests.round}, ROUND_S)
    engine.recover()
    timer.start()
    until(lambda: all(plane.services.operations.get(one).guest_wait == "waiting" for one in silent))

    made = asked(plane, ["heard"], "NVIDIA L40S-12Q")
    engine.submit(made[0])
    until(lambda: states(plane, made) <= FINISHED)
    removed = [str(plane.services.vms.delete("default", name).operation) for name in ("heard", "silent0")]
    for one in removed:
        engine.submit(one)
    until(lambda: states(plane, removed) <= FINISHED)
    assert (states(plane, made), states(plane, removed)) == ({"done"}, {"done"})
    assert states(plane, silent[1:]) == {"running"}

    plane.machine(T4_HOST).gives_addresses = True
    until(lambda: states(plane, silent[1:]) <= FINISHED)
    assert states(plane, silent[1:]) == {"done"}
    timer.stop()
    guests.close()
    engine.stop()
    plane.store.close()
