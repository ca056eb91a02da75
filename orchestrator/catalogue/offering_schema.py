# SPDX-License-Identifier: Apache-2.0
"""The form of an offering file. Strict: no field is guessed, converted or ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints
from pydantic_core import PydanticCustomError

from orchestrator.catalogue.described import StrictForm
from orchestrator.core.errors import InvalidInput
from orchestrator.core.gpu.vgpu_parameters import Scheduler, VgpuParameters
from orchestrator.core.guest.settings import MAX_SETTINGS
from orchestrator.core.labels import KEY_PATTERN, MAX_LABELS, VALUE_PATTERN, check_labels
from orchestrator.core.offerings.offering import (
    Offering,
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


class SchedulerForm(StrictForm, copies=Scheduler, defaults=True):
    """How the GPU's time is divided among its vGPUs."""

    time_slice_ms: int | None = Field(default=None, ge=-1000, le=1000)


class ParametersForm(StrictForm, copies=VgpuParameters, defaults=True):
    """Parameters of the vGPU plugin."""

    console: Literal[False] | None = None
    """false: the vGPU draws no VNC console; null: the driver's default."""


class OfferingForm(
    StrictForm,
    copies=Offering,
    without={"origin"},
    defaults=True,
    example={"name": "notebook", "kind": "time_sliced", "vgpu_type": "NVIDIA L40S-12Q"},
):
    """One offering."""

    name: OfferingName
    version: int = Field(default=1, ge=1, le=1_000_000)
    description: str = Field(default="", max_length=200, pattern=LINE_PATTERN)
    vgpu_type: Text | None = None
    vgpu_count: int = Field(default=1, ge=1, le=16)
    mig_profile: Text | None = None
    gpu_count: int = Field(default=0, ge=0, le=1000)
    gpu_models: list[Text] = Field(default=[], max_length=64)
    hosts: dict[LabelKey, LabelValue] = Field(default={}, max_length=MAX_LABELS)
    scheduler: SchedulerForm | None = None
    parameters: ParametersForm = ParametersForm()
    vcpus: int | None = Field(default=None, ge=1, le=MAX_VCPUS)
    memory: Annotated[Text, AfterValidator(_memory)] | None = None
    disk: Annotated[Text, AfterValidator(_disk)] | None = None
    provision: list[Text] = Field(default=[], max_length=32)
    provision_settings: dict[Text, int | Text] = Field(default={}, max_length=MAX_SETTINGS)
    unlisted: bool = False
    """The names are newer than the shipped tables: do not look them up."""

    def to_core(self, origin: Origin = "catalogue") -> Offering:
        values = self.model_dump(exclude={"unlisted"})
        return Offering.from_fields({**values, "origin": origin, "hosts": check_labels(self.hosts)})


def _a_number(value: object) -> object:
    """``true`` and ``1.0`` equal 1 and are none."""
    if type(value) is not int:
        raise PydanticCustomError("not_a_number", "is not 1")
    return value


SchemaVersion = Annotated[Literal[1], BeforeValidator(_a_number)]


class OfferingFileForm(StrictForm):
    """A file of offerings."""

    schema_version: SchemaVersion
    offerings: list[OfferingForm] = Field(min_length=1)


def json_schema() -> dict[str, Any]:
    """JSON schema of an offering file, for editors; kept in vgpu_profiles/offerings/schema.json."""
    return OfferingFileForm.model_json_schema()
