# SPDX-License-Identifier: Apache-2.0
"""/v1/tenants"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from orchestrator.api.auth import CallerOf
from orchestrator.api.http_answers import located
from orchestrator.api.paging import SortedPagingOf
from orchestrator.api.schemas.base import MAX_NAME, DescribeBody, TenantInPath
from orchestrator.api.schemas.tenants import (
    MAX_SUBJECT,
    CreateTenantBody,
    MemberAnswer,
    PutMemberBody,
    RotateTenantKeyBody,
    TenantAnswer,
    TenantKeyAnswer,
    TenantKeyRevokedAnswer,
)
from orchestrator.api.services import SelectorOf, ServicesOf
from orchestrator.core.labels import selects
from orchestrator.core.tenancy.tenant import Member

router = APIRouter(prefix="/tenants", tags=["tenants"])

Place = Annotated[str, Path(max_length=MAX_NAME, description="A tenant; * for roles that hold everywhere")]

SubjectOf = Annotated[str, Query(max_length=MAX_SUBJECT, description="What or whom it is about")]


@router.post("", status_code=201)
def create(response: Response, body: CreateTenantBody, services: ServicesOf) -> TenantAnswer:
    """Create a tenant. The same again is answered with what is there."""
    located(response, "tenants", body.name)
    return TenantAnswer.of(services.tenancy.tenants.create(body.name))


@router.get("")
def list_all(
    services: ServicesOf, caller: CallerOf, paging: SortedPagingOf, selector: SelectorOf
) -> list[TenantAnswer]:
    """List tenants. The tenants that the caller may know of, by name."""
    selected = (
        tenant for tenant in services.tenancy.tenants.list(caller.tenants) if selects(selector, tenant.about.labels)
    )
    return paging.answers(TenantAnswer, selected, lambda tenant: (tenant.name,), TenantAnswer.of)


@router.get("/{tenant}")
def get(tenant: TenantInPath, services: ServicesOf) -> TenantAnswer:
    """Get a tenant."""
    return TenantAnswer.of(services.tenancy.tenants.get(tenant))


@router.patch("/{tenant}")
def describe(tenant: TenantInPath, body: DescribeBody, services: ServicesOf) -> TenantAnswer:
    """Describe a tenant. Set description and labels; those not named stay."""
    return TenantAnswer.of(services.tenancy.tenants.describe(tenant, body.description, body.labels))


@router.delete("/{tenant}", status_code=204)
def delete(tenant: TenantInPath, services: ServicesOf) -> None:
    """Delete a tenant that has no VMs, with its members and tokens."""
    services.tenancy.tenants.delete(tenant)


@router.get("/{tenant}/key")
def get_key(tenant: TenantInPath, services: ServicesOf) -> TenantKeyAnswer:
    """Get what is known of a tenant's key; not the key."""
    return TenantKeyAnswer.of(tenant, services.tenancy.tenants.key(tenant))


@router.post("/{tenant}/key/rotate")
def rotate_key(tenant: TenantInPath, services: ServicesOf, body: RotateTenantKeyBody | None = None) -> TenantKeyAnswer:
    """Rotate a tenant's key. It closes the keys of its encrypted disks and volumes; what is on them stays."""
    own = None if body is None else body.key
    return TenantKeyAnswer.of(tenant, services.tenancy.tenants.rotate_key(tenant, own))


@router.post("/{tenant}/key/revoke")
def revoke_key(tenant: TenantInPath, services: ServicesOf) -> TenantKeyRevokedAnswer:
    """Revoke a tenant's key. With it go those of its encrypted disks and volumes: what is on them is gone."""
    return TenantKeyRevokedAnswer(tenant=tenant, volumes=services.tenancy.tenants.revoke_key(tenant))


@router.get("/{tenant}/members")
def members(tenant: Place, services: ServicesOf, paging: SortedPagingOf) -> list[MemberAnswer]:
    """List a tenant's members. Who has a role there, by subject."""
    memberships = services.tenancy.tenants.members(tenant)
    return paging.answers(MemberAnswer, memberships, lambda member: (member.subject,), MemberAnswer.of)


@router.put("/{tenant}/members", status_code=204)
def put_member(tenant: Place, body: PutMemberBody, services: ServicesOf) -> None:
    """Put a tenant's member. Give somebody a role there; it replaces the one they had."""
    services.tenancy.tenants.put_member(Member(tenant=tenant, subject=body.subject, role=body.role))


@router.delete("/{tenant}/members", status_code=204)
def remove_member(tenant: Place, services: ServicesOf, subject: SubjectOf) -> None:
    """Remove a tenant's member. Take somebody's role there away."""
    services.tenancy.tenants.remove_member(tenant, subject)
