# SPDX-License-Identifier: Apache-2.0
"""Bodies about data volumes."""

from __future__ import annotations

from datetime import datetime

from pydantic import ConfigDict, Field

from orchestrator.api.schemas.base import AnswerBody, Name, RequestBody, moment
from orchestrator.core.vms.vm import MAX_DISK_BYTES, MIN_DISK_BYTES
from orchestrator.core.vms.volume import VolumeState
from orchestrator.services.vms.volumes import VolumeInfo


class CreateVolumeBody(RequestBody):
    """A data volume. The same name and size again mean the same volume."""

    model_config = ConfigDict(
        title="CreateVolume",
        json_schema_extra={"examples": [{"name": "data", "size_bytes": 21474836480}]},
    )

    name: Name
    tenant: Name = "default"
    size_bytes: int = Field(ge=MIN_DISK_BYTES, le=MAX_DISK_BYTES, description="In bytes")
    host: Name | None = Field(default=None, description="Where it shall lie; null: where its first VM goes")


class AttachVolumeBody(RequestBody):
    """Which VM the volume is attached to, or taken from."""

    model_config = ConfigDict(title="AttachVolume", json_schema_extra={"examples": [{"vm": "train"}]})

    vm: Name = Field(description="Name of a VM of the same tenant, which is stopped")


class VolumeAnswer(AnswerBody):
    """A disk of a tenant that stays when the VM goes that it is attached to."""

    model_config = ConfigDict(title="DataVolume")

    id: str
    name: str
    tenant: str
    size_bytes: int = Field(description="In bytes")
    state: VolumeState = Field(
        description="new: made when it is first attached; lost: its host was given up, it can only be deleted"
    )
    vm: str | None = Field(description="Name of the VM that it is attached to; null: of none")
    host: str | None = Field(description="Where it lies; null: nowhere yet, and for a tenant")
    created_at: datetime
    description: str = Field(description="What people say of it")
    labels: dict[str, str]

    @classmethod
    def of(cls, info: VolumeInfo, *, watching: bool) -> VolumeAnswer:
        """``watching``: the reader may know of hosts."""
        one = info.volume
        return cls(
            id=one.id,
            name=one.name,
            tenant=one.tenant,
            size_bytes=one.size_bytes,
            state=one.state,
            vm=info.vm,
            host=one.host if watching else None,
            created_at=moment(one.created_at),
            description=one.about.description,
            labels=dict(one.about.labels),
        )
