# SPDX-License-Identifier: Apache-2.0
"""The form of an offering file. Strict: no field is guessed, converted or ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError

from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.vgpu_parameters import Scheduler, SchedulerPolicy, VgpuParameters
from orchestrator.core.guest.settings import MAX_SETTINGS
from orchestrator.core.hosts.domain import Firmware
from orchestrator.core.hosts.nic import NicKind
from orchestrator.core.labels import KEY_PATTERN, MAX_LABELS, VALUE_PATTERN, check_labels
from orchestrator.core.offerings.offering import (
    AntiAffinity,
    CpuPolicy,
    HugePageSize,
    NumaPolicy,
    Offering,
    OfferingKind,
    Origin,
)
from orchestrator.core.plain_words import LINE_PATTERN
from orchestrator.core.units import MIB, show_size
from orchestrator.core.vms.vm import MAX_VCPUS, disk_bytes, memory_mib

OfferingName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
Text = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=LINE_PATTERN)]
LabelKey = Annotated[str, StringConstraints(pattern=f"^(?:{KEY_PATTERN})$")]
LabelValue = Annotated[str, StringConstraints(pattern=f"^(?:{VALUE_PATTERN})$")]


def _memory(text: str) -> str:
    try:
        return show_size(memory_mib(text) * MIB)
    except InvalidInput as error:
        raise PydanticCustomError("refused", "{why}", {"why": f"{error.message}; {error.hint}"}) from error


def _disk(text: str) -> str:
    try:
        return show_size(disk_bytes(text))
    except InvalidInput as error:
        raise PydanticCustomError("refused", "{why}", {"why": f"{error.message}; {error.hint}"}) from error


class _OfferingPart(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SchedulerForm(_OfferingPart):
    """How the GPU's time is divided among its vGPUs."""

    policy: SchedulerPolicy = Field(description="Division of the GPU's time; a GPU has one policy")
    time_slice_ms: int | None = Field(
        default=None, ge=-1000, le=1000, description="1 to 30; only for equal_share and fixed_share"
    )


class ParametersForm(_OfferingPart):
    """Parameters of the vGPU plugin."""

    uvm: bool = Field(default=False, description="Unified memory: MIG-backed types and full-size C types")
    frame_rate_limiter: bool | None = Field(default=None, description="Works under best_effort only")
    debugging: bool = Field(default=False, description="CUDA debuggers in the guest; rules out live migration")
    profiling: bool = Field(default=False, description="CUDA profilers in the guest; rules out live migration")
    console: Literal[False] | None = Field(default=None, description="false: the vGPU draws no VNC console")


class OfferingForm(_OfferingPart):
    """One offering."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"name": "notebook", "kind": "time_sliced", "vgpu_type": "NVIDIA L40S-12Q"}]}
    )

    name: OfferingName = Field(description="What --profile takes: lower-case letters, digits and '-'")
    version: int = Field(default=1, ge=1, le=1_000_000, description="Raise it when the meaning changes")
    description: str = Field(default="", max_length=200, pattern=LINE_PATTERN)
    kind: OfferingKind
    vgpu_type: Text | None = Field(default=None, description="NVIDIA's name; for time_sliced and mig_backed")
    vgpu_count: int = Field(default=1, ge=1, le=16, description="vGPUs of that type in one VM")
    mig_profile: Text | None = Field(default=None, description="GPU-instance profile; for mig")
    gpu_count: int = Field(default=0, ge=0, le=1000, description="Whole GPUs; for passthrough")
    gpu_models: list[Text] = Field(default=[], max_length=64, description="GPU models that will do; none named: any")
    hosts: dict[LabelKey, LabelValue] = Field(
        default={}, max_length=MAX_LABELS, description="Labels that a host must have, all of them; none: any host"
    )
    scheduler: SchedulerForm | None = None
    parameters: ParametersForm = ParametersForm()
    vcpus: int | None = Field(
        default=None, ge=1, le=MAX_VCPUS, description="Of a VM that asks for no number; none: by its framebuffer"
    )
    memory: Annotated[Text, AfterValidator(_memory)] | None = Field(
        default=None, description="The same of memory, like 32GiB"
    )
    disk: Annotated[Text, AfterValidator(_disk)] | None = Field(
        default=None, description="The same of its disk, like 100GiB"
    )
    mixed_sizes: bool = Field(default=False, description="Needs a GPU in heterogeneous mode")
    numa: NumaPolicy = "prefer"
    cpu: CpuPolicy = "shared"
    hugepages: HugePageSize | None = Field(default=None, description="What the VM's memory is made of, all of it")
    firmware: Firmware = Field(default="bios", description="What its guests boot by; uefi: without Secure Boot")
    nic: NicKind | None = Field(default=None, description="A virtual function of a network card near the GPU")
    anti_affinity: AntiAffinity = Field(default="none", description="What two VMs of a tenant may not share")
    migratable: bool = Field(default=False, description="Whether a running VM may be moved")
    provision: list[Text] = Field(
        default=[], max_length=32, description="Roles that are run in the guest of a new VM, as vm provision has them"
    )
    provision_settings: dict[Text, int | Text] = Field(
        default={}, max_length=MAX_SETTINGS, description="What is said to these roles, by name"
    )
    unlisted: bool = Field(
        default=False, description="The names are newer than the shipped tables: do not look them up"
    )

    def to_core(self, origin: Origin = "catalogue") -> Offering:
        """The offering as the core knows it."""
        scheduler = self.scheduler
        return Offering(
            name=self.name,
            origin=origin,
            version=self.version,
            description=self.description,
            kind=self.kind,
            vgpu_type=self.vgpu_type,
            vgpu_count=self.vgpu_count,
            mig_profile=self.mig_profile,
            gpu_count=self.gpu_count,
            gpu_models=tuple(self.gpu_models),
            hosts=check_labels(self.hosts),
            scheduler=Scheduler(**scheduler.model_dump()) if scheduler else None,
            parameters=VgpuParameters(**self.parameters.model_dump()),
            vcpus=self.vcpus,
            memory=self.memory,
            disk=self.disk,
            mixed_sizes=self.mixed_sizes,
            numa=self.numa,
            cpu=self.cpu,
            hugepages=self.hugepages,
            firmware=self.firmware,
            nic=self.nic,
            anti_affinity=self.anti_affinity,
            migratable=self.migratable,
            provision=tuple(self.provision),
            provision_settings=dict(self.provision_settings),
        )


def _a_number(value: object) -> object:
    """``true`` and ``1.0`` equal 1 and are none."""
    if type(value) is not int:
        raise PydanticCustomError("not_a_number", "is not 1")
    return value


SchemaVersion = Annotated[Literal[1], BeforeValidator(_a_number)]


class OfferingFileForm(_OfferingPart):
    """A file of offerings."""

    schema_version: SchemaVersion
    offerings: list[OfferingForm] = Field(min_length=1)


def json_schema() -> dict[str, Any]:
    """JSON schema of an offering file, for editors; kept in vgpu_profiles/offerings/schema.json."""
    return OfferingFileForm.model_json_schema()
