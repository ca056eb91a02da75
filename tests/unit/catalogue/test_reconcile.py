# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from orchestrator.catalogue.catalogue import shipped
from orchestrator.catalogue.gpu_tables import model_name
from orchestrator.catalogue.quota_names import board_name, models_of
from orchestrator.catalogue.reconcile import reconcile_types
from orchestrator.core.hosts.snapshot import GpuSnapshot, HostVgpuType

CATALOGUE = shipped()


def host_types(model: str) -> tuple[HostVgpuType, ...]:
    found = CATALOGUE.model(model)
    assert found is not None
    return tuple(
        HostVgpuType(
            name=t.name,
            type_id=t.type_id_hint or 9000 + index,
            framebuffer_mib=t.framebuffer_mib,
            max_instances=t.max_per_gpu or 1,
        )
        for index, t in enumerate(CATALOGUE.types_of_model(found))
    )


def gpu(types: tuple[HostVgpuType, ...]) -> GpuSnapshot:
    return GpuSnapshot(
        address="0000:41:00.0",
        uuid="GPU-1",
        serial=None,
        model="NVIDIA L40S",
        pci_vendor="10de",
        pci_device="26b9",
        pci_subsystem_vendor="10de",
        pci_subsystem_device="1851",
        numa_node=0,
        memory_mib=46068,
        driver="nvidia",
        framework="vendor_vfio",
        sriov_total_vfs=32,
        sriov_enabled_vfs=32,
        mig_enabled=None,
        heterogeneous=False,
        module_id=None,
        types=types,
        parents=(),
    )


def test_a_host_that_agrees_leaves_nothing_to_report() -> None:
    result = reconcile_types(CATALOGUE, gpu(host_types("L40S")))
    assert result.disagreements == ()
    assert result.model is CATALOGUE.model("L40S")
    assert [t.name for t in result.types] == [t.name for t in host_types("L40S")]


def test_the_hosts_id_wins_and_is_reported() -> None:
    types = tuple(replace(t, type_id=t.type_id + 1000) for t in host_types("L40S"))
    result = reconcile_types(CATALOGUE, gpu(types))
    assert [t.type_id_hint for t in result.types] == [t.type_id for t in types]
    known = [t for t in CATALOGUE.vgpu_types if t.gpu_model == "L40S" and t.type_id_hint is not None]
    assert [d.kind for d in result.disagreements] == ["type_id"] * len(known)


def test_the_hosts_size_and_maximum_win_and_placements_for_other_sizes_are_dropped() -> None:
    types = tuple(
        replace(t, framebuffer_mib=12000, max_instances=3) if t.name == "NVIDIA L40S-12Q" else t
        for t in host_types("L40S")
    )
    result = reconcile_types(CATALOGUE, gpu(types))
    changed = next(t for t in result.types if t.name == "NVIDIA L40S-12Q")
    assert (changed.framebuffer_mib, changed.max_per_gpu, changed.placement_ids) == (12000, 3, ())
    found = [(d.kind, d.subject, d.host, d.catalogue) for d in result.disagreements]
    assert found == [
        ("framebuffer", "NVIDIA L40S-12Q", "12000", "12288"),
        ("max_instances", "NVIDIA L40S-12Q", "3", "4"),
    ]
    untouched = next(t for t in result.types if t.name == "NVIDIA L40S-24Q")
    assert untouched.placement_ids


def test_an_unknown_gpu_works_from_what_its_driver_says() -> None:
    types = (
        HostVgpuType(name="NVIDIA Z9-1-8C", type_id=4001, framebuffer_mib=8192, max_instances=7),
        HostVgpuType(name="Something Else", type_id=4002, framebuffer_mib=4096, max_instances=2),
    )
    result = reconcile_types(CATALOGUE, replace(gpu(types), pci_device="ffff", model="NVIDIA Z9"))
    assert result.model is None
    assert [(t.name, t.mode, t.series, t.max_per_gpu) for t in result.types] == [
        ("NVIDIA Z9-1-8C", "mig_backed", "C", 7),
        ("Something Else", "time_sliced", None, 2),
    ]
    assert [d.kind for d in result.disagreements] == ["gpu_unknown", "type_unknown", "type_unknown"]


def test_a_type_that_the_host_does_not_offer_is_reported_as_missing() -> None:
    result = reconcile_types(CATALOGUE, gpu(host_types("L40S")[1:]))
    assert [(d.kind, d.subject) for d in result.disagreements] == [("type_missing", host_types("L40S")[0].name)]


def test_a_type_of_another_model_is_used_and_reported() -> None:
    types = (*host_types("L40S"), HostVgpuType(name="NVIDIA L40-8Q", type_id=1, framebuffer_mib=8192, max_instances=6))
    result = reconcile_types(CATALOGUE, gpu(types))
    assert result.types[-1].name == "NVIDIA L40-8Q"
    assert [(d.kind, d.catalogue) for d in result.disagreements] == [("type_of_other_model", "a type of L40")]


def test_a_driver_without_vgpu_software_lists_nothing_and_contradicts_nothing() -> None:
    result = reconcile_types(CATALOGUE, gpu(()))
    assert (result.types, result.disagreements) == ((), ())


def test_memory_that_no_reservation_explains_is_reported() -> None:
    assert reconcile_types(CATALOGUE, replace(gpu(()), memory_mib=24576)).disagreements[0].kind == "memory"


def test_a_gpu_goes_by_the_catalogue_s_name_of_its_pci_ids() -> None:
    unread = replace(gpu(()), model="NVIDIA 10de:26b9", memory_mib=None)
    assert model_name(unread) == "L40S"
    assert model_name(gpu(())) == "L40S"
    assert model_name(replace(unread, pci_device="ffff", model="NVIDIA 10de:ffff")) == "NVIDIA 10de:ffff"
    assert reconcile_types(CATALOGUE, unread).disagreements == ()


def test_a_whole_gpu_is_named_by_its_model_and_not_as_vgpu_types_begin() -> None:
    shown = {name: models_of(board_name(name)) for name in ("H100 SXM5 80GB", "Tesla T4", "L40S", "A30")}
    assert shown == {"H100 SXM5 80GB": "H100 SXM5 80GB", "Tesla T4": "Tesla T4", "L40S": "L40S", "A30": "A30 or A30X"}
    assert models_of(board_name("GPU of tomorrow")) == "GPU of tomorrow"
