# SPDX-License-Identifier: Apache-2.0
"""What ended gives nothing: tokens that ended tokens made, consoles they opened, names that look like others' names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from orchestrator.core.errors import Denied, InvalidInput, NotFound
from orchestrator.core.tenancy.tenant import (
    MAX_TOKEN_DEPTH,
    ApiToken,
    Member,
    login_names,
    subject_spelling,
    subject_spellings,
    token_actor,
)
from orchestrator.services.acting import act_for
from tests.contract.api.real_app import real_app
from tests.fakes.control_plane import ControlPlane, create_vm, plane_with

LATER_S = 3600.0


@pytest.fixture
def plane(tmp_path: Path) -> Iterator[ControlPlane]:
    with plane_with(tmp_path, "t4") as made:
        made.services.tenancy.tenants.create("red")
        yield made
    act_for("server")


def _line(plane: ControlPlane, count: int) -> list[tuple[ApiToken, str]]:
    """Tokens, each made by the one before it."""
    made = []
    for _ in range(count):
        made.append(plane.services.tenancy.tokens.create("red", "tenant-admin", None))
        act_for(token_actor(made[-1][0].id))
    act_for("server")
    return made


def _opens(plane: ControlPlane, text: str) -> bool:
    try:
        return bool(plane.services.tenancy.access.of_token(text).grants)
    except Denied:
        return False


@pytest.mark.parametrize("ended", range(MAX_TOKEN_DEPTH + 1))
def test_a_token_ends_with_each_that_stands_above_it(plane: ControlPlane, ended: int) -> None:
    line = _line(plane, MAX_TOKEN_DEPTH + 1)
    plane.services.tenancy.tokens.revoke("red", line[ended][0].id)
    assert [_opens(plane, text) for _, text in line] == [number < ended for number in range(len(line))]
    shown = {one.id: one.revoked_at is not None for one in plane.services.tenancy.tokens.list("red")}
    assert [shown[one.id] for one, _ in line] == [number >= ended for number in range(len(line))]


@pytest.mark.parametrize("ended", range(MAX_TOKEN_DEPTH + 1))
def test_a_token_that_was_stored_with_a_later_end_does_not_outlive_its_maker(plane: ControlPlane, ended: int) -> None:
    line = _line(plane, MAX_TOKEN_DEPTH + 1)
    with plane.store.begin() as tx:
        tx.tokens.revoke(line[ended][0].id, plane.world.clock.now())
    assert [_opens(plane, text) for _, text in line] == [number < ended for number in range(len(line))]


@pytest.mark.parametrize("lifetime", [None, 1, LATER_S - 1, LATER_S, LATER_S + 1, 10 * 365 * 86400])
def test_no_token_ends_after_the_one_that_makes_it(plane: ControlPlane, lifetime: float | None) -> None:
    tokens = plane.services.tenancy.tokens
    parent, _ = tokens.create("red", "tenant-admin", LATER_S)
    act_for(token_actor(parent.id))
    if lifetime is not None and lifetime >= LATER_S:
        with pytest.raises(InvalidInput, match="ends with the one that makes it"):
            tokens.create("red", "tenant-user", lifetime)
        assert len(tokens.list("red")) == 1
    else:
        child, _ = tokens.create("red", "tenant-user", lifetime)
        assert child.expires_at is not None
        assert parent.expires_at is not None
        assert child.expires_at <= parent.expires_at


def test_a_line_of_tokens_has_an_end(plane: ControlPlane) -> None:
    line = _line(plane, MAX_TOKEN_DEPTH + 1)
    act_for(token_actor(line[-1][0].id))
    with pytest.raises(InvalidInput) as refused:
        plane.services.tenancy.tokens.create("red", "tenant-user", None)
    assert refused.value.code == "token.too_deep"


def test_a_token_of_a_tenant_that_is_made_again_opens_nothing_there(plane: ControlPlane) -> None:
    tenancy = plane.services.tenancy
    line = _line(plane, 2)
    tenancy.tenants.put_member(Member(tenant="red", subject="oidc:ann", role="tenant-admin"))
    tenancy.quotas.change("red", {"vms": 1})
    tenancy.policies.change("red", {"isolation": "none"})
    plane.services.vms.create(replace(create_vm("was", start=False), tenant="red"))
    plane.engine.drain()
    plane.services.vms.delete("red", "was")
    plane.engine.drain()
    tenancy.tenants.delete("red")
    tenancy.tenants.create("red")
    assert not any(_opens(plane, text) for _, text in line)
    text = tenancy.tokens.create("red", "tenant-admin", None)[1]
    with TestClient(real_app(plane), headers={"Authorization": f"Bearer {text}"}) as client:
        assert client.get("/v1/operations").json() == []
        assert client.get("/v1/vms").json() == []
        assert client.get("/v1/tenants/red/members").json() == []
        assert [one["revoked_at"] for one in client.get("/v1/tokens?tenant=red").json()] == [None]
        assert client.get("/v1/tenants/red/policy").json()["isolation"] == "instance"
        assert {one["limit"] for one in client.get("/v1/tenants/red/quota").json()} == {None}
        assert client.get("/v1/audit").status_code == 403


@pytest.mark.parametrize("ended", ["revoked", "its maker revoked", "expired", "tenant gone"])
def test_an_open_console_ends_with_the_token_that_opened_it(plane: ControlPlane, ended: str) -> None:
    tenancy = plane.services.tenancy
    plane.services.vms.create(replace(create_vm("train"), tenant="red"))
    plane.engine.drain()
    parent, _ = tenancy.tokens.create("red", "tenant-admin", LATER_S)
    act_for(token_actor(parent.id))
    child, text = tenancy.tokens.create("red", "tenant-user", None)
    act_for("server")
    headers = {"Authorization": f"Bearer {text}"}
    with (
        TestClient(real_app(plane), headers=headers) as client,
        client.websocket_connect("/v1/vms/train/console?tenant=red") as console,
    ):
        assert console.receive_bytes().startswith(b"console of")
        match ended:
            case "revoked":
                tenancy.tokens.revoke("red", child.id)
            case "its maker revoked":
                tenancy.tokens.revoke("red", parent.id)
            case "expired":
                plane.world.clock.sleep(LATER_S)
            case "tenant gone":
                with plane.store.begin() as tx:
                    tx.tenants.remove("red")
        with pytest.raises(WebSocketDisconnect) as closed:
            console.receive_bytes()
        assert closed.value.code == 1008


NAMES = ("ann", "ann@example.org", "@ml", "@ml@example.org", "sub:ann", "sub:ann@example.org", "ops", "uid:0", "ml")


@pytest.mark.parametrize(("own", "other"), list(product(NAMES, repeat=2)))
def test_who_calls_itself_as_another_is_not_taken_for_it(own: str, other: str) -> None:
    """Subject, address and group of one login against those of another: only the same kind and text meet."""
    kinds = {"subject": login_names(own, None, ())[0], "group": login_names("x", None, (own,))[-1]}
    if len(address := login_names("x", own, ())) > 1:
        kinds["address"] = address[-1]
    others = {"subject": login_names(other, None, ())[0], "group": login_names("y", None, (other,))[-1]}
    if len(address := login_names("y", other, ())) > 1:
        others["address"] = address[-1]
    for (kind, name), (other_kind, other_name) in product(kinds.items(), others.items()):
        meets = bool(set(subject_spellings(name)) & set(subject_spellings(other_name)))
        assert meets is ((kind, own) == (other_kind, other))
        assert not meets or subject_spelling(name) == subject_spelling(other_name)


@pytest.mark.parametrize(("stored", "subject", "enters"), [
    ("oidc:ann", "ann", True), ("oidc:sub:ann", "ann", True), ("oidc:ann", "sub:ann", False),
    ("oidc:ann@example.org", "ann@example.org", False), ("oidc:@ml", "@ml", False),
    ("oidc:sub:ann@example.org", "ann@example.org", True), ("oidc:sub:@ml", "@ml", True),
])  # fmt: skip
def test_a_member_who_was_stored_before_is_still_the_same(
    plane: ControlPlane, stored: str, subject: str, enters: bool
) -> None:
    tenancy = plane.services.tenancy
    with plane.store.begin() as tx:
        tx.tenants.put_member(Member(tenant="red", subject=stored, role="tenant-user"))
        names = login_names(subject, None, ())
        found = {
            one.tenant for name in names for word in subject_spellings(name) for one in tx.tenants.members(subject=word)
        }
    assert bool(found) is enters
    tenancy.tenants.put_member(Member(tenant="red", subject=stored, role="read-only"))
    assert [one.role for one in tenancy.tenants.members("red")] == ["read-only"]
    tenancy.tenants.remove_member("red", stored)
    assert tenancy.tenants.members("red") == ()


def test_a_token_of_somebody_else_is_not_found_to_be_revoked(plane: ControlPlane) -> None:
    (first, text), *_ = _line(plane, 1)
    with pytest.raises(NotFound):
        plane.services.tenancy.tokens.revoke("default", first.id)
    assert _opens(plane, text)
