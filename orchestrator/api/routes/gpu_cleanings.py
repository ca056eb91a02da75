# SPDX-License-Identifier: Apache-2.0
"""/v1/gpu-cleanings"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Self

from fastapi import APIRouter, Depends, Query

from orchestrator.api.paging import PagingOf, sequence_of
from orchestrator.api.schemas.base import MAX_NAME, AnswerBody, Moment, moment_or_none
from orchestrator.api.services import ServicesOf
from orchestrator.core.vms.cleaning import Cleaning

_MAX: Final = 255


class GpuCleaningAnswer(AnswerBody, copies=Cleaning):
    """How a piece of a GPU was cleaned whose claim has ended."""

    ended_at: Moment
    cleaned_at: datetime | None
    """When it was known to be clean; null: it is not known, and nobody gets a part of the GPU."""
    sanitising: bool
    """Whether it is not known to be clean."""

    @classmethod
    def of(cls, cleaning: Cleaning) -> Self:
        sanitising = cleaning.cleaned_at is None
        return cls.copied(cleaning, cleaned_at=moment_or_none(cleaning.cleaned_at), sanitising=sanitising)


router = APIRouter(prefix="/gpu-cleanings", tags=["gpus"])


async def _filter(
    host: Annotated[str | None, Query(max_length=_MAX, description="Only of this host")] = None,
    gpu: Annotated[str | None, Query(max_length=_MAX, description="Only of the GPU at this PCI address")] = None,
    vm: Annotated[str | None, Query(max_length=MAX_NAME, description="Only after VMs of this name")] = None,
    tenant: Annotated[str | None, Query(max_length=MAX_NAME, description="Only after VMs of this tenant")] = None,
) -> dict[str, str | None]:
    return {"host": host, "gpu": gpu, "vm_name": vm, "tenant": tenant}


@router.get("")
def list_all(
    services: ServicesOf,
    paging: PagingOf,
    only: Annotated[dict[str, str | None], Depends(_filter)],
    sanitising: Annotated[bool, Query(description="Only those that are not known to be clean")] = False,
) -> list[GpuCleaningAnswer]:
    """List cleanings of GPUs. What became of each piece whose claim has ended, newest first."""
    after = paging.after(1)
    before = None if after is None else sequence_of(after[0])
    cleanings = services.gpus.cleanings(limit=paging.limit + 1, before=before, sanitising=sanitising, **only)
    page = paging.page(list(cleanings), lambda cleaning: (str(cleaning.id),))
    return [GpuCleaningAnswer.of(cleaning) for cleaning in page]
