# SPDX-License-Identifier: Apache-2.0
"""/v1/pools"""

from __future__ import annotations

from fastapi import APIRouter, Response

from orchestrator.api.http_answers import started
from orchestrator.api.paging import PagingOf
from orchestrator.api.schemas.base import AnswerBody, Moment, Name, NameInPath
from orchestrator.api.schemas.operations import StartedAnswer
from orchestrator.api.services import ServicesOf
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.hosts.pool import Pool, PoolKind, PoolState
from orchestrator.services.pools import PoolInfo


class CreatePoolBody(StrictForm, example={"name": "fast"}):
    """A directory that several hosts have mounted under that name, below the agent's directory."""

    name: Name
    """What it is called; at most 16 characters."""
    host: Name | None = None
    """Which host writes the pool's id into the directory; null: one that has it mounted."""


class PoolAnswer(AnswerBody):
    """A directory that several hosts mount, where disks and data volumes of VMs may lie. Sizes in bytes."""

    copied_from = (Pool,)

    id: str
    """A file in its directory holds it."""
    name: str
    kind: PoolKind
    state: PoolState
    """new: its id is being written; deleting: it is being taken away."""
    capacity_bytes: int
    """What is free and what is ours, counted once; 0: no host has observed it yet."""
    free_bytes: int
    """What is free in its file system, as a host observed it last."""
    claimed_bytes: int
    hosts: tuple[str, ...]
    """Those that have it mounted, by name."""
    created_at: Moment

    @classmethod
    def of(cls, info: PoolInfo) -> PoolAnswer:
        return cls.copied(info.pool, hosts=info.hosts)


router = APIRouter(prefix="/pools", tags=["pools"])


@router.post("", status_code=202)
def create(response: Response, body: CreatePoolBody, services: ServicesOf) -> StartedAnswer:
    """Create a pool. A host writes its id into the directory that is mounted there under its name."""
    return started(response, services.pools.create(body.name, body.host))


@router.get("")
def list_all(services: ServicesOf, paging: PagingOf) -> list[PoolAnswer]:
    """List pools, by name."""
    return [PoolAnswer.of(info) for info in paging.cut(services.pools.list(), lambda info: (info.pool.name,))]


@router.get("/{name}")
def get(name: NameInPath, services: ServicesOf) -> PoolAnswer:
    """Get a pool."""
    return PoolAnswer.of(services.pools.get(name))


@router.delete("/{name}", status_code=202)
def delete(response: Response, name: NameInPath, services: ServicesOf) -> StartedAnswer:
    """Delete a pool that nothing lies in. Its directory stays, without its id."""
    return started(response, services.pools.delete(name))
