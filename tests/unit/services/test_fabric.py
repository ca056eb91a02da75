# SPDX-License-Identifier: Apache-2.0
"""Which whole GPUs a fabric that is not well keeps from being given out."""

from __future__ import annotations

from orchestrator.catalogue.gpu_tables import tables_of
from orchestrator.core.gpu.fabric import FabricSnapshot, ObservedPartition
from orchestrator.core.hosts.snapshot import GpuSnapshot
from orchestrator.services.fleet.fabric import reason_not_joined
from tests.unit.services.test_what_if import gpu

DOWN = FabricSnapshot(version=None, problem="it does not answer")
WELL = FabricSnapshot(version="580.105.06", partitions=(ObservedPartition(id=7, modules=(1,), active=False),))


def h100(module_id: int | None) -> GpuSnapshot:
    return gpu(1, "NVIDIA H100 80GB HBM3", "2330", "16c1", 80, module_id=module_id)


def a100(module_id: int | None) -> GpuSnapshot:
    return gpu(1, "NVIDIA A100-SXM4-80GB", "20b2", "1463", 80, module_id=module_id)


def l40s() -> GpuSnapshot:
    return gpu(1, "NVIDIA L40S", "26b9", "1851", 45)


def reason(one: GpuSnapshot, fabric: FabricSnapshot | None) -> str | None:
    return reason_not_joined(one, tables_of(one), fabric)


def test_a_board_whose_partitions_are_known_needs_a_fabric_manager_that_is_well() -> None:
    assert reason(h100(1), WELL) is None
    assert reason(h100(1), DOWN) == "it does not answer"
    assert reason(h100(None), WELL) == "its module id is not known"
    assert reason(h100(1), None) == "it hangs on an NVSwitch, and its host tells of no fabric manager"


def test_a_board_whose_partitions_only_its_host_knows_needs_it_as_well() -> None:
    assert reason(a100(1), WELL) is None
    assert reason(a100(1), DOWN) == "it does not answer"


def test_a_gpu_on_no_board_needs_none() -> None:
    assert reason(l40s(), DOWN) is None
    assert reason(l40s(), None) is None
