# SPDX-License-Identifier: Apache-2.0
"""Bodies about data volumes."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from orchestrator.api.schemas.base import AboutAnswer, Moment, Name
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.vms.vm import MAX_DISK_BYTES, MIN_DISK_BYTES
from orchestrator.core.vms.volume import Volume, VolumeState
from orchestrator.services.vms.volumes import VolumeInfo


class CreateVolumeBody(StrictForm):
    """A data volume. The same name and size again mean the same volume."""

    model_config = ConfigDict(
        title="CreateVolume",
        json_schema_extra={"examples": [{"name": "data", "size_bytes": 21474836480}]},
    )

    name: Name
    """What it is called."""
    tenant: Name = "default"
    """Whose it is."""
    size_bytes: int = Field(ge=MIN_DISK_BYTES, le=MAX_DISK_BYTES)
    """In bytes."""
    host: Name | None = None
    """Where it shall lie; null: where its first VM goes."""


class AttachVolumeBody(StrictForm):
    """Which VM the volume is attached to, or taken from."""

    model_config = ConfigDict(title="AttachVolume", json_schema_extra={"examples": [{"vm": "train"}]})

    vm: Name
    """Name of a VM of the same tenant, which is stopped."""


class VolumeAnswer(AboutAnswer):
    """A disk of a tenant that stays when the VM goes that it is attached to."""

    copied_from = (Volume,)

    model_config = ConfigDict(title="DataVolume")

    id: str
    name: str
    tenant: str
    size_bytes: int
    state: VolumeState
    """new: made when it is first attached; lost: its host was given up, it can only be deleted."""
    vm: str | None
    """Name of the VM that it is attached to; null: of none."""
    host: str | None
    """Where it lies; null: nowhere yet, and for a tenant."""
    created_at: Moment

    @classmethod
    def of(cls, info: VolumeInfo, *, watching: bool) -> VolumeAnswer:
        """``watching``: the reader may know of hosts."""
        one = info.volume
        return cls.copied_about(one, one.about, vm=info.vm, host=one.host if watching else None)
