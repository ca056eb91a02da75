# SPDX-License-Identifier: Apache-2.0
"""Hosts on which nothing keeps QEMU to its own files: no new VM, unless an operator allows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.core.errors import NoCapacity
from orchestrator.core.hosts.snapshot import Confinement
from orchestrator.services.messages import HostChange
from orchestrator.services.vms.capacity import Question
from tests.fakes.control_plane import L40S_HOST, T4_HOST, ControlPlane, create_vm, plane_with


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST, L40S_HOST) as made:
        yield made
        made.reconciler.close()


def codes(plane: ControlPlane, host: str) -> list[str]:
    return [one.finding.code for one in plane.findings.observe(host)]


def told(plane: ControlPlane, confinement: Confinement | None) -> None:
    for host in (T4_HOST, L40S_HOST):
        plane.machine(host).confinement = confinement
        plane.findings.observe(host)


def test_nothing_new_is_put_there_and_every_answer_says_the_same(plane: ControlPlane) -> None:
    told(plane, "none")
    with pytest.raises(NoCapacity) as refused:
        plane.services.vms.create(create_vm())
    reasons = {(one.code, one.message) for one in refused.value.reasons}
    assert ("host.unconfined", "neither AppArmor nor SELinux keeps the host's VMs to their own files") in reasons
    with pytest.raises(NoCapacity) as planned:
        plane.services.vms.plan(create_vm())
    assert {(one.code, one.message) for one in planned.value.reasons} == reasons
    capacity = plane.services.capacity
    explained = capacity.explain(Question(profile=create_vm().profile)).explanation
    assert {(one.code, one.message) for one in explained.reasons} == reasons
    assert codes(plane, T4_HOST) == ["host.unconfined"]


def test_a_host_for_which_it_is_allowed_takes_vms_and_is_no_finding(plane: ControlPlane) -> None:
    told(plane, "none")
    changed = plane.services.hosts.change(T4_HOST, HostChange(allow_unconfined=True))
    assert changed.host.allow_unconfined
    assert codes(plane, T4_HOST) == []
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    assert plane.services.vms.get("default", "train").state == "running"
    plane.services.hosts.change(T4_HOST, HostChange(allow_unconfined=False))
    with pytest.raises(NoCapacity):
        plane.services.vms.create(create_vm("second"))


def test_what_is_there_already_goes_on(plane: ControlPlane) -> None:
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    told(plane, "none")
    for change in (plane.services.vms.stop, plane.services.vms.start):
        change("default", "train")
        plane.engine.drain()
    assert plane.services.vms.get("default", "train").state == "running"


def test_an_agent_that_does_not_tell_is_a_finding_and_its_host_takes_vms_as_before(plane: ControlPlane) -> None:
    told(plane, None)
    assert codes(plane, T4_HOST) == ["host.confinement_unknown"]
    plane.services.vms.create(create_vm())
    plane.engine.drain()
    assert plane.services.vms.get("default", "train").state == "running"
