# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core.errors import Conflict, QuotaExceeded
from orchestrator.core.vms.priority import PRIORITIES, Priority
from orchestrator.services.messages import CreateVm
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, plane_with


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        yield made


def wanted(priority: Priority, name: str = "train") -> CreateVm:
    return replace(create_vm(name), priority=priority)


def test_a_vm_has_at_most_the_priority_that_its_tenants_policy_allows(plane: ControlPlane) -> None:
    vms = plane.services.vms
    for number, most in enumerate(PRIORITIES):
        plane.services.tenancy.policies.change("default", {"max_priority": most})
        for priority in PRIORITIES[: number + 1]:
            name = f"{priority}-of-{most}"
            vms.plan(wanted(priority, name))
            vms.create(wanted(priority, name))
            assert vms.get("default", name).spec.priority == priority
        for priority in PRIORITIES[number + 1 :]:
            for ask in (vms.plan, vms.create):
                with pytest.raises(QuotaExceeded) as raised:
                    ask(wanted(priority, "refused"))
                assert raised.value.code == "priority.too_high"
                assert f"'vgpuctl policy set default max-priority={priority}'" in str(raised.value.hint)
    assert "refused" not in [vm.spec.name for vm in vms.list(None)]


def test_without_a_policy_normal_is_the_highest_and_another_priority_is_another_vm(plane: ControlPlane) -> None:
    with pytest.raises(QuotaExceeded):
        plane.services.vms.create(wanted("high"))
    plane.services.vms.create(wanted("low"))
    assert plane.services.vms.create(wanted("low")).existing
    with pytest.raises(Conflict) as raised:
        plane.services.vms.create(wanted("normal"))
    assert raised.value.code == "vm.exists"
