# SPDX-License-Identifier: Apache-2.0
"""What a live GPU offers is counted by the geometry that plans use, whatever its driver lists."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.catalogue.catalogue import shipped
from orchestrator.catalogue.geometries import catalogue_geometry
from orchestrator.catalogue.gpu_tables import tables_of
from orchestrator.core.geometry.nested import instances_of
from orchestrator.core.hosts.host import Host
from orchestrator.core.hosts.snapshot import GpuInstance, GpuSnapshot, HostVgpuType
from orchestrator.services.fleet.view import gpu_view
from orchestrator.services.hosts.gpus import free_places

ADDRESS = "0000:41:00.0"
MODEL = "A100 PCIe 40GB"


def listed(device: str, subsystem: str) -> tuple[HostVgpuType, ...]:
    """Types of both modes, as a live driver lists them."""
    model = shipped().model_of_pci(device, subsystem)
    assert model is not None
    return tuple(
        HostVgpuType(
            name=row.name, type_id=row.type_id_hint or number, framebuffer_mib=row.framebuffer_mib,
            max_instances=row.max_per_gpu or 1,
        )
        for number, row in enumerate(shipped().types_of_model(model))
    )  # fmt: skip


def a100(*, mig: bool | None = False) -> GpuSnapshot:
    return GpuSnapshot(
        address=ADDRESS, uuid="GPU-1", serial=None, model="NVIDIA A100-PCIE-40GB", pci_vendor="10de",
        pci_device="20f1", pci_subsystem_vendor="10de", pci_subsystem_device="145f", numa_node=0, memory_mib=40960,
        driver="nvidia", framework="vendor_vfio", sriov_total_vfs=16, sriov_enabled_vfs=16, mig_enabled=mig,
        heterogeneous=False, module_id=None, types=listed("20f1", "145f"), parents=(),
    )  # fmt: skip


HOST = Host(
    name="gpu1", address="gpu1.test", port=22, provisioning_user="root", host_key="ssh-ed25519 AAAA", state="ready",
    state_reason=None, cordoned=False, machine_id="m", epoch=1, managed_gpus=(ADDRESS,), last_seen_at=None,
)  # fmt: skip


def free(gpu: GpuSnapshot, type_name: str) -> int:
    return free_places(gpu_view(HOST, gpu, tables_of(gpu), (), {}), type_name)


def with_instance(gpu: GpuSnapshot) -> GpuSnapshot:
    """One that somebody else made, at the end."""
    return replace(gpu, instances=(GpuInstance(id=9, profile="1g.5gb", start=6, size=1, compute=(0,), owner=None),))


@pytest.mark.parametrize("mig", [True, False])
@pytest.mark.parametrize("type_name", [one.name for one in listed("20f1", "145f")])
def test_an_empty_a100_has_as_many_places_as_planned_in_either_mode(type_name: str, mig: bool) -> None:
    """It lists the types of both modes, and its mode is switched for the first VM."""
    row = next(row for row in shipped().vgpu_types if row.name == type_name)
    assert free(a100(mig=mig), type_name) == row.max_per_gpu
    assert free(replace(a100(mig=mig), framework="mdev"), type_name) == row.max_per_gpu


@pytest.mark.parametrize("mig", [True, False, None])
@pytest.mark.parametrize("unknown", [None, 0])
def test_a_gpu_whose_memory_its_driver_does_not_tell_is_as_large_as_its_model(unknown: int | None, mig: bool) -> None:
    """Slots of no memory would make what is free of it nothing, and a share of it a division by zero."""
    told, silent = tables_of(a100(mig=mig)), tables_of(replace(a100(mig=mig), memory_mib=unknown))
    assert (silent.now.key, silent.ever.key) == (told.now.key, told.ever.key)


@pytest.mark.parametrize(
    ("type_name", "places"),
    [("GRID A100-1-5C", 6), ("GRID A100-1-10C", 3), ("GRID A100-3-20C", 1), ("GRID A100-5C", 0)],
)
def test_an_instance_that_somebody_else_made_is_used_and_keeps_the_gpu_in_its_mode(type_name: str, places: int) -> None:
    assert free(with_instance(a100(mig=True)), type_name) == places


def test_both_modes_of_a_live_gpu_are_cut_as_the_catalogue_plans_them() -> None:
    planned = catalogue_geometry(shipped(), MODEL, frozenset({"time_sliced", "mig", "mixable"}))
    for mig in (True, False):
        live = tables_of(a100(mig=mig)).now
        assert {cut.key for cut in live.cuts} == {cut.key for cut in planned.cuts}
        assert {name: set(found) for name, found in live.options.items()} == {
            name: set(found) for name, found in planned.options.items()
        }


def test_a_mig_backed_type_that_the_catalogue_lacks_is_never_taken_for_a_time_sliced_one() -> None:
    gpu = a100()
    new = HostVgpuType(name="GRID A100-1-3C", type_id=9999, framebuffer_mib=3072, max_instances=1)
    strange = HostVgpuType(name="GRID A100-1-5CX", type_id=9998, framebuffer_mib=5120, max_instances=8)
    grown = replace(gpu, types=(*gpu.types, new, strange))
    assert free(grown, new.name) == 0
    assert free(grown, "GRID A100-5C") == 8
    assert free(grown, strange.name) == 8


@pytest.mark.parametrize(
    ("driver", "memory_mib", "has", "lacks"),
    [
        (("1g.23gb", "2g.47gb", "7g.186gb"), 193536, ("1g.23gb", "2g.47gb"), ("1g.24gb", "3g.95gb")),
        (("1g.24gb", "2g.47gb", "7g.189gb"), 193536, ("1g.24gb", "2g.47gb"), ("1g.23gb", "3g.93gb")),
        ((), 189 * 1024, ("1g.24gb", "7g.189gb"), ("1g.23gb", "7g.186gb")),
        ((), 186 * 1024, ("1g.23gb", "7g.186gb"), ("1g.24gb", "7g.189gb")),
    ],
)
def test_profiles_of_a_board_are_named_as_its_driver_lists_them_or_by_its_memory(
    driver: tuple[str, ...], memory_mib: int, has: tuple[str, ...], lacks: tuple[str, ...]
) -> None:
    gb200 = replace(
        a100(), model="NVIDIA GB200", pci_device="2941", pci_subsystem_device="2045", memory_mib=memory_mib, types=(),
        mig_profiles=driver,
    )  # fmt: skip
    cut = instances_of(tables_of(gb200).ever.cut("mig"))
    assert cut is not None
    assert set(has) <= set(cut.shapes)
    assert not set(lacks) & set(cut.shapes)
