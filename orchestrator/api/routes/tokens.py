# SPDX-License-Identifier: Apache-2.0
"""/v1/tokens"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path

from orchestrator.api.paging import SortedPagingOf
from orchestrator.api.schemas.tenants import CreateTokenBody, NewTokenAnswer, TokenAnswer
from orchestrator.api.services import ServicesOf, TenantOf
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT

router = APIRouter(prefix="/tokens", tags=["tokens"])


@router.post("", status_code=201)
def create(body: CreateTokenBody, services: ServicesOf) -> NewTokenAnswer:
    """Create a token. This answer is the only one that shows it."""
    token, text = services.tenancy.tokens.create(body.tenant, body.role, body.lifetime_s, body.name)
    return NewTokenAnswer(token=text, about=TokenAnswer.of(token))


@router.get("")
def list_all(services: ServicesOf, paging: SortedPagingOf, tenant: TenantOf = DEFAULT_TENANT) -> list[TokenAnswer]:
    """List tokens. The tenant's tokens by age, revoked ones too."""
    tokens = services.tenancy.tokens.list(tenant)
    return paging.answers(TokenAnswer, tokens, lambda token: (f"{token.created_at:020.6f}", token.id), TokenAnswer.of)


@router.delete("/{token_id}", status_code=204)
def revoke(
    token_id: Annotated[str, Path(description="Id of the token")],
    services: ServicesOf,
    tenant: TenantOf = DEFAULT_TENANT,
) -> None:
    """Revoke a token. End a token at once and for good."""
    services.tenancy.tokens.revoke(tenant, token_id)
