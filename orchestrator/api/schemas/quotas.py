# SPDX-License-Identifier: Apache-2.0
"""Bodies about quotas. Framebuffer, memory and disk are in MiB."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from orchestrator.api.schemas.base import CopiedAnswer
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.tenancy.quota import MAX_LIMIT, MAX_RESOURCE

_Resource = Annotated[str, Field(min_length=1, max_length=MAX_RESOURCE)]
_Amount = Annotated[int, Field(ge=0, le=MAX_LIMIT)]


class ChangeQuotaBody(StrictForm):
    """New limits by resource; null takes a limit away. Framebuffer, memory and disk in MiB."""

    model_config = ConfigDict(
        title="ChangeQuota", json_schema_extra={"examples": [{"limits": {"devices": 2, "framebuffer": 40960}}]}
    )

    limits: dict[_Resource, _Amount | None] = Field(min_length=1, max_length=100)
    """By resource; null takes a limit away. Framebuffer, memory and disk in MiB."""
    anyway: bool = False
    """Also limits of GPU models that the site has no GPU of."""


class HeldAnswer(CopiedAnswer):
    model_config = ConfigDict(title="QuotaLine")

    resource: str
    """What is limited, like vcpus or vgpus:GRID T4-2Q."""
    limit: int | None
    """null: no limit."""
    used: int
    """How much is taken."""
