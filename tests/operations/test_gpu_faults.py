# SPDX-License-Identifier: Apache-2.0
"""GPUs whose driver says that they are at fault: told, not placed on, VMs beside them undisturbed, back when mended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.core.attachments.host_facts import facts_of
from orchestrator.core.diff import Finding
from orchestrator.core.errors import NoCapacity
from orchestrator.core.gpu.health import GpuSignal
from orchestrator.core.gpu.health_states import JOINING_S
from orchestrator.services.vms.capacity import Question
from orchestrator.store.snapshots import facts_from_text, facts_text
from tests.fakes.control_plane import L40S_HOST, ControlPlane, create_vm, plane_with
from tests.fakes.fake_machine import FakeGpu, snapshot_of
from tests.operations.fabric import HOST as HGX
from tests.operations.fabric import with_board

TYPE = "NVIDIA L40S-12Q"
REBOOT = GpuSignal(
    name="xid-154", text="GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)", at=1000
)


def xid(number: int, text: str = "pid='<unknown>', name=<unknown>") -> GpuSignal:
    return GpuSignal(name=f"xid-{number}", text=text, at=1_700_000_000)


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, L40S_HOST) as made:
        yield made


@pytest.fixture
def board(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path) as made:
        with_board(made)
        yield made


def gpus(plane: ControlPlane, host: str = L40S_HOST) -> list[FakeGpu]:
    return plane.machine(host).gpus


def created(plane: ControlPlane, name: str, profile: str = TYPE) -> str:
    """PCI address of its first GPU."""
    plane.services.vms.create(create_vm(name, profile=profile))
    plane.engine.drain()
    return _gpu(plane, name)


def _gpu(plane: ControlPlane, name: str) -> str:
    return plane.services.vms.get("default", name).devices[0].gpu


def struck(plane: ControlPlane, address: str, *signals: GpuSignal, host: str = L40S_HOST) -> dict[str, list[Finding]]:
    """Findings by code, once the GPU has these."""
    next(gpu for gpu in gpus(plane, host) if gpu.address == address).signals = signals
    found: dict[str, list[Finding]] = {}
    for one in plane.findings.observe(host):
        found.setdefault(one.finding.code, []).append(one.finding)
    return found


def free(plane: ControlPlane, profile: str = TYPE) -> int:
    (row,) = plane.services.capacity.capacity(Question(profile=profile))
    return row.fits_now


def refused(plane: ControlPlane, profile: str) -> dict[str, str]:
    """Code → message of each reason."""
    with pytest.raises(NoCapacity) as caught:
        plane.services.vms.create(create_vm("another", profile=profile))
    return {reason.code: reason.message for reason in caught.value.reasons}


@pytest.mark.fault("F78", "F80", "F82", "F84", "F85")
@pytest.mark.parametrize(
    ("signals", "severity", "to_do"),
    [
        ((xid(48), xid(63)), "error", "vgpuctl health reset"),
        ((xid(64),), "error", "vgpuctl health reset"),
        ((xid(79), REBOOT), "error", "reboot it"),
        ((xid(95),), "error", "vgpuctl health reset"),
        ((xid(119),), "error", "load its driver anew"),
        ((xid(120),), "error", "load its driver anew"),
    ],
)
def test_a_gpu_at_fault_is_told_with_its_vms_takes_nothing_new_and_is_back_when_it_is_mended(
    plane: ControlPlane, signals: tuple[GpuSignal, ...], severity: str, to_do: str
) -> None:
    gpu = created(plane, "train")
    before, machine = free(plane), plane.machine(L40S_HOST).state()
    others = {one.address: one.uuid for one in snapshot_of(plane.machine(L40S_HOST)).gpus}
    found = struck(plane, gpu, *signals)
    (of_gpu,), (of_vm,) = found.pop("gpu.fault"), found.pop("vm.gpu_fault")
    assert not found
    assert (of_gpu.severity, of_gpu.subject, of_gpu.repair) == (severity, f"GPU {gpu}", None)
    assert "Xid" in of_gpu.observed
    assert to_do in of_gpu.reason
    assert "default/train" in of_gpu.reason
    assert of_vm.subject == "VM default/train"
    assert not any(name in of_vm.observed + of_vm.reason for name in (L40S_HOST, gpu))
    told = plane.findings.gpu_faults()[plane.services.vms.get("default", "train").id]
    assert told.startswith("its GPU has a fault")
    assert free(plane) < before
    plane.findings.repair(host=L40S_HOST)
    plane.engine.drain()
    assert plane.machine(L40S_HOST).state() == machine, "what runs is left alone"
    assert {one.address: one.uuid for one in snapshot_of(plane.machine(L40S_HOST)).gpus} == others
    assert struck(plane, gpu) == {}
    assert (free(plane), plane.findings.gpu_faults()) == (before, {})


def test_why_a_gpu_at_fault_takes_nothing_is_explained(plane: ControlPlane) -> None:
    for gpu in gpus(plane):
        struck(plane, gpu.address, xid(95, "uncontained"))
    assert refused(plane, TYPE)["gpu.unusable"].endswith("it must be reset first: Xid 95: uncontained")
    shown = plane.services.gpus.get(L40S_HOST, gpus(plane)[0].address)
    assert [use.free for use in shown.types] == [0] * len(shown.types)
    assert shown.gpu.problems == ("it must be reset first: Xid 95: uncontained",)


@pytest.mark.fault("F79")
def test_a_row_that_was_remapped_changes_nothing_but_the_note(plane: ControlPlane) -> None:
    gpu = created(plane, "train")
    before = free(plane)
    found = struck(plane, gpu, xid(63, "Row Remapper: New row marked for remapping, reset gpu to activate."))
    assert {code: [one.severity for one in ones] for code, ones in found.items()} == {"gpu.fault": ["info"]}
    assert free(plane) == before
    created(plane, "another")


@pytest.mark.fault("F83")
def test_a_contained_error_is_the_vms_alone_and_for_a_day(plane: ControlPlane) -> None:
    gpu, now = created(plane, "train"), int(plane.world.clock.now())
    before, contained = free(plane), GpuSignal(name="xid-94", text="Contained", at=now)
    found = struck(plane, gpu, contained)
    assert {code: [one.subject for one in ones] for code, ones in found.items()} == {
        "vm.gpu_fault": ["VM default/train"]
    }
    assert found["vm.gpu_fault"][0].severity == "warning"
    assert free(plane) == before
    beside = next(name for name in (f"beside-{number}" for number in range(8)) if created(plane, name) == gpu)
    found = struck(plane, gpu, contained)
    assert set(found) == {"gpu.fault"}, "whose error it was is not known"
    (told,) = found["gpu.fault"]
    assert (told.severity, f"default/{beside}, default/train" in told.reason) == ("info", True)
    plane.world.clock.sleep(2 * 86400.0)
    assert struck(plane, gpu, contained) == {}


@pytest.mark.parametrize("number", [13, 31, 43, 45])
def test_what_programs_of_tenants_do_wrong_is_nobodys_finding(plane: ControlPlane, number: int) -> None:
    gpu = created(plane, "train")
    before = free(plane)
    assert struck(plane, gpu, xid(number)) == {}
    assert free(plane) == before


@pytest.mark.fault("F86")
@pytest.mark.parametrize("text", ["(", "", "GPU recovery action changed from 0x0 (None) to 0x63 (Dance)"])
def test_a_recovery_action_that_means_nothing_names_support_and_the_gpu_serves_on(
    plane: ControlPlane, text: str
) -> None:
    gpu = created(plane, "train")
    before = free(plane)
    (found,) = struck(plane, gpu, GpuSignal(name="xid-154", text=text)).pop("gpu.fault")
    assert (found.severity, "support" in found.reason) == ("warning", True)
    assert free(plane) == before


@pytest.mark.fault("F81", "F89")
@pytest.mark.parametrize(
    ("signal", "helps"),
    [
        (xid(74), "vgpuctl health reset"),
        (GpuSignal(name="fabric-route_unhealthy"), "vgpuctl health reset"),
        (GpuSignal(name="sxid-fatal", at=1000), "load its driver anew"),
    ],
)
def test_faulty_links_flag_the_vms_that_use_them_and_join_no_more_gpus(
    board: ControlPlane, signal: GpuSignal, helps: str
) -> None:
    first = created(board, "pair", "gpu:2")
    assert (free(board, "gpu:2"), free(board, "gpu:1")) == (1, 2)
    used = {device.gpu for device in board.services.vms.get("default", "pair").devices}
    idle = next(gpu.address for gpu in gpus(board, HGX) if gpu.address not in used)
    found = struck(board, idle, signal, host=HGX)
    assert [(code, helps in of_it[0].reason) for code, of_it in found.items()] == [("gpu.fabric_fault", True)]
    assert (free(board, "gpu:2"), free(board, "gpu:1")) == (0, 2)
    why = refused(board, "gpu:2")
    assert why["gpu.alone"].startswith("the GPU cannot be given out together with others")
    created(board, "single", "gpu:1")
    struck(board, idle, host=HGX)
    found = struck(board, first, signal, host=HGX)
    assert [one.subject for one in found["vm.gpu_fault"]] == ["VM default/pair"]


def test_a_gpu_that_still_joins_its_fabric_is_in_no_set_and_nobody_is_told(board: ControlPlane) -> None:
    created(board, "pair", "gpu:2")
    used = {device.gpu for device in board.services.vms.get("default", "pair").devices}
    idle = next(gpu.address for gpu in gpus(board, HGX) if gpu.address not in used)
    joining = GpuSignal(name="fabric-not_joined", text="in progress")
    assert struck(board, idle, joining, host=HGX) == {}
    assert (free(board, "gpu:2"), free(board, "gpu:1")) == (0, 2)
    board.world.clock.sleep(JOINING_S)
    assert set(struck(board, idle, joining, host=HGX)) == {"gpu.fabric_fault"}
    assert struck(board, idle, host=HGX) == {}
    assert (free(board, "gpu:2"), free(board, "gpu:1")) == (1, 2)


@pytest.mark.fault("F78")
def test_a_whole_gpu_at_fault_is_reset_when_its_vm_gives_it_back(board: ControlPlane) -> None:
    before = free(board, "gpu:1")
    gpu = created(board, "alone", "gpu:1")
    assert set(struck(board, gpu, xid(48), host=HGX)) == {"gpu.fault", "vm.gpu_fault"}
    board.services.vms.delete("default", "alone")
    board.engine.drain()
    assert board.findings.observe(HGX) == ()
    assert free(board, "gpu:1") == before


def test_faults_are_among_the_facts_that_placement_reads(plane: ControlPlane) -> None:
    gpus(plane)[0].signals = (xid(95), REBOOT)
    facts = facts_of(snapshot_of(plane.machine(L40S_HOST)))
    kept = facts_from_text(facts_text(facts), facts.disk_bytes)
    assert [gpu.signals for gpu in kept.gpus] == [gpu.signals for gpu in facts.gpus]
