# SPDX-License-Identifier: Apache-2.0
"""A fleet file says what the first GPU of a host tells of itself, until it is reset."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.catalogue.catalogue import shipped
from orchestrator.core.actions.host_actions import BindVfio, FencingToken, HostAction, RestoreDriver
from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.health import GpuSignal
from orchestrator.sim.agent import perform
from orchestrator.sim.fleet import enrolled, fleet_of
from orchestrator.sim.machine import SimulatedMachine
from orchestrator.sim.machine_files import MachineFiles
from orchestrator.sim.observing import snapshot_of

GROUP = "{name: l40s, count: 1, gpu_model: L40S, gpus_per_host: 2, vcpus: 96, memory_gib: 768, signals: [%s]}"


def _machine(tmp_path: Path, signals: str) -> SimulatedMachine:
    file = tmp_path / "fleet.yaml"
    file.write_text(f"groups:\n  - {GROUP % signals}\n")
    return enrolled(fleet_of(file, shipped()).machine("l40s-0.test"), "site")


def _told(machine: SimulatedMachine) -> list[tuple[GpuSignal, ...]]:
    return [gpu.signals for gpu in snapshot_of(machine).gpus]


def test_a_signal_is_told_of_the_first_gpu_until_it_is_reset_also_after_the_server_was_stopped(tmp_path: Path) -> None:
    machine, files = _machine(tmp_path, "xid-95"), MachineFiles(tmp_path / "machines")
    assert _told(machine) == [(GpuSignal(name="xid-95"),), ()]
    address = snapshot_of(machine).gpus[0].address
    actions: tuple[HostAction, ...] = (
        BindVfio(vm="op", gpu=address, model="L40S"), RestoreDriver(vm="op", gpu=address)
    )  # fmt: skip
    for action in actions:
        perform(machine, action, FencingToken(site="site", epoch=1, operation="op", attempt=1))
    assert _told(machine) == [(), ()]
    files.keep("l40s-0.test", machine)
    again = _machine(tmp_path, "xid-95")
    assert files.restore("l40s-0.test", again)
    assert _told(again) == [(), ()]


def test_what_is_no_name_of_a_signal_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as refused:
        _machine(tmp_path, '"Xid 95"')
    assert refused.value.code == "fleet.invalid"
