# SPDX-License-Identifier: Apache-2.0
"""Why a VM is not backed up by a policy: all of it for who watches the pool, its own part for its tenant."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.api.routes.backup_policies import list_policies
from orchestrator.core.errors import Conflict, Fatal, VgpuctlError, error_to_dict
from orchestrator.core.tenancy.access import EVERYWHERE, Caller, Grant
from orchestrator.core.vms.backup_policy import BackupPolicy, VmBackupStanding
from orchestrator.services.vms.backup_policies import PolicyInfo

OPERATOR = Caller(actor="token: op", grants=(Grant(tenant=EVERYWHERE, role="operator"),))
TENANT = Caller(actor="token: a", grants=(Grant(tenant="a", role="tenant-user"),))
ELSEWHERE = Fatal("backup.elsewhere", "the target of host l40s does not have what host t4 put into its own")
IN_POOL = Conflict("snapshot.in_pool", "the disk of VM train lies in a pool")


def error_told_to(caller: Caller, error: dict[str, object] | None) -> str | None:
    standing = VmBackupStanding(
        vm="train", state="failed", backups=0, last_at=None, verified_at=None, next_at=0.0, error=error
    )
    policy = BackupPolicy(tenant="a", name="nightly", target="nas", created_at=0.0)
    told = (PolicyInfo(policy=policy, standings=(standing,)),)
    services: Any = SimpleNamespace(backup_policies=SimpleNamespace(list=lambda _tenants: told))
    (answer,) = list_policies(services, caller)
    return answer.standings[0].error


@pytest.mark.parametrize("error", [ELSEWHERE, IN_POOL])
def test_who_watches_the_pool_is_told_all(error: VgpuctlError) -> None:
    assert error_told_to(OPERATOR, error_to_dict(error)) == error.message
    assert error_told_to(OPERATOR, error_to_dict(error) | {"refused": True}) == error.message


def test_a_tenant_is_told_what_was_refused_and_nothing_that_a_host_said() -> None:
    assert error_told_to(TENANT, error_to_dict(IN_POOL) | {"refused": True}) == IN_POOL.message
    assert error_told_to(TENANT, error_to_dict(ELSEWHERE)) == "its host could not do it"
    assert error_told_to(TENANT, {"message": ELSEWHERE.message}) == "its host could not do it", "of an older version"
    assert error_told_to(TENANT, None) is None
