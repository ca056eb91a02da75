# SPDX-License-Identifier: Apache-2.0
"""/v1/backup-policies"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Response
from pydantic import Field

from orchestrator.api.auth import CallerOf
from orchestrator.api.http_answers import located
from orchestrator.api.schemas.base import CopiedAnswer, Moment, Name, NameInPath
from orchestrator.api.services import ServicesOf, TenantFilter, TenantOf
from orchestrator.api.visibility import failure_for_tenant, refusal_for_tenant, watches_pool
from orchestrator.catalogue.described import StrictForm
from orchestrator.core.errors import error_from_dict
from orchestrator.core.tenancy.access import Caller
from orchestrator.core.tenancy.tenant import DEFAULT_TENANT
from orchestrator.core.vms.backup_policy import (
    MAX_EVERY_S,
    MAX_KEPT,
    MIN_EVERY_S,
    BackupPolicy,
    VmBackupStanding,
)
from orchestrator.services.vms.backup_policies import PolicyInfo

_USUAL: Final = BackupPolicy(tenant="", name="", target="", created_at=0.0)
_MAX_VMS: Final = 1000
Every = Annotated[int, Field(ge=MIN_EVERY_S, le=MAX_EVERY_S)]
Kept = Annotated[int, Field(ge=0, le=MAX_KEPT)]
Window = Annotated[str, Field(max_length=40)]


class ChangeBackupPolicyBody(StrictForm, example={"keep_daily": 14}):
    """New values; what is not named stays."""

    copied_from = (BackupPolicy,)

    target: Name | None = None
    """Where backups go from now on; null: to the only target."""
    every_s: Every = _USUAL.every_s
    window: Window | None = None
    keep_daily: Kept = _USUAL.keep_daily
    keep_weekly: Kept = _USUAL.keep_weekly
    keep_monthly: Kept = _USUAL.keep_monthly
    verify_every_s: Every | None = None
    paused: bool = _USUAL.paused
    vms: list[Name] = Field(default=[], max_length=_MAX_VMS)
    """Names of the VMs that it is about; none: all of the tenant, now and later."""


class CreateBackupPolicyBody(ChangeBackupPolicyBody, example={"name": "nightly", "window": "01:00-05:00"}):
    """A policy of backups."""

    name: Name
    tenant: Name = DEFAULT_TENANT


class VmBackupStandingAnswer(CopiedAnswer, copies=VmBackupStanding):
    """How one VM stands under a policy."""

    last_at: Moment | None
    verified_at: Moment | None
    next_at: Moment
    error: str | None
    """Why what was tried last went wrong; None: it did not."""


class BackupPolicyAnswer(CopiedAnswer, copies=BackupPolicy):
    """How often VMs are backed up, and which backups stay."""

    vms: list[str]
    created_at: Moment
    standings: list[VmBackupStandingAnswer]
    """How the VMs stand that it is about now, by name."""


router = APIRouter(prefix="/backup-policies", tags=["backups"])


@router.get("")
def list_policies(services: ServicesOf, caller: CallerOf, tenant: TenantFilter = None) -> list[BackupPolicyAnswer]:
    """List backup policies, by tenant and name, with how their VMs stand."""
    return [_answer(info, caller) for info in services.backup_policies.list(caller.visible(tenant))]


@router.post("", status_code=201)
def create_policy(
    response: Response, body: CreateBackupPolicyBody, services: ServicesOf, caller: CallerOf
) -> BackupPolicyAnswer:
    """Create a backup policy. The first backups begin in its hours."""
    wanted = body.model_dump(exclude_unset=True, exclude={"name", "tenant", "target", "vms"})
    services.backup_policies.create(body.tenant, body.name, body.target, body.vms, wanted)
    located(response, "backup-policies", body.name)
    return _answer(services.backup_policies.get(body.tenant, body.name), caller)


@router.get("/{name}")
def get_policy(
    name: NameInPath, services: ServicesOf, caller: CallerOf, tenant: TenantOf = DEFAULT_TENANT
) -> BackupPolicyAnswer:
    """Get a backup policy, with how its VMs stand."""
    return _answer(services.backup_policies.get(tenant, name), caller)


@router.patch("/{name}")
def change_policy(
    name: NameInPath,
    body: ChangeBackupPolicyBody,
    services: ServicesOf,
    caller: CallerOf,
    tenant: TenantOf = DEFAULT_TENANT,
) -> BackupPolicyAnswer:
    """Change a backup policy. Set what is named; the rest stays."""
    services.backup_policies.change(tenant, name, body.model_dump(exclude_unset=True))
    return _answer(services.backup_policies.get(tenant, name), caller)


@router.delete("/{name}", status_code=204)
def delete_policy(name: NameInPath, services: ServicesOf, tenant: TenantOf = DEFAULT_TENANT) -> None:
    """Delete a backup policy. Its backups stay until somebody deletes them."""
    services.backup_policies.delete(tenant, name)


def _answer(info: PolicyInfo, caller: Caller) -> BackupPolicyAnswer:
    watching = watches_pool(caller)
    standings = [
        VmBackupStandingAnswer.copied(each, error=_error_shown(each.error, watching=watching))
        for each in info.standings
    ]
    return BackupPolicyAnswer.copied(info.policy, vms=list(info.policy.vms), standings=standings)


def _error_shown(error: dict[str, object] | None, *, watching: bool) -> str | None:
    if error is None:
        return None
    if not watching:
        refused = refusal_for_tenant(error_from_dict(error)) if error.get("refused") else None
        error = failure_for_tenant(error) if refused is None else {"message": refused.message}
    return str((error or {})["message"])
