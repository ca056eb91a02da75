# SPDX-License-Identifier: Apache-2.0
"""Who may say what of a tenant's VMs."""

from __future__ import annotations

import pytest

from orchestrator.core.tenancy.access import Role
from tests.unit.api.asking import Asking, asking

POLICY = "/v1/tenants/own/policy"


@pytest.fixture
def ask() -> Asking:
    made = asking()
    made.fake.tenancy.tenants.create("own")
    return made


def bearer(ask: Asking, tenant: str, role: Role) -> str:
    return f"Bearer {ask.fake.tenancy.tokens.create(tenant, role, None)[1]}"


def test_a_tenants_admin_says_when_its_vms_stop_for_upgrades_and_nothing_else(ask: Asking) -> None:
    admin = bearer(ask, "own", "tenant-admin")
    said = ask("PATCH", POLICY, {"maintenance": "22:00-05:00"}, authorization=admin)
    assert (said.status, said.body["maintenance"]) == (200, "22:00-05:00")
    for other in ({"preempt": True}, {"maintenance": "wait", "max_lease_s": None}):
        refused = ask("PATCH", POLICY, other, authorization=admin)
        assert (refused.status, refused.body["code"]) == (403, "policy.not_yours")
        assert ask("GET", POLICY, authorization=admin).body == said.body, "nothing was changed"


@pytest.mark.parametrize(("tenant", "role", "status"), [
    ("own", "tenant-user", 403), ("own", "read-only", 403), ("*", "read-only", 403), ("*", "operator", 200),
])  # fmt: skip
def test_users_do_not_say_it_and_operators_do(ask: Asking, tenant: str, role: Role, status: int) -> None:
    who = bearer(ask, tenant, role)
    assert ask("PATCH", POLICY, {"maintenance": "wait"}, authorization=who).status == status


def test_another_tenants_admin_knows_of_none(ask: Asking) -> None:
    ask.fake.tenancy.tenants.create("foreign")
    refused = ask("PATCH", POLICY, {"maintenance": "wait"}, authorization=bearer(ask, "foreign", "tenant-admin"))
    assert (refused.status, refused.body["code"]) == (404, "tenant.unknown")


@pytest.mark.parametrize("value", ["", "now", "22:00", "22:00-22:00", 5, None, True, "9" * 41])
def test_what_is_no_such_policy_is_refused(ask: Asking, value: object) -> None:
    assert ask("PATCH", POLICY, {"maintenance": value}).status == 400
    assert ask("GET", POLICY).body["maintenance"] == "stop"
