# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import fields, replace

import pytest

from orchestrator.api.schemas.vms import VmAnswer, vm_json
from orchestrator.core.gpu.device import Device
from orchestrator.core.hosts.cpus import CpuPlace
from orchestrator.core.hosts.domain import DiskLimits
from orchestrator.core.vms.vm import Vm, VmSpec
from orchestrator.services.maintenance.waits import PlannedMaintenance
from tests.contract.store.test_store import vm

ONE = vm("one")
TYPED = replace(ONE.devices[0], kind="vendor_vfio", name=ONE.devices[0].parent)


PLANNED = PlannedMaintenance(
    id="u", act="upgrade", reason="", policy="wait", moves=False, opens_at=None, began_at=None, ends_by=None
)  # fmt: skip


@pytest.mark.parametrize(
    "listed",
    [
        ONE,
        replace(
            ONE, addresses=(), operation="op", lease_end=1795255200.1239, deallocated="lease_over", state="stopped"
        ),
        replace(
            ONE,
            spec=replace(ONE.spec, user_data="secret", label="file", adopted="byhand", boot_policy="ask-controller"),
        ),
        replace(ONE, devices=(TYPED,), created_at=1795255200.0),
        replace(ONE, devices=(*ONE.devices, TYPED)),
    ],
)
@pytest.mark.parametrize("watching", [True, False])
def test_a_vm_in_a_list_is_told_as_a_vm_alone_is(listed: Vm, watching: bool) -> None:
    for since in (None, 1795255200.5):
        alone = VmAnswer.of(listed, {} if since is None else {listed.host: since}, watching=watching)
        assert vm_json(listed, since, watching=watching) == alone.model_dump_json().encode()


def test_a_vm_that_was_told_before_is_told_anew_once_it_differs() -> None:
    told = vm_json(ONE, None, watching=True)
    assert vm_json(replace(ONE), None, watching=True) == told
    others = (
        vm_json(replace(ONE, state="stopped"), None, watching=True),
        vm_json(replace(ONE, spec=replace(ONE.spec, labels=(("team", "a"),))), None, watching=True),
        vm_json(replace(ONE, spec=replace(ONE.spec, protected=True)), None, watching=True),
        vm_json(replace(ONE, spec=replace(ONE.spec, from_snapshot="old/before")), None, watching=True),
        vm_json(replace(ONE, spec=replace(ONE.spec, from_backup="7" * 36)), None, watching=True),
        vm_json(replace(ONE, spec=replace(ONE.spec, disk_limits=DiskLimits(iops=100))), None, watching=True),
        vm_json(ONE, 1.5, watching=True),
        vm_json(ONE, None, PLANNED, watching=True),
        vm_json(ONE, None, replace(PLANNED, policy="22:00-05:00", opens_at=1795255200.0), watching=True),
        vm_json(ONE, None, fault="its GPU has a fault", watching=True),
        vm_json(ONE, None, floating=("192.0.2.107",), watching=True),
        vm_json(ONE, None, watching=False),
    )
    assert len({told, *others}) == 13
    assert [one.name for kind in (Vm, VmSpec, Device, CpuPlace) for one in fields(kind) if not one.compare] == [
        "from_snapshot",
        "from_backup",
        "labels",
        "protected",
        "disk_limits",
        "volume_limits",
    ]
