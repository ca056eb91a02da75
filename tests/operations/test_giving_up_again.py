# SPDX-License-Identifier: Apache-2.0
"""A host that was evacuated is back, and what it has of VMs that run elsewhere does not go at the first try."""

from __future__ import annotations

from pathlib import Path

from orchestrator.core.errors import Fatal
from orchestrator.services.maintenance.maintenances import WantedEvacuation
from tests.fakes.control_plane import L40S_HOST, control_plane
from tests.fakes.fake_host import no_fault
from tests.operations import pools
from tests.operations.evacuations import comes_back, dies
from tests.operations.test_driver_upgrades import go_on


def test_it_gives_them_up_once_more_when_that_was_abandoned_and_serves_again(tmp_path: Path) -> None:
    plane = control_plane(tmp_path)
    pools.with_running_vm(plane)
    vm = plane.services.vms.get("default", "train").id
    dies(plane)
    plane.services.maintenances.evacuate(L40S_HOST, WantedEvacuation(confirm=L40S_HOST, fence="hand"))
    go_on(plane)
    plane.hosts.strike = lambda _, moment, name: (
        Fatal("vm.undefine_failed", "libvirt refuses") if (moment, name) == ("before", "UndefineDomain") else None
    )
    comes_back(plane)
    turn = go_on(plane).host(L40S_HOST)
    assert turn.why == f"it has not given up VMs that run elsewhere: operation {turn.swap} is stuck"
    plane.hosts.strike = no_fault
    plane.services.operations.abandon(str(turn.swap))
    assert (go_on(plane).host(L40S_HOST).vms, vm in plane.machine(L40S_HOST).domains) == ((), False)
    plane.observer.observe(L40S_HOST)
    plane.services.hosts.uncordon(L40S_HOST)
    assert go_on(plane).state == "done"
    plane.store.close()
