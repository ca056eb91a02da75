# SPDX-License-Identifier: Apache-2.0
"""mig-parted's configuration files (NVIDIA/mig-parted, api/spec/v1/spec.go): read as it reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field, ValidationError, model_validator

from orchestrator.catalogue.described import StrictForm
from orchestrator.catalogue.problems import Problem
from orchestrator.catalogue.tables import describe
from orchestrator.catalogue.yaml_lines import LinedYaml
from orchestrator.core.errors import InvalidInput, Reason
from orchestrator.core.gpu.mig_profile import is_mig_profile_name, parse_mig_profile_name
from orchestrator.core.hosts.mig_layout import MigEntry

MAX_MIG_FILE_BYTES: Final = 1 << 20
_MOST: Final = 1000

DeviceFilter = Annotated[str, Field(pattern=r"^(0[xX][0-9a-fA-F]{1,8}(:0[xX][0-9a-fA-F]{1,8})?)?$")]
DeviceFilters = Annotated[list[DeviceFilter], Field(max_length=_MOST)]
Number = Annotated[int, Field(ge=0, le=_MOST)]
Numbers = Annotated[list[Number], Field(max_length=_MOST)]


class _Part(StrictForm):
    model_config = ConfigDict(populate_by_name=True)


class MigEntryForm(_Part):
    """What some GPUs shall be."""

    device_filter: DeviceFilter | DeviceFilters | None = Field(default=None, alias="device-filter")
    """PCI device and vendor ids like 0x20B210DE; the others are left."""
    devices: Literal["all"] | Numbers
    """Numbers of GPUs in the order of PCI addresses."""
    mig_enabled: bool = Field(alias="mig-enabled")
    """The mode that they shall be in."""
    mig_devices: dict[str, Number] | None = Field(default=None, alias="mig-devices", max_length=100)
    """How many of each GPU-instance profile."""

    @model_validator(mode="after")
    def _goes_together(self) -> MigEntryForm:
        for name in self.mig_devices or ():
            if not is_mig_profile_name(name):
                raise ValueError(f"{name[:40]!a} is not the name of a MIG profile")
            if parse_mig_profile_name(name).ci_slices is not None:
                raise ValueError(f"{name} is a part of a GPU instance: vgpuctl makes whole ones only")
        if self.mig_enabled and self.mig_devices is None:
            raise ValueError("mig-devices is missing, which mig-enabled: true needs ({} for none)")
        if not self.mig_enabled and self.mig_devices:
            raise ValueError("mig-devices says something although mig-enabled is false")
        if self.mig_devices and not any(self.mig_devices.values()):
            raise ValueError("all counts of mig-devices are 0")
        return self

    def to_core(self) -> MigEntry:
        filters = [self.device_filter] if isinstance(self.device_filter, str) else self.device_filter or []
        counts = {name: count for name, count in (self.mig_devices or {}).items() if count}
        return MigEntry(
            devices=None if self.devices == "all" else tuple(self.devices),
            filters=tuple(device for device in filters if device),
            enabled=self.mig_enabled,
            counts=tuple(sorted(counts.items())),
        )


Entries = Annotated[list[MigEntryForm], Field(min_length=1, max_length=_MOST)]


class MigFileForm(_Part):
    """The whole file."""

    version: Literal["v1"]
    mig_configs: dict[str, Entries] = Field(alias="mig-configs", min_length=1)


def read_mig_config(path: Path, text: str, name: str) -> list[MigEntryForm]:
    """The configuration of that name.

    :raises InvalidInput: ``mig.config_invalid`` with line and reason of every mistake, ``mig.config_unknown``
    """
    try:
        document = LinedYaml(str(path), text)
    except InvalidInput as error:
        raise _invalid([f"{', '.join(reason.subjects)}: {reason.message}" for reason in error.reasons]) from error
    try:
        form = MigFileForm.model_validate(document.data)
    except ValidationError as error:
        raise _invalid([str(_problem(document, mistake)) for mistake in error.errors(include_url=False)]) from error
    if name not in form.mig_configs:
        raise InvalidInput(
            "mig.config_unknown",
            f"{path} has no configuration {name[:60]!a}",
            hint=f"it has {', '.join(sorted(form.mig_configs)[:8])}",
        )
    return form.mig_configs[name]


def _problem(document: LinedYaml, detail: Any) -> Problem:
    return Problem(file=document.file, line=document.line_of(detail["loc"]), reason=describe(detail, MigFileForm))


def _invalid(mistakes: list[str]) -> InvalidInput:
    more = f" (and {len(mistakes) - 1} more)" if len(mistakes) > 1 else ""
    return InvalidInput(
        "mig.config_invalid",
        f"{mistakes[0]}{more}",
        hint="docs/howto/keep-mig-layouts.md shows such a file",
        reasons=tuple(Reason(code="mig.config_invalid", message=mistake) for mistake in mistakes) if more else (),
    )
