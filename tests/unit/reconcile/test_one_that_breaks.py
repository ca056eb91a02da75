# SPDX-License-Identifier: Apache-2.0
"""What breaks on one VM of a host keeps nothing from the host's others, is told, and is tried again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.core import diff
from orchestrator.core.diff.finding import ExpectedVm, Finding
from orchestrator.core.diff.vms import vm_findings
from orchestrator.core.hosts.snapshot import HostSnapshot
from orchestrator.core.vms.lease import WantedEnd
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, plane_with

NAMES = ("one", "two", "three")


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, T4_HOST) as made:
        for name in NAMES:
            made.services.vms.create(replace(create_vm(name), end=WantedEnd(after_s=3600)))
        made.engine.drain()
        yield made
        made.reconciler.close()


def breaking_once(plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first operation that is begun from now on breaks whoever begins it."""
    submit, left = plane.engine.submit, [KeyError("nobody thought of it")]

    def submitting(operation: str) -> None:
        if left:
            raise left.pop()
        submit(operation)

    monkeypatch.setattr(plane.engine, "submit", submitting)


def observed(plane: ControlPlane) -> list[str]:
    """Codes of what is found by a look; whatever it began has ended."""
    plane.reconciler.observe(T4_HOST)
    plane.engine.drain()
    return sorted(one.finding.code for one in plane.findings.list(host=T4_HOST))


def test_a_lease_that_cannot_be_ended_keeps_no_other_from_its_end(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaking_once(plane, monkeypatch)
    plane.world.clock.sleep(7200)
    assert "host.broke" in observed(plane)
    ended = [vm.deallocated for vm in plane.services.vms.list(None)]
    assert ended.count("lease_over") == len(NAMES) - 1


def test_a_finding_that_cannot_be_repaired_keeps_no_other_from_its_repair(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = plane.machine(T4_HOST)
    for vm in plane.services.vms.list(None):
        machine.domains[vm.id] = (machine.domains[vm.id][0], False)
    plane.reconciler.observe(T4_HOST)
    breaking_once(plane, monkeypatch)
    with pytest.raises(KeyError):
        plane.findings.repair(host=T4_HOST)
    plane.engine.drain()
    states = [vm.state for vm in plane.services.vms.list(None)]
    assert states.count("running") == len(NAMES) - 1


def test_a_vm_that_cannot_be_compared_is_a_finding_and_hides_nothing_about_the_others(
    plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine, compare = plane.machine(T4_HOST), vm_findings
    for vm in plane.services.vms.list(None):
        machine.domains[vm.id] = (machine.domains[vm.id][0], False)

    def comparing(wanted: ExpectedVm, snapshot: HostSnapshot) -> list[Finding]:
        if wanted.vm.spec.name == "two":
            raise KeyError("nobody thought of it")
        return list(compare(wanted, snapshot))

    monkeypatch.setattr(diff, "vm_findings", comparing)
    found = observed(plane)
    assert found.count("vm.not_compared") == 1
    assert len(found) == len(NAMES)
