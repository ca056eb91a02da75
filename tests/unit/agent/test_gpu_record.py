# SPDX-License-Identifier: Apache-2.0
"""What the ledger keeps of a GPU that a VM has as a whole is read back as the snapshot takes it."""

from __future__ import annotations

from dataclasses import fields, replace

from orchestrator.agent.attachments.gpu_record import FunctionBefore, GpuRecord
from orchestrator.agent.nvml.gpu_instances import FoundInstance
from orchestrator.agent.nvml.reading import NvmlGpu
from orchestrator.core.gpu.fabric import GpuFabric
from orchestrator.core.gpu.health import GpuSignal
from orchestrator.core.gpu.licence import VgpuLicence
from orchestrator.core.gpu.vgpu_metadata import RunningVgpu
from orchestrator.core.gpu.vgpu_parameters import SchedulerState
from orchestrator.core.hosts.snapshot import HostVgpuType

SAID = NvmlGpu(
    uuid="GPU-1", serial="1", name="NVIDIA H100", memory_mib=81920, mig_enabled=False, mig_pending=False,
    instances=(FoundInstance(id=1, profile="1g.10gb", start=0, size=1, compute=(0,)),), heterogeneous=False,
    module_id=7, types=(HostVgpuType(name="H100-4C", type_id=1, framebuffer_mib=4096, max_instances=20),),
    problems=("warm",), scheduler=SchedulerState(policy="best_effort", time_slice_us=None),
    licences=(VgpuLicence(vm="a", state="licensed"),), mig_profiles=("1g.10gb",),
    signals=(GpuSignal(name="memory-remap_pending"),), ecc=False, moves_vgpus=False,
    metadata="AA==", open_vgpus=(RunningVgpu(vm="a", metadata="AA=="),), power_min_watts=200, power_default_watts=700,
    power_max_watts=700, power_limit_watts=500, fabric=GpuFabric(state="completed", cluster=None, clique=0),
)  # fmt: skip


def test_every_field_is_read_back_without_what_a_gpu_with_vfio_cannot_have() -> None:
    function = FunctionBefore(address="0000:41:00.0", driver="nvidia", override="")
    record = GpuRecord(model="NVIDIA H100", functions=(function,), had_virtual_functions=True, said=SAID)
    kept = replace(
        SAID,
        instances=(),
        scheduler=None,
        licences=(),
        signals=(),
        metadata=None,
        open_vgpus=(),
        power_limit_watts=None,
        fabric=None,
    )
    assert GpuRecord.from_text(record.to_text()) == replace(record, said=kept)
    assert all(getattr(SAID, one.name) not in (None, ()) for one in fields(NvmlGpu))


def test_a_record_of_before_licences_is_read() -> None:
    record = GpuRecord(model="m", functions=(), had_virtual_functions=False, said=replace(SAID, licences=()))
    text = record.to_text().replace(',"licences":[]', "")
    assert "licences" not in text
    assert GpuRecord.from_text(text) == GpuRecord.from_text(record.to_text())
