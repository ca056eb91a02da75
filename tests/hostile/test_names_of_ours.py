# SPDX-License-Identifier: Apache-2.0
"""Names of ours that the other side of a border offers: they are names of its own kind there and nothing more."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Final

import pytest
from starlette.testclient import TestClient

from orchestrator.core.errors import Denied, InvalidInput
from orchestrator.core.tenancy.access import EVERYWHERE
from orchestrator.core.tenancy.tenant import Member, login_names
from orchestrator.ports.identity import Login
from orchestrator.services.acting import act_for
from orchestrator.services.tenancy.tenancy import AccessService
from tests.contract.api.real_app import real_app
from tests.fakes.control_plane import T4_HOST, ControlPlane, create_vm, plane_with

ADMINS: Final = {"subject": "oidc:sub:root", "address": "oidc:owner@example.org", "group": "oidc:@admins"}
"""Who has a role in the whole pool, by the kind of claim that names them."""
RIGHT: Final = {("subject", "root"), ("address", "owner@example.org"), ("group", "admins")}
OURS: Final = (
    "root", "owner@example.org", "admins", "@admins", "sub:root", "oidc:sub:root", "oidc:@admins",
    "oidc:owner@example.org", "sub:owner@example.org", "uid:0", "uid:1000", "server", "operator", "unknown", "default",
    "token:8f14e45fceea", EVERYWHERE, "owner@example.org ", "OWNER@example.org\u200b", "@admins@example.org",
)  # fmt: skip


@dataclass(frozen=True)
class Provider:
    """Says of whoever comes what it was told to."""

    names: tuple[str, ...]
    browsers: None = None

    def awaited(self, _text: str) -> Future[None] | None:
        return None

    def login(self, _text: str) -> Login:
        return Login(names=self.names)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with plane_with(tmp_path_factory.mktemp("state"), T4_HOST) as made:
        for name in ADMINS.values():
            made.services.tenancy.tenants.put_member(Member(subject=name, tenant=EVERYWHERE, role="admin"))
        yield made
        act_for("server", of_pool=True)


def _claimed(kind: str, text: str) -> tuple[str, ...]:
    return login_names(
        text if kind == "subject" else "nobody",
        text if kind == "address" else None,
        [text] if kind == "group" else [],
    )


@pytest.mark.parametrize(("kind", "text"), list(product(ADMINS, OURS)))
def test_an_identity_providers_claim_is_nobody_of_another_kind(plane: ControlPlane, kind: str, text: str) -> None:
    says = Provider(_claimed(kind, text))
    access = AccessService(store=plane.store, clock=plane.world.clock, owner_uid=1, identities=says)
    if (kind, text) in RIGHT:
        assert access.of_token("a login").everywhere
    else:
        with pytest.raises(Denied, match="does not know you"):
            access.of_token("a login")


@pytest.mark.parametrize("name", [*OURS, "uid-0", "admin", "vgpuctl", "host", "gpu1", "all"])
def test_a_tenants_vm_or_label_of_our_name_is_its_own(tmp_path: Path, name: str) -> None:
    """In metrics, in the audit and on the host."""
    with plane_with(tmp_path, T4_HOST) as own:
        act_for("uid:1001")
        request = create_vm("train")
        for wanted in (replace(request, name=name), replace(request, labels={"tenant": name[:63], "host": T4_HOST})):
            with suppress(InvalidInput):  # no name, or no label
                own.services.vms.create(wanted)
        own.engine.drain()
        assert {vm.spec.tenant for vm in own.services.vms.list(None)} <= {"default"}
        records = [one for one in own.services.tenancy.audit.list(limit=100) if one.action.startswith("create_vm")]
        assert {one.actor for one in records} <= {"uid:1001"}
        text = TestClient(real_app(own)).get("/metrics").text
        assert f'tenant="{name}"' not in text.replace('tenant="default"', "")
        act_for("server", of_pool=True)
