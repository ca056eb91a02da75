# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest
from starlette.requests import HTTPConnection

from orchestrator.api.protocols import uid_of
from orchestrator.core.errors import Denied
from orchestrator.core.tenancy.tenant import Member
from tests.fakes.services import InMemory


def _from(client: tuple[str, int] | None) -> HTTPConnection:
    return HTTPConnection({"type": "http", "client": client, "headers": []})


@pytest.mark.parametrize("uid", [0, 1, 1000, 2**32 - 2])
def test_a_peers_uid_is_what_the_kernel_said(uid: int) -> None:
    assert uid_of(_from((f"uid:{uid}", 1))) == uid


@pytest.mark.parametrize(
    "client", [None, ("uid:", 1), ("0", 1), ("127.0.0.1", 80), ("uid:0x0", 1), ("uid:00", 1), ("uid:-1", 1)]
)
def test_anything_else_is_no_peer(client: tuple[str, int] | None) -> None:
    assert uid_of(_from(client)) is None


def test_root_and_the_owner_are_admins_and_others_what_they_were_made() -> None:
    tenancy = InMemory().tenancy
    access = tenancy.access
    assert access.of_uid(0).everywhere == access.of_uid(access.owner_uid).everywhere == {"admin"}
    with pytest.raises(Denied, match="does not know you"):
        access.of_uid(54321)
    tenancy.tenants.put_member(Member(tenant="default", subject="uid:54321", role="tenant-user"))
    assert access.of_uid(54321).roles_in("default") == {"tenant-user"}
    assert access.of_uid(54321).tenants == ("default",)
